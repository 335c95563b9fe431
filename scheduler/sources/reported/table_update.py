# SPDX-License-Identifier: Apache-2.0
"""The changes of the host table by some reports, collected to be written at once."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...hosts import HostRecord, HostTable, ImageProperties


@dataclass(slots=True)
class TableUpdate:
    """The changes of the host table by some reports, to be written at once.

    Attributes
    ----------
    now : float
        When the report that is being applied was received.
    applied_at : float
        When the reports are applied.
    partition : (str, int) or None
        The partition that the report that is being applied was read from; see
        `ReceivedReport`.
    """

    now: float
    applied_at: float
    partition: tuple[str, int] | None = None
    records: dict[str, HostRecord] = field(default_factory=dict)
    changes: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Hosts whose instances changed, and the added instances by node.
    hosts: set[str] = field(default_factory=set)
    added: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    #: Image properties by instance.
    images: dict[str, ImageProperties] = field(default_factory=dict)
    #: Nodes that must be written to the store.
    unsaved: set[str] = field(default_factory=set)

    def replace(self, record: HostRecord) -> None:
        """Replace the row of a node by the record of its whole report."""
        self.changes.pop(record.uuid, None)
        self.added.pop(record.uuid, None)
        self.records[record.uuid] = record
        self.hosts.add(record.host)
        self.unsaved.add(record.uuid)

    def change(self, node_uuid: str, values: dict[str, Any]) -> None:
        """Change some columns of a node that has no record in `records`."""
        self.changes.setdefault(node_uuid, {}).update(values)
        self.unsaved.add(node_uuid)

    def mark_seen(self, node_uuid: str, seen_at: float) -> None:
        """Set when a node was last seen, seconds since the epoch."""
        record = self.records.get(node_uuid)
        if record is None:
            self.changes.setdefault(node_uuid, {})["last_seen_up"] = seen_at
        elif record.last_seen_up != seen_at:
            self.records[node_uuid] = dataclasses.replace(record, last_seen_up=seen_at)

    def write_to(
        self, table: HostTable, instances_of: Callable[[str], set[str]]
    ) -> None:
        """Write the collected changes to the table.

        Parameters
        ----------
        instances_of : callable
            Returns all instances of a service host.
        """
        hosts = {record.host for record in self.records.values()}
        if hosts:
            instances = {host: instances_of(host) for host in hosts}
            table.put_many(self.records.values(), instances)
        if self.changes:
            table.change_many(self.changes)
        if hosts_without_record := self.hosts - hosts:
            table.set_instances_of(
                {host: instances_of(host) for host in hosts_without_record}
            )
        if self.images:
            table.set_image_properties(self.images)
        for uuid, added in self.added.items():
            table.claims.mark_reported(uuid, added)

    def clear(self) -> None:
        """Remove all collected changes."""
        self.records.clear()
        self.changes.clear()
        self.hosts.clear()
        self.added.clear()
        self.images.clear()
        self.unsaved.clear()
