# SPDX-License-Identifier: Apache-2.0
"""Merging of the rows that were read of all cells into the host table."""

from __future__ import annotations

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from operator import attrgetter, itemgetter
from typing import Any, Final, Generic, TypeVar

from ...hosts import COLUMNS, HostTable, Launches
from ...polling.times import US_PER_S
from .changes import CellChanges
from .nodes import Node
from .services import SERVICE_COLUMNS, ComputeService

LOG = logging.getLogger(__name__)

#: Seconds by which the clock that timed a row may be behind the local one.
_SKEW_S: Final = 5.0
#: Seconds in which a compute writes its usage after it accepted an instance: it writes
#: its usage next, under the same lock.
_WRITTEN_S: Final = 5.0

_NO_INSTANCES: Final[frozenset[str]] = frozenset()

#: The fields of a record that come from a row of ``compute_nodes``.
_OF_NODE: Final = tuple(
    name for name in COLUMNS if name not in (*SERVICE_COLUMNS, "launches")
)
_COLUMNS: Final = (*_OF_NODE, *SERVICE_COLUMNS, "launches")
_values_of_node = itemgetter(*_OF_NODE)
_values_of_service = attrgetter(*SERVICE_COLUMNS)
_order = attrgetter("order")

K = TypeVar("K", bound=Hashable)


class _Groups(Generic[K]):
    """Nodes by key; almost every key has one node."""

    def __init__(self) -> None:
        self._by_key: dict[K, tuple[Node, ...]] = {}

    def of(self, key: K) -> tuple[Node, ...]:
        """Return the nodes of a key."""
        return self._by_key.get(key, ())

    def last(self, key: K) -> Node | None:
        """Return the node of a key that was written last; None: the key has no node."""
        nodes = self.of(key)
        return nodes[0] if len(nodes) == 1 else max(nodes, key=_order, default=None)

    def add(self, key: K, node: Node) -> None:
        self._by_key[key] = (*self.of(key), node)

    def discard(self, key: K, node: Node) -> None:
        remaining = tuple(other for other in self.of(key) if other is not node)
        if remaining:
            self._by_key[key] = remaining
        else:
            self._by_key.pop(key, None)


class MergedCells:
    """The state that was read of all cells, and the host table's rows made of it.

    As in nova, services are merged by host over all cells, and there is one state for
    each host and node. A host that two cells have, for example while it is moved from
    one to the other, belongs to the cell that wrote it last. A node's service is that
    of its own cell; if that cell has none, that of another cell that was seen last.

    Callers must hold a common lock.
    """

    def __init__(self) -> None:
        self._nodes: defaultdict[str, dict[int, Node]] = defaultdict(dict)
        self._services: defaultdict[str, dict[int, ComputeService]] = defaultdict(dict)
        #: Services by cell and host.
        self._service_of: defaultdict[str, dict[str, ComputeService]] = defaultdict(
            dict
        )
        self._instances: defaultdict[str, dict[str, frozenset[str]]] = defaultdict(dict)
        #: Of the cells whose launches are read, by host; hosts without any are missing.
        self._launches: dict[str, dict[str, Launches | None]] = {}
        # The nodes of all cells by UUID, by `Node.names`, and by service host.
        self._of_uuid = _Groups[str]()
        self._of_names = _Groups[str | tuple[str, str]]()
        self._on_host = _Groups[str]()
        #: The nodes that are rows of the table; `Node.shown_with` has their services.
        self._shown: dict[str, Node] = {}
        #: When a poll first found a claim's instance on its host, by node and instance.
        self._found_at: dict[tuple[str, str], float] = {}
        #: Hosts for which a missing service was logged.
        self._without_service: set[str] = set()

    def n_rows(self, cell_uuid: str) -> int:
        """Return the number of compute nodes that were read of a cell."""
        return len(self._nodes.get(cell_uuid, ()))

    # -- the state of a cell -----------------------------------------------------------

    def apply(self, table: HostTable, cell_uuid: str, changes: CellChanges) -> None:
        """Apply a poll of a cell to the table, and release claims that it includes."""
        if changes.is_whole:
            changes = self._with_deletions(cell_uuid, changes)
        touched = self._update_nodes(cell_uuid, changes.nodes)
        hosts = self._update_services(cell_uuid, changes.services)
        self._write_instances(table, cell_uuid, changes.instances)
        self._update_launches(cell_uuid, changes)
        self._write(table, touched, hosts, changes.launches or ())
        self._end_reported_claims(table, cell_uuid, changes.began_at)

    def drop_cell(self, table: HostTable, cell_uuid: str) -> None:
        """Drop the state of a cell, and its rows."""
        nothing = CellChanges(0.0, True, {}, {}, {})
        self._launches.pop(cell_uuid, None)
        changes = self._with_deletions(cell_uuid, nothing)
        touched = self._update_nodes(cell_uuid, changes.nodes)
        hosts = self._update_services(cell_uuid, changes.services)
        self._write(table, touched, hosts)
        self._write_instances(table, cell_uuid, changes.instances)

    def _with_deletions(self, cell_uuid: str, changes: CellChanges) -> CellChanges:
        """Return the changes, plus deletions of all known rows that are not in them."""
        hosts = self._instances[cell_uuid]
        return dataclasses.replace(
            changes,
            nodes={**dict.fromkeys(self._nodes[cell_uuid]), **changes.nodes},
            services={**dict.fromkeys(self._services[cell_uuid]), **changes.services},
            instances={**dict.fromkeys(hosts, _NO_INSTANCES), **changes.instances},
        )

    def _update_launches(self, cell_uuid: str, changes: CellChanges) -> None:
        if changes.launches is None:
            self._launches.pop(cell_uuid, None)
            return
        known = self._launches.setdefault(cell_uuid, {})
        for host, uuids in changes.instances.items():
            known.pop(host, None)
            if uuids:
                known[host] = changes.launches.get(host)

    def _launches_of(self, node: Node) -> Launches | None:
        of_cell = self._launches.get(node.cell_uuid)
        return None if of_cell is None else of_cell.get(node.host, ())

    def _update_nodes(
        self, cell_uuid: str, nodes: Mapping[int, Node | None]
    ) -> set[str]:
        """Update a cell's nodes; return the UUIDs of nodes whose row may change."""
        nodes_by_id, names = self._nodes[cell_uuid], set[str | tuple[str, str]]()
        touched: set[str] = set()
        for node_id, node in nodes.items():
            before = nodes_by_id.pop(node_id, None)
            if before is not None:
                touched.add(before.uuid)
                names.add(before.names)
                self._of_uuid.discard(before.uuid, before)
                self._of_names.discard(before.names, before)
                self._on_host.discard(before.host, before)
            if node is not None:
                nodes_by_id[node_id] = node
                names.add(node.names)
                self._of_uuid.add(node.uuid, node)
                self._of_names.add(node.names, node)
                self._on_host.add(node.host, node)
        return touched.union(
            node.uuid for key in names for node in self._of_names.of(key)
        )

    def _update_services(
        self, cell_uuid: str, services: Mapping[int, ComputeService | None]
    ) -> set[str]:
        """Update a cell's services; return the hosts whose service changed."""
        hosts: set[str] = set()
        known, of_host = self._services[cell_uuid], self._service_of[cell_uuid]
        for service_id, service in services.items():
            before = known.pop(service_id, None)
            if before is not None:
                hosts.add(before.host)
                if of_host.get(before.host) == before:
                    del of_host[before.host]
            if service is not None:
                hosts.add(service.host)
                known[service_id] = service
        for service_id in services:
            service = known.get(service_id)
            if service is not None:
                of_host[service.host] = service
        return hosts

    # -- the rows of the table ---------------------------------------------------------

    def _write_instances(
        self, table: HostTable, cell_uuid: str, instances: Mapping[str, frozenset[str]]
    ) -> None:
        of_host = self._instances[cell_uuid]
        for host, uuids in instances.items():
            if uuids:
                of_host[host] = uuids
            else:
                of_host.pop(host, None)
        if instances:
            table.set_instances_of(
                {host: self._instances_on(host) for host in instances}
            )

    def _instances_on(self, host: str) -> frozenset[str]:
        of_cells = [
            of_host[host] for of_host in self._instances.values() if host in of_host
        ]
        return of_cells[0] if len(of_cells) == 1 else _NO_INSTANCES.union(*of_cells)

    def _write(
        self,
        table: HostTable,
        touched: Iterable[str],
        hosts: Iterable[str],
        launched_on: Iterable[str] = (),
    ) -> None:
        changes = _TableChanges()
        touched = set(touched)
        for uuid in touched:
            self._update_row(table, uuid, changes)
        for host in hosts:
            for uuid in {node.uuid for node in self._on_host.of(host)}:
                if uuid not in touched:
                    self._update_row(table, uuid, changes)
        for host in launched_on:
            for node in self._on_host.of(host):
                if self._shown.get(node.uuid) is node:
                    columns = changes.columns.setdefault(node.uuid, {})
                    columns["launches"] = self._launches_of(node)
        changes.write(table)

    def _update_row(self, table: HostTable, uuid: str, changes: _TableChanges) -> None:
        """Add to the changes how a node's row must change."""
        shown, best = self._shown.get(uuid), self._best(uuid)
        service = None if best is None else self._service(best)
        before = None if shown is None else shown.shown_with
        is_shown = best is not None and service is not None
        if shown is not None and not (shown is best and is_shown):
            # Save the values from the table: the node may become a row again.
            if shown.values is None and shown in self._of_uuid.of(uuid):
                shown.values = _shown_values(table, uuid)
            shown.shown_with = None
        if best is None or service is None:
            if shown is not None:
                del self._shown[uuid]
                changes.deleted.append(uuid)
            return
        self._shown[uuid] = best
        best.shown_with = service
        if best is not shown or best.values is not None:
            if best.values is None:
                raise RuntimeError(f"compute node {uuid} has no row to be shown again")
            changes.put(best.values, service, self._launches_of(best))
            best.values = None  # the table has them
        elif before is not None and before != service:
            changes.columns[uuid] = _difference(before, service)

    def _best(self, uuid: str) -> Node | None:
        """Return the node that a row is made of; None: there is no row."""
        best = self._of_uuid.last(uuid)
        if best is None or self._of_names.last(best.names) is not best:
            return None
        return best

    def _service(self, node: Node) -> ComputeService | None:
        service = self._service_of[node.cell_uuid].get(node.host)
        if service is None:
            of_cells = (of_host.get(node.host) for of_host in self._service_of.values())
            services = [other for other in of_cells if other is not None]
            if not services:
                self._warn_without_service(node)
                return None
            service = max(services, key=lambda s: (s.last_seen_up, s.service_version))
        self._without_service.discard(node.host)
        return service

    def _warn_without_service(self, node: Node) -> None:
        if node.host not in self._without_service:
            self._without_service.add(node.host)
            LOG.warning(
                "Compute node %s of host %s is left out: no cell has a service "
                "nova-compute of that host",
                node.nodename,
                node.host,
            )

    # -- claims ------------------------------------------------------------------------

    def _end_reported_claims(
        self, table: HostTable, cell_uuid: str, began_at: float
    ) -> None:
        """Release the claims whose instance is included in the row as read.

        A row includes an instance for certain if it was written after the instance was
        on the host: if a poll found the row changed after an earlier one had found the
        instance. If one poll found both, the row includes the instance if the row
        counts as many instances as the database has, or if the row is unchanged for
        longer than the compute needs to write it. The presence of the instance alone
        proves nothing.
        """
        waiting: dict[tuple[str, str], float] = {}
        for claim in table.claims.unreported():
            node = self._shown.get(claim.node_uuid)
            key = (claim.node_uuid, claim.instance_uuid)
            if node is None or node.cell_uuid != cell_uuid:
                if key in self._found_at:
                    waiting[key] = self._found_at[key]
                continue
            instances = self._instances[cell_uuid].get(claim.host, _NO_INSTANCES)
            if claim.instance_uuid not in instances:
                continue
            found_at = waiting[key] = self._found_at.get(key, began_at)
            written_us = node.version_us
            if (
                written_us is None
                or written_us / US_PER_S < claim.claimed_at - _SKEW_S
                or node.seen_at < claim.claimed_at
            ):
                continue
            unchanged_s = began_at - max(node.seen_at, found_at)
            if (
                found_at < node.seen_at
                or node.num_instances >= len(instances)
                or unchanged_s >= _WRITTEN_S
            ):
                table.claims.mark_reported(claim.node_uuid, [claim.instance_uuid])
                del waiting[key]
        self._found_at = waiting


class _TableChanges:
    """Changes to be written to the host table."""

    def __init__(self) -> None:
        self._nodes: list[Mapping[str, Any]] = []
        self._services: list[ComputeService] = []
        self._launches: list[Launches | None] = []
        self.columns: dict[str, dict[str, Any]] = {}
        self.deleted: list[str] = []

    def put(
        self,
        node: Mapping[str, Any],
        service: ComputeService,
        launches: Launches | None,
    ) -> None:
        """Replace a row."""
        self._nodes.append(node)
        self._services.append(service)
        self._launches.append(launches)

    def write(self, table: HostTable) -> None:
        if self.deleted:
            table.drop_many(self.deleted)
        if self._nodes:
            of_nodes = zip(*map(_values_of_node, self._nodes), strict=True)
            of_services = zip(*map(_values_of_service, self._services), strict=True)
            values = (*of_nodes, *of_services, self._launches)
            table.put_columns(dict(zip(_COLUMNS, values, strict=True)))
        if self.columns:
            unknown = table.change_many(self.columns)
            if unknown:  # the error makes the next poll read everything again
                raise RuntimeError(f"the host table has lost the rows of {unknown}")


def _shown_values(table: HostTable, node_uuid: str) -> Mapping[str, Any] | None:
    """Return a row's values of its compute node; None: there is no row."""
    record = table.as_reported(node_uuid)
    if record is None:
        return None
    return {name: getattr(record, name) for name in _OF_NODE}


def _difference(before: ComputeService, now: ComputeService) -> dict[str, Any]:
    """Return the new values of the columns that changed."""
    values = (_values_of_service(now), _values_of_service(before))
    columns = zip(SERVICE_COLUMNS, *values, strict=True)
    return {name: new for name, new, old in columns if new != old}
