# SPDX-License-Identifier: Apache-2.0
"""The host table's rows, put together of what the cells said."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from ...hosts import HostRecord, HostTable
from .changes import CellChanges, Node
from .reading import Service

LOG = logging.getLogger(__name__)

#: Seconds by which the clock of whoever wrote a row may be behind ours.
_SKEW_S: Final = 5.0
#: Seconds in which a compute that took an instance on has written its usage: it does so
#: next, under the same lock.
_WRITTEN_S: Final = 5.0
_US_PER_S: Final = 1e6

_NO_INSTANCES: Final[frozenset[str]] = frozenset()

K = TypeVar("K")
V = TypeVar("V")


@dataclasses.dataclass(frozen=True, slots=True)
class _InCell:
    """A node with the cell that it was read of."""

    cell_uuid: str
    node: Node

    @property
    def order(self) -> tuple[float, str, int]:
        """What two rows of one host are ordered by; the highest counts."""
        written = self.node.version_us
        return (
            -math.inf if written is None else written,
            self.cell_uuid,
            self.node.id,
        )


class Picture:
    """What all cells said, and which rows of the table that makes.

    nova merges services by host over all cells and has one state for each host and
    node; so has this. A host that is told of by two cells, as while it is moved from
    one to the other, is where it was written last. A node's service is that of its own
    cell, if there is one.

    Whoever calls this holds one lock.
    """

    def __init__(self) -> None:
        self._nodes: defaultdict[str, dict[int, Node]] = defaultdict(dict)
        self._services: defaultdict[str, dict[int, Service]] = defaultdict(dict)
        self._service_of: defaultdict[str, dict[str, Service]] = defaultdict(dict)
        self._instances: defaultdict[str, dict[str, frozenset[str]]] = defaultdict(dict)
        #: The same nodes by UUID, by host and node name, and the UUIDs by host.
        self._of_uuid: defaultdict[str, set[_InCell]] = defaultdict(set)
        self._of_names: defaultdict[tuple[str, str], set[_InCell]] = defaultdict(set)
        self._on_host: defaultdict[str, set[str]] = defaultdict(set)
        #: What the table's rows were made of.
        self._shown: dict[str, tuple[_InCell, Service]] = {}
        #: When a look first found the instance of a claim on its host.
        self._sightings: dict[tuple[str, str], float] = {}
        self._without_service: set[str] = set()

    def n_rows(self, cell_uuid: str) -> int:
        """Count the compute nodes that were read of a cell."""
        return len(self._nodes.get(cell_uuid, ()))

    # -- what a cell said --------------------------------------------------------------

    def apply(self, table: HostTable, cell_uuid: str, changes: CellChanges) -> None:
        """Take what a look at a cell found into the table, and settle claims."""
        if changes.is_whole:
            changes = self._completed(cell_uuid, changes)
        touched = self._take_nodes(cell_uuid, changes.nodes)
        hosts = self._take_services(cell_uuid, changes.services)
        self._write_instances(table, cell_uuid, changes.instances)
        self._write(table, touched, hosts)
        self._settle(table, cell_uuid, changes.began_at)

    def forget(self, table: HostTable, cell_uuid: str) -> None:
        """Drop all that a cell said, and its rows."""
        nothing = CellChanges(0.0, True, {}, {}, {})
        changes = self._completed(cell_uuid, nothing)
        touched = self._take_nodes(cell_uuid, changes.nodes)
        hosts = self._take_services(cell_uuid, changes.services)
        self._write(table, touched, hosts)
        self._write_instances(table, cell_uuid, changes.instances)

    def _completed(self, cell_uuid: str, changes: CellChanges) -> CellChanges:
        """Return the changes together with what is there no more."""
        hosts = [h for h, by_cell in self._instances.items() if cell_uuid in by_cell]
        return dataclasses.replace(
            changes,
            nodes={**dict.fromkeys(self._nodes[cell_uuid]), **changes.nodes},
            services={**dict.fromkeys(self._services[cell_uuid]), **changes.services},
            instances={**dict.fromkeys(hosts, _NO_INSTANCES), **changes.instances},
        )

    def _take_nodes(self, cell_uuid: str, nodes: Mapping[int, Node | None]) -> set[str]:
        """Return the UUIDs of all nodes whose row that may change."""
        touched: set[str] = set()
        kept = self._nodes[cell_uuid]
        for node_id, node in nodes.items():
            before = kept.pop(node_id, None)
            if before is not None:
                touched |= self._unlink(_InCell(cell_uuid, before))
            if node is not None:
                kept[node_id] = node
                touched |= self._link(_InCell(cell_uuid, node))
        return touched

    def _link(self, each: _InCell) -> set[str]:
        record = each.node.record
        names = (record.host, record.nodename)
        self._of_uuid[record.uuid].add(each)
        self._of_names[names].add(each)
        self._on_host[record.host].add(record.uuid)
        return {other.node.record.uuid for other in self._of_names[names]}

    def _unlink(self, each: _InCell) -> set[str]:
        record = each.node.record
        names = (record.host, record.nodename)
        touched = {other.node.record.uuid for other in self._of_names[names]}
        _discard(self._of_uuid, record.uuid, each)
        _discard(self._of_names, names, each)
        same = self._of_uuid.get(record.uuid, ())
        if not any(other.node.record.host == record.host for other in same):
            _discard(self._on_host, record.host, record.uuid)
        return touched

    def _take_services(
        self, cell_uuid: str, services: Mapping[int, Service | None]
    ) -> set[str]:
        """Return the hosts whose service changed."""
        hosts: set[str] = set()
        kept = self._services[cell_uuid]
        for service_id, service in services.items():
            before = kept.pop(service_id, None)
            if before is not None:
                hosts.add(before.host)
                if self._service_of[before.host].get(cell_uuid) == before:
                    del self._service_of[before.host][cell_uuid]
            if service is not None:
                hosts.add(service.host)
                kept[service_id] = service
        for service_id in services:
            service = kept.get(service_id)
            if service is not None:
                self._service_of[service.host][cell_uuid] = service
        return hosts

    # -- what that makes of the table --------------------------------------------------

    def _write_instances(
        self, table: HostTable, cell_uuid: str, instances: Mapping[str, frozenset[str]]
    ) -> None:
        for host, uuids in instances.items():
            if uuids:
                self._instances[host][cell_uuid] = uuids
            else:
                self._instances[host].pop(cell_uuid, None)
        told = {h: _NO_INSTANCES.union(*self._instances[h].values()) for h in instances}
        for host in instances:
            if not self._instances[host]:
                del self._instances[host]
        if told:
            table.set_instances_of(told)

    def _write(
        self, table: HostTable, touched: Iterable[str], hosts: Iterable[str]
    ) -> None:
        records, gone = [], []
        before = {uuid: self._shown.pop(uuid, None) for uuid in touched}
        for uuid, shown in before.items():
            now = self._to_show(uuid)
            if now is not None:
                self._shown[uuid] = now
                each, service = now
                records.append(row_of(each.node, service))
            elif shown is not None:
                gone.append(uuid)
        columns: dict[str, dict[str, bool | float | int]] = {}
        for host in hosts:
            for uuid in self._on_host.get(host, set()) - before.keys():
                shown, now = self._shown.pop(uuid, None), self._to_show(uuid)
                if now is not None:
                    self._shown[uuid] = now
                if now is not None and shown is not None and shown[0] == now[0]:
                    columns[uuid] = _difference(shown[1], now[1])
                elif now is not None:
                    records.append(row_of(now[0].node, now[1]))
                elif shown is not None:
                    gone.append(uuid)
        if gone:
            table.drop_many(gone)
        if records:
            table.put_many(records)
        if columns:
            for uuid in table.change_many(columns):
                each, service = self._shown[uuid]
                table.put(row_of(each.node, service))

    def _to_show(self, uuid: str) -> tuple[_InCell, Service] | None:
        """Return what a node's row is made of; None: it has none."""
        same = self._of_uuid.get(uuid)
        if not same:
            return None
        best = max(same, key=lambda each: each.order)
        names = (best.node.record.host, best.node.record.nodename)
        rivals = self._of_names[names]
        if len(rivals) > 1 and max(rivals, key=lambda each: each.order) != best:
            return None
        service = self._service(best)
        return None if service is None else (best, service)

    def _service(self, each: _InCell) -> Service | None:
        host = each.node.record.host
        by_cell = self._service_of.get(host)
        if not by_cell:
            if host not in self._without_service:
                self._without_service.add(host)
                LOG.warning(
                    "Compute node %s of host %s is left out: no cell has a service "
                    "nova-compute of that host",
                    each.node.record.nodename,
                    host,
                )
            return None
        self._without_service.discard(host)
        own = by_cell.get(each.cell_uuid)
        return own or max(by_cell.values(), key=lambda s: (s.last_seen_up, s.version))

    # -- claims ------------------------------------------------------------------------

    def _settle(self, table: HostTable, cell_uuid: str, began_at: float) -> None:
        """Give back what claims took whose instance the row as read includes.

        A row includes an instance for certain if it was written after the instance was
        on the host: if a look that saw the row change came after one that saw the
        instance. Where one look saw both come, the row includes it if it counts as many
        instances as the database has, or if it has stood for longer than the compute
        needs to write it. An instance's presence alone says nothing.
        """
        waiting: dict[tuple[str, str], float] = {}
        for claim in table.claims():
            shown = self._shown.get(claim.node_uuid)
            key = (claim.node_uuid, claim.instance_uuid)
            if shown is None or shown[0].cell_uuid != cell_uuid:
                if key in self._sightings:
                    waiting[key] = self._sightings[key]
                continue
            here = self._instances.get(claim.host, {}).get(cell_uuid, _NO_INSTANCES)
            if claim.instance_uuid not in here:
                continue
            sighted_at = waiting[key] = self._sightings.get(key, began_at)
            node = shown[0].node
            written = node.version_us
            if (
                written is None
                or written / _US_PER_S < claim.claimed_at - _SKEW_S
                or node.seen_at < claim.claimed_at
            ):
                continue
            stood_s = began_at - max(node.seen_at, sighted_at)
            if (
                sighted_at < node.seen_at
                or node.record.num_instances >= len(here)
                or stood_s >= _WRITTEN_S
            ):
                table.settle(claim.node_uuid, [claim.instance_uuid])
                del waiting[key]
        self._sightings = waiting


def row_of(node: Node, service: Service) -> HostRecord:
    """Return a row of the table."""
    return dataclasses.replace(
        node.record,
        disabled=service.disabled,
        forced_down=service.forced_down,
        last_seen_up=service.last_seen_up,
        service_version=service.version,
    )


def _difference(before: Service, now: Service) -> dict[str, bool | float | int]:
    """Return the columns that changed."""
    old = before.columns()
    return {name: v for name, v in now.columns().items() if v != old[name]}


def _discard(sets: dict[K, set[V]], key: K, value: V) -> None:
    found = sets.get(key)
    if found is not None:
        found.discard(value)
        if not found:
            del sets[key]
