# SPDX-License-Identifier: Apache-2.0
"""What instances consume, and the claims that no report of their host includes yet."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from .column_arrays import ColumnArrays, UnreportedClaim
from .fitting.need import Need, NumaPciUsage
from .instances import NO_PROPERTIES, ImageProperties, InstanceMap
from .launches import Group, Launches, with_launch, without_launch
from .numa import HostTopology
from .pci import HostPools


@dataclasses.dataclass(frozen=True, slots=True)
class Consumption:
    """The amounts of a host's columns that one instance consumes once it is claimed.

    The rule is nova's ``HostState.consume_from_request``: swap and the root disk of a
    volume-backed instance are counted as nova counts them.

    Attributes
    ----------
    io_ops : int
        1 while the instance is built, 0 once its host reports it.
    image_properties : frozenset of (property, text)
        Not an amount: the properties by which a host's instances are counted.
    need : Need or None
        What the instance needs of NUMA cells and PCI devices; None: nothing.
    group : Group or None
        Not an amount: of which group the launch is that is added to the host's; None:
        launches are not used.
    """

    memory_mb: int
    disk_mb: int
    vcpus: int
    io_ops: int = 1
    image_properties: ImageProperties = NO_PROPERTIES
    need: Need | None = None
    group: Group | None = None

    def take(
        self, topology: HostTopology | None, pools: HostPools
    ) -> NumaPciUsage | None:
        """Return the instance's usage of a host's cells and devices; None: none."""
        return None if self.need is None else self.need.take(topology, pools)

    def fits(self, topology: HostTopology | None, pools: HostPools) -> bool:
        """Return whether a host has the cells and devices that the instance needs."""
        if self.need is None:
            return True
        usage = self.take(topology, pools)
        return usage is not None and usage.is_complete

    def deltas(self) -> tuple[tuple[str, int], ...]:
        """Return (column, change) pairs."""
        return (
            ("free_ram_mb", -self.memory_mb),
            ("free_disk_mb", -self.disk_mb),
            ("vcpus_used", self.vcpus),
            ("num_instances", 1),
            ("num_io_ops", self.io_ops),
        )


@dataclasses.dataclass(slots=True)
class PendingClaim:
    """What an instance was granted, and which of the host's devices it uses.

    Attributes
    ----------
    claimed_at : float
        Seconds since the epoch, by the clock of the scheduler that claimed.
    since : float
        When the claim was reserved or granted in this process, by the monotonic clock.
    is_reserved : bool
        Whether the claim is not granted yet.
    """

    consumption: Consumption
    claimed_at: float
    since: float
    usage: NumaPciUsage | None = None
    is_reserved: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether the claim has the cells and devices that its instance needs."""
        if self.consumption.need is None:
            return True
        return self.usage is not None and self.usage.is_complete


class PendingClaims:
    """Add what claims consume to the columns of a host table, and subtract it again.

    Every node that has a claim has a row. Created by `HostTable`.

    Parameters
    ----------
    arrays : ColumnArrays
    instances : InstanceMap
        The instances of claims are added to it.
    lock : threading.RLock
        The lock of the table.
    clock : callable
        Returns now, seconds since the epoch.
    monotonic : callable
        Returns seconds since an arbitrary time.
    """

    def __init__(
        self,
        arrays: ColumnArrays,
        instances: InstanceMap,
        lock: threading.RLock,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._arrays = arrays
        self._instances = instances
        self._lock = lock
        self._clock = clock
        self._monotonic = monotonic
        #: Claims by node and instance, the oldest first; a node without any has no key.
        self._pending: dict[str, dict[str, PendingClaim]] = {}

    def copy_to(self, other: PendingClaims) -> None:
        """Give the same claims to those of a copy of the table; the lock is held."""
        other._pending = {
            # `copy.copy` takes several times as long for a dataclass with slots.
            node_uuid: {
                uuid: dataclasses.replace(claim) for uuid, claim in claims.items()
            }
            for node_uuid, claims in self._pending.items()
        }

    # -- called for claims -------------------------------------------------------------

    def consume(
        self,
        node_uuid: str,
        instance_uuid: str,
        consumption: Consumption,
        claimed_at: float | None = None,
        *,
        is_reserved: bool = False,
    ) -> None:
        """Add what an instance was granted; repeating it changes nothing.

        Nothing is added for a node without a row: its next report includes the claim.

        Parameters
        ----------
        claimed_at : float, optional
            Seconds since the epoch; now by default.
        is_reserved : bool
            Whether the claim is not granted yet; call again without it after the grant.
        """
        with self._lock:
            row = self._arrays.row_of.get(node_uuid)
            if row is None:
                return
            if pending := self._pending.get(node_uuid, {}).get(instance_uuid):
                if pending.is_reserved and not is_reserved:
                    pending.is_reserved, pending.since = False, self._monotonic()
                return
            self._arrays.revision += 1
            now = self._clock() if claimed_at is None else claimed_at
            claim = PendingClaim(
                consumption, now, self._monotonic(), is_reserved=is_reserved
            )
            self._pending.setdefault(node_uuid, {})[instance_uuid] = claim
            self._apply(row, claim)
            host = self._arrays.read("host", row)
            properties = consumption.image_properties
            self._instances.add(host, instance_uuid, properties, is_claimed=True)

    def fits(self, node_uuid: str, consumption: Consumption, since: int) -> bool:
        """Return whether a compute node still has the cells and devices for a claim.

        A node never has them while another claim on it does not fit: the node's report
        is then older than the release that made room for that other claim, and shows
        as free what the other claim took.

        Parameters
        ----------
        since : int
            The revision at which the node had them: they are checked again only if the
            row has changed since.
        """
        with self._lock:
            row = self._arrays.row_of.get(node_uuid)
            if row is None:
                return True
            if not self._all_fit(node_uuid):
                return False
            if self._arrays.read("revision", row) <= since:
                return True
            return consumption.fits(*self._devices(row))

    def consume_if_fits(
        self,
        node_uuid: str,
        instance_uuid: str,
        consumption: Consumption,
        claimed_at: float,
        since: int,
    ) -> bool:
        """Reserve what an instance needs if it still fits; see `fits`."""
        with self._lock:
            is_pending = instance_uuid in self._claims_on(node_uuid)
            if not is_pending and not self.fits(node_uuid, consumption, since):
                return False
            self.consume(
                node_uuid, instance_uuid, consumption, claimed_at, is_reserved=True
            )
            return True

    def has_place(
        self, node_uuid: str, instance_uuid: str, *, beside_all: bool = False
    ) -> bool:
        """Return whether a claim has the cells and devices that it needs.

        Claims that no report includes yet get cells and devices in the order of their
        times.

        Parameters
        ----------
        beside_all : bool
            Whether it also has them after those that were claimed later.
        """
        with self._lock:
            claims = self._claims_on(node_uuid)
            if instance_uuid not in claims:
                return True
            by_time = sorted(claims.items(), key=lambda c: (c[1].claimed_at, c[0]))
            if by_time != list(claims.items()):
                self._fit_again(node_uuid, dict(by_time))
            claim = self._claims_on(node_uuid)[instance_uuid]
            if beside_all and claim.is_complete and not self._all_fit(node_uuid):
                in_time = dict(self._claims_on(node_uuid))
                last = {uuid: c for uuid, c in by_time if uuid != instance_uuid}
                self._fit_again(node_uuid, {**last, instance_uuid: claim})
                has_place = claim.is_complete
                self._fit_again(node_uuid, in_time)
                return has_place
            return claim.is_complete

    def withdraw(self, node_uuid: str, instance_uuid: str, claimed_at: float) -> None:
        """Undo the `consume` that reserved a claim at this time, if it still counts.

        It does not once a request is granted a claim for the same instance there, in
        this process or another, or once the host has reported the instance.
        """
        with self._lock:
            claim = self._claims_on(node_uuid).get(instance_uuid)
            if claim is None or not claim.is_reserved:
                return
            if claim.claimed_at == claimed_at:
                self.release(self._host_of(node_uuid), instance_uuid)

    def release(self, host: str, instance_uuid: str) -> None:
        """Undo `consume` on a service host: the claim was released, or has ended.

        An instance without a pending claim, as after a report, is only removed from the
        host.
        """
        with self._lock:
            self._arrays.revision += 1
            self._instances.remove(host, instance_uuid)
            for row in self._arrays.where(host=[host]):
                self.mark_reported(self._arrays.read("uuid", row), [instance_uuid])

    def unreported(self) -> tuple[UnreportedClaim, ...]:
        """Return the claims that no report of their node includes yet."""
        with self._lock:
            return tuple(
                UnreportedClaim(
                    node,
                    self._host_of(node),
                    uuid,
                    claim.claimed_at,
                    claim.is_reserved,
                    claim.since,
                )
                for node, claims in self._pending.items()
                for uuid, claim in claims.items()
            )

    def is_granted(self, node_uuid: str, instance_uuid: str) -> bool:
        """Return whether an instance has a claim on a node, and not only reserved."""
        claim = self._claims_on(node_uuid).get(instance_uuid)
        return claim is not None and not claim.is_reserved

    def unreported_instances(self, instance_uuids: Collection[str]) -> list[str]:
        """Return, sorted, the instances whose hosts have not all reported them.

        On such a host, a claim was granted or reserved. Those on no host are included.
        """
        wanted, claimed = set(instance_uuids), set[str]()
        with self._lock:
            for claims in self._pending.values():
                claimed |= claims.keys() & wanted
            return sorted(
                uuid
                for uuid in wanted
                if uuid in claimed or not self._instances.hosts_of(uuid)
            )

    def mark_reported(self, node_uuid: str, instance_uuids: Iterable[str]) -> None:
        """Record that a node's row, as it was reported, includes instances' claims.

        The claims are no longer added to the reported values; the instances stay on
        the host.
        """
        with self._lock:
            if node_uuid not in self._pending:
                return
            for instance_uuid in instance_uuids:
                claim = self._pop(node_uuid, instance_uuid)
                if claim is not None:
                    self._arrays.revision += 1
                    self._revert(self._arrays.row_of[node_uuid], claim)
            if not self._all_fit(node_uuid):  # what a claim lacks may be free
                self._fit_again(node_uuid, dict(self._claims_on(node_uuid)))

    # -- called by the table, which holds the lock -------------------------------------

    @contextlib.contextmanager
    def subtracted(self, node_uuids: Collection[str]) -> Iterator[None]:
        """Subtract the claims on these nodes, and add them again after the block."""
        nodes_with_claims = self._pending.keys() & set(node_uuids)
        for node_uuid in nodes_with_claims:
            row = self._arrays.row_of[node_uuid]
            for claim in reversed(list(self._claims_on(node_uuid).values())):
                self._revert(row, claim)
        yield
        for node_uuid in nodes_with_claims:
            row = self._arrays.row_of[node_uuid]
            for claim in self._claims_on(node_uuid).values():
                self._apply(row, claim)

    def add_to_report(
        self, node_uuid: str, host: str, reported: Collection[str]
    ) -> None:
        """Add the claims on a node to its row, which was just replaced by a report.

        Parameters
        ----------
        reported : collection of str
            The instances that the report includes: their claims have ended.
        """
        for uuid in self._claims_on(node_uuid).keys() & set(reported):
            self._pop(node_uuid, uuid)
        row = self._arrays.row_of[node_uuid]
        for uuid, claim in self._claims_on(node_uuid).items():
            self._apply(row, claim)
            properties = claim.consumption.image_properties
            self._instances.add(host, uuid, properties, is_claimed=True)

    def end_builds(self, host: str, uuids: Collection[str]) -> None:
        """Subtract the I/O operations of these instances' builds."""
        for row in self._arrays.where(host=[host]):
            claims = self._claims_on(self._arrays.read("uuid", row))
            for uuid in claims.keys() & set(uuids):
                consumption = claims[uuid].consumption
                claims[uuid].consumption = dataclasses.replace(consumption, io_ops=0)
                self._arrays.add(row, [("num_io_ops", -consumption.io_ops)])

    def by_host(self) -> Mapping[str, set[str]]:
        """Return the instances with claims, by service host."""
        instances: defaultdict[str, set[str]] = defaultdict(set)
        for node_uuid, claims in self._pending.items():
            instances[self._host_of(node_uuid)] |= claims.keys()
        return instances

    def drop(self, node_uuid: str) -> None:
        """Drop the claims on a node whose row is about to be removed."""
        for uuid in [*self._claims_on(node_uuid)]:
            self._pop(node_uuid, uuid)

    def __contains__(self, node_uuid: object) -> bool:
        """Return whether a node has claims."""
        return node_uuid in self._pending

    def __bool__(self) -> bool:
        return bool(self._pending)

    # -- rows --------------------------------------------------------------------------

    def _host_of(self, node_uuid: str) -> str:
        return str(self._arrays.read("host", self._arrays.row_of[node_uuid]))

    def _claims_on(self, node_uuid: str) -> Mapping[str, PendingClaim]:
        return self._pending.get(node_uuid, {})

    def _pop(self, node_uuid: str, instance_uuid: str) -> PendingClaim | None:
        claims = self._pending.get(node_uuid, {})
        claim = claims.pop(instance_uuid, None)
        if claim is not None:
            self._instances.end_claim(self._host_of(node_uuid), instance_uuid)
        if not claims:
            self._pending.pop(node_uuid, None)
        return claim

    def _all_fit(self, node_uuid: str) -> bool:
        return all(claim.is_complete for claim in self._claims_on(node_uuid).values())

    def _fit_again(self, node_uuid: str, claims: dict[str, PendingClaim]) -> None:
        """Replace a node's claims, and choose their cells and devices in that order."""
        self._arrays.revision += 1
        with self.subtracted([node_uuid]):
            self._pending[node_uuid] = claims

    def _apply(self, row: int, claim: PendingClaim) -> None:
        """Add what a claim consumes to the row of its host."""
        self._arrays.add(row, claim.consumption.deltas())
        need = claim.consumption.need
        if need is not None:
            claim.usage = need.take(*self._devices(row))
            for name, value in claim.usage.changes() if claim.usage else ():
                self._arrays.write(name, [row], [value])
        if claim.consumption.group is not None:
            self._change_launches(row, claim, with_launch)

    def _revert(self, row: int, claim: PendingClaim) -> None:
        """Subtract what a claim consumes from the row of its host."""
        deltas = claim.consumption.deltas()
        self._arrays.add(row, [(name, -delta) for name, delta in deltas])
        if claim.usage is not None:
            for name, value in claim.usage.undone(*self._devices(row)):
                self._arrays.write(name, [row], [value])
        if claim.consumption.group is not None:
            self._change_launches(row, claim, without_launch)

    def _change_launches(
        self,
        row: int,
        claim: PendingClaim,
        change: Callable[[Launches, int, Group], Launches],
    ) -> None:
        """Add a claim's launch to a row, or remove it; where none are known, do not."""
        launches, group = self._arrays.read("launches", row), claim.consumption.group
        if launches is not None and group is not None:
            changed = change(launches, int(claim.claimed_at), group)
            self._arrays.write("launches", [row], [changed])

    def _devices(self, row: int) -> tuple[Any, Any]:
        """Return a row's NUMA cells and its pools of PCI devices."""
        read = self._arrays.read
        return read("numa_topology", row), read("pci_stats", row)
