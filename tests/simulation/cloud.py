# SPDX-License-Identifier: Apache-2.0
"""The hosts of a simulation: in racks, read late; they appear, change and vanish."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from moorage.scheduler.hosts import HostPools, HostRecord, HostTable, HostTopology
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.seed import Provider, seed
from moorage.scheduler.sources.base import (
    BaseHostSource,
    ServiceHost,
    ServiceState,
)
from moorage.testing.builders import host

from ..fixtures.virtual_time import VirtualTime
from .computes import PCPUS_A_HOST
from .events import EventLog, Kind
from .placement import SharedPlacement

N_HOSTS: Final = 6
HOSTS_A_RACK: Final = 2
VCPUS_A_HOST: Final = 8
LEVEL: Final = "rack"

_RAM_MB: Final = 64 * 1024
_DISK_GB: Final = 1000
_HEADERS: Final = {"OpenStack-API-Version": "placement 1.36"}
_DISABLED: Final = "COMPUTE_STATUS_DISABLED"

#: A trait that every host has, except for a while.
TRAIT: Final = "HW_CPU_X86_AVX2"

#: Seconds until every scheduler that runs has read a change of a host, at most.
REPORTED_S: Final = 4.0
_NEVER: Final = float("inf")

#: How long a host is disabled, down, smaller or gone, seconds.
_CHANGED_S: Final = (5.0, 60.0)


@dataclasses.dataclass(eq=False)
class Host:
    """A host.

    Attributes
    ----------
    n_vcpus : int
        As its provider's inventory has it.
    most_in_use : int
        The most vCPUs that instances may have; more than it has after it has shrunk.
    unusable_since : float
        When it was disabled or forced down, on the virtual clock; infinite: it is not.
    traits : frozenset of str
    lacks_trait_since : float
        When it lost `TRAIT`, on the virtual clock; infinite: it has it.
    """

    record: HostRecord
    n_vcpus: int = VCPUS_A_HOST
    most_in_use: int = VCPUS_A_HOST
    unusable_since: float = _NEVER
    traits: frozenset[str] = frozenset([TRAIT])
    lacks_trait_since: float = _NEVER

    @property
    def rack(self) -> str:
        """The rack in which it is."""
        return self.record.places[0][1]


class Cloud:
    """The hosts, by UUID of the compute node.

    Parameters
    ----------
    direct : SharedPlacement
        Placement as computes and operators reach it, without faults.

    Attributes
    ----------
    hosts : dict
        Hosts that exist.
    report : callable
        Called once a host has changed, so that schedulers read it later.
    chosen_for_trait : Host or None
        The host of the last answer to a request that requires `TRAIT`.
    """

    def __init__(
        self,
        direct: SharedPlacement,
        virtual: VirtualTime,
        rng: random.Random,
        log: EventLog,
    ) -> None:
        self.hosts: dict[str, Host] = {}
        self.report: Callable[[], object] = lambda: None
        self.chosen_for_trait: Host | None = None
        self._direct = direct
        self._virtual = virtual
        self._rng = rng
        self._log = log
        self._n_hosts = 0
        self._forgotten_at: dict[str, float] = {}

    def add(self) -> Host:
        """Add a host to nova and to Placement."""
        self._n_hosts += 1
        added = Host(_record(self._n_hosts))
        self._list(added)
        self._log.name(added.record.uuid, added.record.host)
        return added

    def _list(self, host: Host) -> None:
        seed(PlacementClient(self._direct), [_provider(host)])
        self.hosts[host.record.uuid] = host

    def named(self, name: str) -> Host | None:
        """Return the host of that name; None: it is gone."""
        found = (each for each in self.hosts.values() if each.record.host == name)
        return next(found, None)

    def forgotten_at(self, name: str) -> float:
        """Return until when schedulers may have dropped a host, with its claims."""
        return self._forgotten_at.get(name, -_NEVER)

    # -- changes, each for a while -----------------------------------------------------

    def grow(self) -> None:
        """Add a host while schedulers run."""
        self._log.add(f"{self.add().record.host} is added", Kind.HOST_ADDED)
        self.report()

    def remove(self) -> None:
        """Remove a host that has no instances, and add it again, maybe."""
        empty = [
            each
            for each in self.hosts.values()
            if not self._used(each, "VCPU", "PCPU") and each.unusable_since == _NEVER
        ]
        if not empty or len(self.hosts) == 1:
            return
        host = self._rng.choice(empty)
        uuid, name = host.record.uuid, host.record.host
        del self.hosts[uuid]
        self._forgotten_at[name] = _NEVER
        self._log.add(f"{name} is removed", Kind.HOST_REMOVED)
        self.report()
        # Schedulers have its candidates longer than Placement has its provider.
        self._virtual.sleep(self._rng.choice([0.0, 0.5, 2 * REPORTED_S]))
        url = f"/resource_providers/{uuid}"
        answer = self._direct.delete(url, headers=_HEADERS, raise_exc=False)
        is_in_use = answer.status_code == 409
        if not is_in_use:
            self._virtual.sleep(self._rng.uniform(*_CHANGED_S))
        self._log.add(f"{name} is there again")
        self._list(host)
        self._forgotten_at[name] = self._virtual.monotonic() + REPORTED_S
        self.report()

    def disable(self) -> None:
        """Have an operator disable a host for a while."""
        if (host := self._usable()) is None:
            return
        self._log.add(f"{host.record.host} is disabled", Kind.HOST_DISABLED)
        self._set_service(host, disabled=True)
        self._virtual.sleep(self._rng.uniform(0, 2))
        self._set_traits(host, host.traits | {_DISABLED})
        self._virtual.sleep(self._rng.uniform(*_CHANGED_S))
        self._set_service(host)
        self._set_traits(host, host.traits - {_DISABLED})

    def lose_trait(self) -> None:
        """Have up to half of the hosts not have a trait for a while."""
        usable = [each for each in self._all_usable() if TRAIT in each.traits]
        n_hosts = self._rng.randint(1, max(1, len(usable) // 2))
        chosen = self._rng.sample(usable, min(n_hosts, len(usable)))
        # The host that was chosen last is likely the next one, too.
        if (last := self.chosen_for_trait) in usable and last not in chosen:
            chosen.append(last)
        for each in chosen:
            self._log.add(f"{each.record.host} loses {TRAIT}", Kind.TRAIT_LOST)
            self._set_traits(each, each.traits - {TRAIT})
            each.lacks_trait_since = self._virtual.monotonic()
        self._virtual.sleep(self._rng.uniform(*_CHANGED_S))
        for each in chosen:
            each.lacks_trait_since = _NEVER
            self._set_traits(each, each.traits | {TRAIT})

    def shrink(self) -> None:
        """Have a host lose vCPUs, also those in use, for a while."""
        if (host := self._usable()) is None:
            return
        self._log.add(f"{host.record.host} shrinks", Kind.HOST_SHRUNK)
        self._set_vcpus(host, self._rng.randint(1, VCPUS_A_HOST - 1))
        self._virtual.sleep(self._rng.uniform(*_CHANGED_S))
        if host.record.uuid in self.hosts:
            self._set_vcpus(host, VCPUS_A_HOST)

    def fail(self) -> Host | None:
        """Have a host be down; return it."""
        if (host := self._usable()) is not None:
            self._log.add(f"{host.record.host} is down", Kind.HOST_DOWN)
            self._set_service(host, forced_down=True)
            self._virtual.sleep(self._rng.uniform(0, 2 * REPORTED_S))
        return host

    def recover(self, host: Host) -> None:
        """Have a host be up again."""
        self._log.add(f"{host.record.host} is up again")
        self._set_service(host)

    def _usable(self) -> Host | None:
        usable = self._all_usable()
        return self._rng.choice(usable) if len(usable) > 1 else None

    def _all_usable(self) -> list[Host]:
        return [
            each
            for each in self.hosts.values()
            if each.unusable_since == _NEVER and each.n_vcpus == VCPUS_A_HOST
        ]

    def _set_service(
        self, host: Host, *, disabled: bool = False, forced_down: bool = False
    ) -> None:
        host.record = dataclasses.replace(
            host.record, disabled=disabled, forced_down=forced_down
        )
        is_unusable = disabled or forced_down
        host.unusable_since = self._virtual.monotonic() if is_unusable else _NEVER
        self.report()

    def _set_traits(self, host: Host, traits: frozenset[str]) -> None:
        host.traits = traits
        self._put(host, "traits", {"traits": sorted(traits)})

    def _set_vcpus(self, host: Host, n_vcpus: int) -> None:
        host.n_vcpus = n_vcpus
        host.most_in_use = max(n_vcpus, self._used(host, "VCPU"))
        host.record = dataclasses.replace(host.record, vcpus_total=n_vcpus)
        inventories = dict(_provider(host).inventories)
        self._put(host, "inventories", {"inventories": inventories})
        self.report()

    def _used(self, host: Host, *names: str) -> int:
        url = f"/resource_providers/{host.record.uuid}/usages"
        used = self._direct.get(url, headers=_HEADERS).json()["usages"]
        return sum(used[name] for name in names)

    def _put(self, host: Host, part: str, body: dict[str, Any]) -> None:
        url = f"/resource_providers/{host.record.uuid}/{part}"
        read = self._direct.get(url, headers=_HEADERS, raise_exc=False)
        if read.status_code == 404:
            return
        generation = "resource_provider_generation"
        body[generation] = read.json()[generation]
        self._direct.put(url, json=body, headers=_HEADERS)


class ReportedSource(BaseHostSource):
    """What one scheduler has read of the hosts, and evidence of where instances are.

    Parameters
    ----------
    locate : callable
        Returns where an instance is.
    reported : callable
        Returns the instances that each host reports, by its name.
    devices : callable
        Returns the NUMA cells and PCI devices that a host reports, by its name.
    may_poll : bool
        Whether a scheduler that finds no host reads the hosts at once, and the state of
        a compute service before a claim.
    """

    def __init__(
        self,
        cloud: Cloud,
        *,
        locate: Callable[[str], Any],
        reported: Callable[[], Mapping[str, Sequence[str]]],
        devices: Callable[[str], tuple[HostTopology, HostPools]],
        may_poll: bool,
    ) -> None:
        super().__init__()
        self._cloud = cloud
        self._locate = locate
        self._reported = reported
        self._devices = devices
        self._may_poll = may_poll
        self._read: dict[str, tuple[HostRecord, Sequence[str]]] = {}

    def start(self, table: HostTable) -> None:
        """Fill the table."""
        self.read(table)

    def poll(self, table: HostTable) -> bool:
        """Read the hosts at once, where the source can."""
        if self._may_poll:
            self.read(table)
        return self._may_poll

    def read(self, table: HostTable, *, is_complete: bool = False) -> None:
        """Read every host that has changed, or every one."""
        instances = self._reported()
        for uuid in [u for u in self._read if u not in self._cloud.hosts]:
            del self._read[uuid]
            table.drop(uuid)
        for record in self._records(instances):
            on_host = instances.get(record.host, ())
            if is_complete or self._read.get(record.uuid) != (record, on_host):
                self._read[record.uuid] = record, on_host
                table.put(record, on_host)

    def _records(self, instances: Mapping[str, Sequence[str]]) -> Iterator[HostRecord]:
        for each in self._cloud.hosts.values():
            on_host = instances.get(each.record.host, ())
            n_instances = len(on_host)
            topology, pools = self._devices(each.record.host)
            yield dataclasses.replace(
                each.record,
                free_ram_mb=_RAM_MB - 1024 * n_instances,
                num_instances=n_instances,
                numa_topology=topology,
                pci_stats=pools,
            )

    def service_states(
        self, hosts: Collection[ServiceHost]
    ) -> Mapping[ServiceHost, ServiceState]:
        """Return the states of compute services at once, where the source can."""
        records = {
            (each.record.cell_uuid, each.record.host): each.record
            for each in self._cloud.hosts.values()
            if self._may_poll
        }
        return {
            each: ServiceState(records[each].disabled, records[each].forced_down)
            for each in hosts
            if each in records
        }

    def locate_instance(self, instance_uuid: str) -> Any:
        """Return where the conductor has an instance."""
        return self._locate(instance_uuid)


def _record(number: int) -> HostRecord:
    return host(
        host=f"h{number}",
        places=((LEVEL, f"r{(number - 1) // HOSTS_A_RACK + 1}"),),
        vcpus_total=VCPUS_A_HOST,
        vcpus_used=0,
        total_usable_ram_mb=_RAM_MB,
        free_ram_mb=_RAM_MB,
        total_usable_disk_gb=_DISK_GB,
        free_disk_mb=_DISK_GB * 1024,
        disk_mb_used=0,
    )


def _provider(host: Host) -> Provider:
    """Return a host as Placement knows it."""
    totals = {
        "VCPU": host.n_vcpus,
        "PCPU": PCPUS_A_HOST,
        "MEMORY_MB": _RAM_MB,
        "DISK_GB": _DISK_GB,
    }
    return Provider(
        uuid=host.record.uuid,
        name=host.record.host,
        inventories={
            name: {"total": total, "max_unit": total} for name, total in totals.items()
        },
        traits=host.traits,
    )
