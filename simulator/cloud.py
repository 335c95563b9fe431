# SPDX-License-Identifier: Apache-2.0
"""A cloud that exists in memory only: hosts, providers, and the real driver on them."""

from __future__ import annotations

import copy
import csv
import dataclasses
import math
import random
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, cast

import numpy as np
import os_resource_classes as orc
from oslo_config import cfg

from ..objects import Destination, InstanceGroup, InstancePCIRequests, RequestSpec
from ..scheduler.candidates import AllocationRequest, amounts_by_class
from ..scheduler.display import safe
from ..scheduler.drivers.decision_log import DecisionLog
from ..scheduler.drivers.instances import Assignment
from ..scheduler.drivers.parts import Parts
from ..scheduler.drivers.plugins import load_plugin_set
from ..scheduler.drivers.record import DecisionRecord, Outcome
from ..scheduler.explain.capacity import NO_PROVIDERS, NoProviders
from ..scheduler.hosts import HostBatch, HostRecord, HostTable
from ..scheduler.hosts.pci import HostPools
from ..scheduler.placement.allocations.journal import Journal
from ..scheduler.placement.allocations.orphans import Orphans
from ..scheduler.placement.providers import (
    InventoryRecord,
    ProviderRecord,
    ProviderTable,
    ProviderView,
)
from ..scheduler.planner import KnownRequest, plan_defragment
from ..scheduler.planner.cloud import TableCandidates, decide_granted
from ..scheduler.request import get_field
from ..scheduler.seeding import providers as providers_of
from ..scheduler.sources.base import BaseHostSource
from ..scheduler.sources.inventory import Inventory, InventoryHost
from ..scheduler.sources.report_columns import load_columns
from ..scheduler.views import StoredView
from ..scheduler.views.offline import NoPlacement
from ..scheduler.waiting import SystemWaiter
from .traces import GPU, MAX_AMOUNT, TraceError, Units

#: Hosts of a file, or of a cloud with their instances.
Hosts = Inventory | StoredView

_NAMESPACE: Final = uuid.UUID("6d6f6f72-6167-5000-8000-73696d756c61")
#: In the units of any trace, Placement's inventories can hold as much.
_MAX_OF_SHAPE: Final = 2_000_000
#: The disk of a host whose format has none.
_DISK_GB: Final = 100_000
#: The columns of a list of nodes: name, CPUs, memory, GPUs.
NODE_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu")
_CELL: Final = str(uuid.uuid5(_NAMESPACE, "cell"))


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """What each of some equal hosts has: cores, GiB of memory, GB of disk."""

    cores: int
    memory_gib: int
    disk_gb: int = _DISK_GB

    @classmethod
    def parse(cls, text: str) -> Shape:
        """Return the shape of ``CORES:MEMORY_GIB`` or ``CORES:MEMORY_GIB:DISK_GB``.

        Raises
        ------
        ValueError
            The text is something else; the message says what is right.
        """
        try:
            amounts = [int(part) for part in text.split(":")]
        except ValueError:
            amounts = []
        if (
            len(amounts) not in (2, 3)
            or min(amounts) <= 0
            or max(amounts) > _MAX_OF_SHAPE
        ):
            raise ValueError(
                f"{text!r} is no shape of a host: write CORES:MEMORY_GIB or "
                f"CORES:MEMORY_GIB:DISK_GB, each at most {_MAX_OF_SHAPE:,}, such as "
                "96:562"
            )
        return cls(*amounts)


def equal_hosts(
    n_hosts: int, shape: Shape, units: Units, prefix: str = "host"
) -> Inventory:
    """Return hosts of one shape, without overcommitment, in the units of a trace."""
    vcpus = shape.cores * units.vcpus_per_core
    memory_mb = shape.memory_gib * units.memory_per_gib
    width = len(str(n_hosts))
    hosts = [
        _host(f"{prefix}{number:0{width}}", vcpus, memory_mb, shape.disk_gb)
        for number in range(n_hosts)
    ]
    return Inventory({"cell": _CELL}, (), tuple(hosts))


def _host(
    name: str, vcpus: int, memory_mb: int, disk_gb: int, n_gpus: int = 0
) -> InventoryHost:
    gpus = [{**GPU, "count": n_gpus, "numa_node": None}] if n_gpus else None
    record = HostRecord(
        host=name,
        nodename=name,
        hypervisor_hostname=name,
        uuid=str(uuid.uuid5(_NAMESPACE, name)),
        cell_uuid=_CELL,
        total_usable_ram_mb=memory_mb,
        free_ram_mb=memory_mb,
        total_usable_disk_gb=disk_gb,
        free_disk_mb=disk_gb * 1024,
        disk_mb_used=0,
        vcpus_total=vcpus,
        vcpus_used=0,
        hypervisor_type="QEMU",
        supported_instances=(("x86_64", "kvm", "hvm"),),
        pci_stats=HostPools.read(gpus),
    )
    reserved = dict.fromkeys((orc.VCPU, orc.MEMORY_MB, orc.DISK_GB), 0)
    return InventoryHost(record, frozenset(), reserved, {}, frozenset())


def read_nodes(path: Path) -> Inventory:
    """Return the hosts of a list of nodes of Alibaba's openb trace.

    A CSV file with the columns of `NODE_COLUMNS`: thousandths of CPUs, MiB, and whole
    GPUs, which are PCI devices.

    Raises
    ------
    TraceError
        The file cannot be read, or a line has no host.
    """
    hosts = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            if not set(rows.fieldnames or ()).issuperset(NODE_COLUMNS):
                raise TraceError(
                    f"{path}: a CSV file of hosts has the columns "
                    f"{', '.join(NODE_COLUMNS)}"
                )
            for number, row in enumerate(rows, start=2):
                name, *texts = (row[column] or "" for column in NODE_COLUMNS)
                amounts = [int(text) if text.isdecimal() else -1 for text in texts]
                if not name or name in hosts or not all(
                    least <= amount <= MAX_AMOUNT
                    for amount, least in zip(amounts, (1, 1, 0), strict=True)
                ):  # fmt: skip
                    raise TraceError(
                        f"{path}: line {number} has no host: it needs another name, "
                        "CPUs and memory, and GPUs or 0"
                    )
                vcpus, memory_mb, n_gpus = amounts
                hosts[name] = _host(name, vcpus, memory_mb, _DISK_GB, n_gpus)
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise TraceError(f"{path}: cannot be read: {safe(e, 200)}") from e
    if not hosts:
        raise TraceError(f"{path} has no hosts")
    return Inventory({"cell": _CELL}, (), tuple(hosts.values()))


class _Source(BaseHostSource):
    """A source whose hosts the simulation puts into the table."""

    #: No API has checked that the zone of a trace's request exists.
    are_zones_checked = False

    def __init__(
        self, conf: cfg.ConfigOpts, members: Mapping[str, Collection[str]]
    ) -> None:
        super().__init__(conf)
        self._members = members

    def start(self, table: HostTable) -> None:
        """Do nothing."""

    def members_of_groups(
        self,
        uuids: Collection[str],
        project_id: str,  # noqa: ARG002 - of the interface
        is_placed: Callable[[str], bool],  # noqa: ARG002
    ) -> Mapping[str, frozenset[str]]:
        """Return the members of server groups."""
        return {uuid: frozenset(self._members.get(uuid, ())) for uuid in uuids}


@dataclasses.dataclass(frozen=True, slots=True)
class _Placed:
    """Where an instance is, what it holds there, and what it requested.

    Attributes
    ----------
    launched_at : float
        Virtual time: of its first host, if it was moved.
    """

    host: str
    amounts: Mapping[str, Mapping[str, int]]
    spec: RequestSpec
    launched_at: float


class SimulatedCloud:
    """Hosts and providers on which the scheduler's own driver places instances.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts
        The options of moorage-scheduler: driver, filters, weighers, multipliers.
    hosts : Inventory or StoredView
        The hosts. Instances that they have at the start stay.
    seed : int
        Orders hosts of equal weight.

    Attributes
    ----------
    now : float
        Virtual time, seconds.
    table : HostTable
    n_devices : int
        PCI devices of the instances that the simulation has placed.

    Raises
    ------
    ConfigurationError
        An option or a plugin is invalid.
    NoProviders
        A view has no copy of Placement's providers.
    UnreadableView
        The view is damaged.
    """

    def __init__(self, conf: cfg.ConfigOpts, hosts: Hosts, seed: int) -> None:
        self.now = 0.0
        plugins = load_plugin_set(conf, self._clock)
        if isinstance(hosts, StoredView):
            self._load_view(hosts, conf.service_down_time)
        else:
            self.table = HostTable(self._clock, load_columns(), self._clock)
            self._providers = ProviderTable()
            self.add_hosts(hosts)
            # A file has no time of its own: it is not older than its newest launch.
            launches = [host.record.launches for host in hosts.hosts]
            times = [launch[0] for of_host in launches for launch in of_host or ()]
            self._move_launches(-max(times, default=0))
        is_empty = not len(self.provider_view().state.generations)
        placement = NoPlacement(is_empty=is_empty)
        orphans = Orphans(placement, rng=random.Random(seed))
        rng = np.random.default_rng(seed)
        self._placed: dict[str, _Placed] = {}
        self._members = defaultdict[str, set[str]](set)
        self._parts = Parts(
            conf=plugins.conf,
            driver=plugins.driver,
            placement=placement,
            orphans=orphans,
            journal=Journal(orphans),
            candidates=TableCandidates(self._providers),
            table=self.table,
            source=_Source(conf, self._members),
            prefilters=plugins.prefilters,
            filters=plugins.filters,
            weighers=plugins.weighers,
            decisions=DecisionLog(1),
            clock=self._clock,
            rng=rng,
            tie_seed=int(rng.integers(2**62)),
            network=None,
            waiter=SystemWaiter(),
            review=lambda _nodes: False,
            n_top_hosts=0,
        )
        self.n_devices = 0

    def add_hosts(self, inventory: Inventory) -> None:
        """Add hosts, with their instances and providers, and aggregates."""
        for aggregate in inventory.aggregates:
            self.table.put_aggregate(aggregate)
        instances = defaultdict[str, set[str]](set)
        for host in inventory.hosts:
            instances[host.record.host] |= host.instances
        # All launches of a host without instances are known.
        rows = [
            dataclasses.replace(host.record, launches=())
            if host.record.launches is None and not instances[host.record.host]
            else host.record
            for host in inventory.hosts
        ]
        self.table.put_many(rows, instances)
        records = [
            ProviderRecord(
                provider.uuid,
                provider.parent_uuid,
                inventories={
                    name: InventoryRecord(**cast(dict[str, int], amounts))
                    for name, amounts in provider.inventories.items()
                },
                traits=provider.traits,
                aggregates=provider.aggregates,
            )
            for provider in providers_of(inventory)
        ]
        self._providers.put(records)

    def _load_view(self, view: StoredView, service_down_time: int) -> None:
        """Load the hosts of a view, up or down as they were; their builds are over."""
        if view.providers is None:
            raise NoProviders(NO_PROVIDERS)
        self.table = view.table(self._clock)
        self._providers = ProviderTable.of_view(view.providers)
        batch = self.table.batch()
        is_up = np.isposinf(batch.last_seen_up)
        is_up |= np.abs(view.at - batch.last_seen_up) <= service_down_time
        is_down = (batch.forced_down | ~is_up).tolist()
        self.table.change_many(
            {
                str(node): {
                    "last_seen_up": math.inf,
                    "forced_down": forced_down,
                    "num_io_ops": 0,
                }
                for node, forced_down in zip(batch.uuid, is_down, strict=True)
            }
        )
        self._move_launches(-int(view.at))

    def _move_launches(self, seconds: int) -> None:
        """Move the launches that hosts have at the start to the virtual time."""
        batch = self.table.batch()
        self.table.change_many(
            {
                str(node): {
                    "launches": tuple(
                        (launched_at + seconds, *group)
                        for launched_at, *group in launches
                    )
                }
                for node, launches in zip(batch.uuid, batch.launches, strict=True)
                if launches
            }
        )

    def _clock(self) -> float:
        return self.now

    def place(self, spec: RequestSpec, uuids: Sequence[str]) -> DecisionRecord:
        """Decide a request, and count what its instances consume if it is granted.

        Returns
        -------
        DecisionRecord
            With the outcome `SELECTED` or `NO_VALID_HOST`.

        Raises
        ------
        SchedulerError
            A plugin failed.
        """
        return self._place(spec, uuids, self.now)

    def _place(
        self, spec: RequestSpec, uuids: Sequence[str], launched_at: float
    ) -> DecisionRecord:
        record, granted = self._decide(spec, uuids)
        for instance_uuid in granted:
            self._count(spec, instance_uuid, launched_at, *granted[instance_uuid])
        if granted and spec.instance_group is not None:
            self._members[str(spec.instance_group.uuid)].update(uuids)
        return record

    def place_again(self, instance_uuids: Sequence[str]) -> Sequence[DecisionRecord]:
        """Place instances whose host has failed, one after another; none is built.

        An instance that fits nowhere is deleted.

        Raises
        ------
        SchedulerError
            A plugin failed.
        """
        records = []
        lost = [(uuid, self._placed[uuid]) for uuid in instance_uuids]
        for instance_uuid, _ in lost:
            self.delete(instance_uuid)
        for instance_uuid, placed in lost:
            spec = _of_move(placed.spec)
            records.append(self._place(spec, [instance_uuid], placed.launched_at))
            self.end_build(instance_uuid)
        return records

    def move(self, instance_uuid: str, destination: str = "") -> DecisionRecord:
        """Decide an instance again, and move it if another host is found.

        Parameters
        ----------
        destination : str
            The service host that it goes to; "": any.

        Raises
        ------
        SchedulerError
            A plugin failed.
        """
        placed = self._placed[instance_uuid]
        spec = _of_move(placed.spec)
        spec.ignore_hosts = [*(spec.ignore_hosts or ()), placed.host]
        if destination:
            spec.requested_destination = Destination(
                host=destination, node=None, cell=None
            )
        record, granted = self._decide(spec, [instance_uuid])
        if granted:
            self.delete(instance_uuid)
            self._count(
                placed.spec, instance_uuid, placed.launched_at, *granted[instance_uuid]
            )
            self.end_build(instance_uuid)
        return record

    def _decide(
        self, spec: RequestSpec, uuids: Sequence[str]
    ) -> tuple[DecisionRecord, Mapping[str, tuple[Assignment, AllocationRequest]]]:
        if spec.instance_group is not None:
            spec = self._with_members(spec, spec.instance_group)
        return decide_granted(self._parts, spec, uuids)

    def _with_members(self, spec: RequestSpec, group: InstanceGroup) -> RequestSpec:
        """Return a request whose server group has its members of this cloud."""
        members = self._members[str(group.uuid)] & self._placed.keys()
        spec, group = copy.copy(spec), copy.copy(group)
        group.members = sorted({*(group.members or ()), *members})
        group.hosts = sorted({self._placed[member].host for member in members})
        spec.instance_group = group
        return spec

    def _count(
        self,
        spec: RequestSpec,
        instance_uuid: str,
        launched_at: float,
        assignment: Assignment,
        request: AllocationRequest,
    ) -> None:
        amounts = amounts_by_class(request)
        self._providers.add_used(amounts)
        node_uuid = assignment.value("uuid")
        self.table.claims.consume(
            node_uuid, instance_uuid, assignment.consumption, launched_at
        )
        self.n_devices += _n_devices(spec)
        self._placed[instance_uuid] = _Placed(
            assignment.value("host"), amounts, spec, launched_at
        )

    def end_build(self, instance_uuid: str) -> None:
        """Count an instance's build no longer among its host's I/O operations."""
        if placed := self._placed.get(instance_uuid):
            self.table.claims.end_builds(placed.host, [instance_uuid])

    def delete(self, instance_uuid: str) -> None:
        """Delete an instance; one that has no host is ignored."""
        placed = self._placed.pop(instance_uuid, None)
        if placed is None:
            return
        self.table.claims.release(placed.host, instance_uuid)
        self.n_devices -= _n_devices(placed.spec)
        self._providers.add_used(
            {
                name: {provider: -amount for provider, amount in by_provider.items()}
                for name, by_provider in placed.amounts.items()
            }
        )

    def instances_on(self, host: str) -> list[str]:
        """Return the instances that the simulation has placed on a host, in order."""
        return [uuid for uuid, placed in self._placed.items() if placed.host == host]

    def set_service(self, host: str, *, is_down: bool, is_disabled: bool) -> None:
        """Set whether the service of a host is down, and whether it is disabled."""
        changes = {"forced_down": is_down, "disabled": is_disabled}
        self.table.change_many(dict.fromkeys(self.table.nodes_of(host), changes))

    def hosts_in_service(self) -> HostBatch:
        """Return the hosts that are neither down nor disabled by the operator."""
        batch = self.table.batch()
        return batch.take(~batch.forced_down & ~batch.disabled)

    def spec_of(self, instance_uuid: str) -> RequestSpec:
        """Return the request of an instance that the simulation has placed."""
        return self._placed[instance_uuid].spec

    def defragment(self, max_moves: int) -> tuple[int, int]:
        """Do the moves that empty the most hosts, one after another.

        Returns
        -------
        n_moves : int
            At most `max_moves`.
        memory_mb : int
            The memory of the instances that were moved.

        Raises
        ------
        SchedulerError
            A plugin failed.
        """
        plan = plan_defragment(
            self._parts,
            self.provider_view(),
            self._find_requests,
            max_moves=max_moves,
            seconds=math.inf,
        )
        # What a filter refuses now, such as one of a plugin, stays as in nova.
        moved = [
            step
            for step in plan.steps
            if self.move(step.instance, step.destination).outcome is Outcome.SELECTED
        ]
        return len(moved), sum(step.memory_mb for step in moved)

    def _find_requests(
        self, host_of: Mapping[str, str]
    ) -> Mapping[str, KnownRequest | str]:
        """Return the requests of the instances that were placed."""
        return {
            uuid: KnownRequest(placed.spec, "simulation")
            if (placed := self._placed.get(uuid))
            else "the hosts of the simulation have no requests"
            for uuid in host_of
        }

    def provider_view(self) -> ProviderView:
        """Return the providers as they are now."""
        return self._providers.view()

    @property
    def n_instances(self) -> int:
        """The number of instances that the simulation has placed."""
        return len(self._placed)


def _n_devices(spec: RequestSpec) -> int:
    requests: InstancePCIRequests | None = get_field(spec, "pci_requests")
    return sum(request.count for request in requests.requests) if requests else 0


def _of_move(spec: RequestSpec) -> RequestSpec:
    """Return a request for one instance, without hosts that its creation was forced to.

    As nova's conductor sends it.
    """
    spec = copy.copy(spec)
    spec.num_instances = 1
    spec.force_hosts = spec.force_nodes = None
    return spec


def lower_bound(peak: Sequence[int], hosts: Hosts) -> int | None:
    """Return the fewest equal hosts that could hold a trace's peak.

    None: the hosts differ, have nothing of what the trace needs, or have instances
    already, or the trace needs nothing of them.

    Parameters
    ----------
    peak : (int, int, int)
        CPUs, memory and disk at one time; see `Trace.peak`.
    """
    if isinstance(hosts, StoredView):
        return None
    capacities = {
        (
            r.vcpus_total * r.cpu_allocation_ratio,
            r.total_usable_ram_mb * r.ram_allocation_ratio,
            r.total_usable_disk_gb * r.disk_allocation_ratio,
        )
        for r in (host.record for host in hosts.hosts)
    }
    if len(capacities) != 1:
        return None
    [capacity] = capacities
    needed = [(amount, total) for amount, total in zip(peak, capacity, strict=True)]
    if any(amount and not total for amount, total in needed):
        return None
    fewest = max(math.ceil(amount / total) if amount else 0 for amount, total in needed)
    return fewest or None
