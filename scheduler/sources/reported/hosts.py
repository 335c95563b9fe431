# SPDX-License-Identifier: Apache-2.0
"""The state of the reported hosts, which their reports change, and the host table."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol

from ....objects import MalformedObject, ReportKind, report_data
from ...hosts import HostRecord, HostTable, ImageProperties, UnreportedClaim
from ...hosts.columns import read_count, read_uuid, read_uuids
from ...instances import InstanceLocation, InstanceState
from ..report_columns import (
    IDENTITY,
    RefusedReport,
    read_columns,
    read_field,
    read_record,
    reported_name,
    serializable,
)
from ..report_images import IMAGE_PROPERTIES, read_image_properties
from .refusals import Refusals
from .revisions import (
    ReportedNode,
    ReportStatus,
    Route,
    classify_delta,
    classify_report,
)
from .table_update import TableUpdate

LOG = logging.getLogger(__name__)

#: Seconds after which `seen_at` is stored even if nothing else has changed.
_STORED_WITHIN_S: Final = 20.0
#: Most deleted instances that are remembered; of more, only the newest.
_MAX_DELETED: Final = 100_000


class MissingReports(Protocol):
    """Requests or collects the whole reports that are missing."""

    def request(self, node_uuid: str, topic: str | None, server: str | None) -> None:
        """Request a node's whole report; agents without a topic accept no requests."""

    def discard(self, node_uuid: str) -> None:
        """Stop waiting for a node's report: it was received, or the node is gone."""


class ReceivedReport(NamedTuple):
    """A report or delta in wire format.

    Attributes
    ----------
    received_at : float
        Seconds since the epoch.
    origin : str
        Topic, partition and offset of the report, for log lines; "": the report came
        by a message bus.
    partition : (str, int) or None
        Topic and number of the partition that the report was read from; None: the
        report came by a message bus.
    """

    report: object
    received_at: float
    origin: str = ""
    partition: tuple[str, int] | None = None


@dataclass(slots=True)
class ReportCounts:
    """The number of messages since the start, by outcome.

    Attributes
    ----------
    whole, deltas : int
        Whole reports and deltas that were applied.
    old : int
        Messages that are older than the known state.
    gaps : int
        Deltas that were not applied, as a report before them is missing.
    refused : int
        Invalid messages.
    """

    whole: int = 0
    deltas: int = 0
    alive: int = 0
    old: int = 0
    gaps: int = 0
    refused: int = 0


class ReportedHosts:
    """Build the state of hosts from reports, and write it to the table; thread-safe.

    Parameters
    ----------
    table : HostTable
    requester : MissingReports
        Requests or collects missing whole reports.
    clock : callable
        Returns now, seconds since the epoch.
    mark_changed : callable
        Called with the UUIDs of nodes whose state must be stored.
    forget_after_s : float
        Seconds of silence after which a host is forgotten; 0: never.
    """

    def __init__(
        self,
        table: HostTable,
        requester: MissingReports,
        clock: Callable[[], float],
        mark_changed: Callable[[Iterable[str]], object],
        forget_after_s: float = 0.0,
    ) -> None:
        self._table = table
        self._requester = requester
        self._clock = clock
        self._mark_changed = mark_changed
        self._forget_after_s = forget_after_s
        self._lock = threading.RLock()
        self._nodes: dict[str, ReportedNode] = {}
        #: UUIDs of the nodes of each service host.
        self._uuids_of: defaultdict[str, set[str]] = defaultdict(set)
        #: Why an operator has disabled service hosts.
        self._disabled: Mapping[str, str] = {}
        #: Claims whose instances had been reported at the last check.
        self._reported_claims: set[UnreportedClaim] = set()
        self._checked_at = 0.0
        #: Instances that were reported as deleted.
        self._deleted: OrderedDict[str, None] = OrderedDict()
        self.counts = ReportCounts()
        self.refusals = Refusals(forget_after_s)
        #: When the newest message of any host was received; None: no message was.
        self.last_report_at: float | None = None
        #: When the newest message of a relay was applied; None: no message was.
        self.last_relayed_at: float | None = None

    def __len__(self) -> int:
        return len(self._nodes)

    def forget_cutoff(self) -> float:
        """Return a time; hosts whose last report is older are forgotten."""
        return self._clock() - self._forget_after_s

    # -- reports -------------------------------------------------------------------

    def apply(self, reports: Iterable[object]) -> None:
        """Apply reports and deltas in wire format that were received now, in order.

        An invalid report is refused as a whole, logged and counted; all other reports
        are applied.
        """
        now = self._clock()
        self.apply_received(ReceivedReport(report, now) for report in reports)

    def apply_received(self, reports: Iterable[ReceivedReport]) -> None:
        """Apply reports that were received at any time until now, as `apply` does."""
        with self._lock:
            now = self._clock()
            batch = TableUpdate(now, applied_at=now)
            try:
                for received in reports:
                    batch.now = min(received.received_at, now)
                    batch.partition = received.partition
                    self._apply(received, batch)
            finally:
                # Also after an error the table must match the known state.
                self._write(batch)

    def _apply(self, received: ReceivedReport, batch: TableUpdate) -> None:
        try:
            kind, data = report_data(received.report)
            if "seen_at" in data:
                self.last_relayed_at = batch.applied_at
            apply = (
                self._apply_report if kind is ReportKind.WHOLE else self._apply_delta
            )
            deleted: Sequence[str] = ()
            if data.get("instances_deleted"):
                name = reported_name(data)
                deleted = read_field(data, "instances_deleted", read_uuids, name)
            apply(data, batch)
            self.mark_deleted(deleted)
        except (RefusedReport, MalformedObject, RecursionError) as e:
            self.counts.refused += 1
            self.refusals.add(e, batch.now, received.origin)

    def _apply_report(self, data: dict[str, Any], batch: TableUpdate) -> None:
        name = reported_name(data)
        uuid, incarnation, revision = _numbered(data, name)
        node = self._nodes.get(uuid)
        status = classify_report(node, incarnation, revision)
        if status is ReportStatus.OUTDATED:
            self.counts.old += 1
            return
        if status is ReportStatus.UNCHANGED:
            self._mark_alive(uuid, batch)
            self.counts.alive += 1
        else:
            if node is not None and node.is_continued_by(incarnation, data):
                self._update(uuid, node, data, batch)
                node.revision = revision
            else:
                self._replace(uuid, incarnation, revision, data, batch)
            self.counts.whole += 1
        self._requester.discard(uuid)
        self.refusals.clear(name, uuid)

    def _update(
        self,
        uuid: str,
        node: ReportedNode,
        data: Mapping[str, Any],
        batch: TableUpdate,
    ) -> None:
        """Apply the differences between a whole report and the known state of its node.

        Reading the whole report would take 3 times as long. A value that equals the
        known one, and has its type, is valid: the known value was validated.
        """
        known_values = node.data
        changes = {
            name: value
            for name, value in data.items()
            if name not in known_values
            or known_values[name] != value
            or type(known_values[name]) is not type(value)  # 1 is no boolean
        }
        instances = _read_instances(data, node)
        added, removed = instances - node.instances, node.instances - instances
        images = _read_images(data, node.host)
        self._change(uuid, node, changes, added, removed, images, batch)
        node.image_properties = images
        # Also if no instance changed: claims may have changed the host's instances in
        # the table, and may be for instances that the host already had.
        batch.hosts.add(node.host)
        node.is_relayed = "seen_at" in data
        batch.added[uuid].update(_included(node, instances))
        self._mark_alive(uuid, batch)

    def _replace(
        self,
        uuid: str,
        incarnation: str,
        revision: int,
        data: Mapping[str, Any],
        batch: TableUpdate,
    ) -> None:
        """Apply the whole report of a new node, or of an agent that restarted."""
        node = self._nodes.get(uuid)
        seen_at = batch.now if node is None else _seen_at(node, batch)
        record = read_record(data, seen_at, self._table.columns)
        instances = set(read_field(data, "instances", read_uuids, record.host))
        images = _read_images(data, record.host)
        if node is not None:
            batch.hosts.add(node.host)  # the node may have had another host name
        values = {**serializable(data, self._table.columns), "uuid": uuid}
        new_node = ReportedNode(
            incarnation,
            revision,
            values,
            instances,
            seen_at,
            is_relayed="seen_at" in data,
            image_properties=images,
        )
        self._set_node(record, new_node)
        if batch.partition is not None:
            new_node.note_partition(batch.partition)
        batch.replace(record)
        batch.images.update(images)
        self._note_report(batch)

    def _set_node(self, record: HostRecord, node: ReportedNode) -> None:
        before = self._nodes.get(record.uuid)
        if before is not None:
            node.succeed(before)
            self._uuids_of[before.host].discard(record.uuid)
        self._nodes[record.uuid] = node
        self._uuids_of[record.host].add(record.uuid)

    def _note_report(self, batch: TableUpdate) -> None:
        """Set `last_report_at`, unless a newer report was received before."""
        newest = self.last_report_at
        if newest is None or not batch.now <= newest <= batch.applied_at:
            self.last_report_at = batch.now

    def _apply_delta(self, data: dict[str, Any], batch: TableUpdate) -> None:
        uuid: Any = data.get("uuid")
        node = self._nodes.get(uuid) if type(uuid) is str else None
        if node is None:
            name = reported_name(data)
            uuid, incarnation, revision = _numbered(data, name)
            node = self._nodes.get(uuid)
        else:  # the fast path: the node is known, so its name needs no validation
            name = node.host
            incarnation = str(data.get("incarnation")).lower()
            revision = read_field(data, "revision", read_count, name)
        since = read_field(data, "since", read_count, name)
        status = classify_delta(node, incarnation, since, revision)
        if status is ReportStatus.NEW:
            assert node is not None
            self._apply_changes(uuid, node, data, batch)
            node.revision = revision
            self.counts.deltas += 1
        elif status is ReportStatus.UNCHANGED:
            self.counts.alive += 1
        elif status is ReportStatus.GAP:
            self._request_whole(uuid, data)
        elif status is ReportStatus.OUTDATED:
            self.counts.old += 1
            return
        if node is not None:
            self._mark_alive(uuid, batch)
            if status is not ReportStatus.GAP:
                self.refusals.clear(name, uuid)

    def _apply_changes(
        self,
        uuid: str,
        node: ReportedNode,
        data: Mapping[str, Any],
        batch: TableUpdate,
    ) -> None:
        """Apply the changes of a delta."""
        host = node.host
        reported: Any = data.get("changes") or {}
        if type(reported) is not dict:
            raise RefusedReport(host, "changes: values by column are needed")
        added: Sequence[str] = ()
        removed: Sequence[str] = ()
        if data.get("instances_added"):
            added = read_field(data, "instances_added", read_uuids, host)
        if data.get("instances_removed"):
            removed = read_field(data, "instances_removed", read_uuids, host)
        images = _read_images(data, host)
        self._change(uuid, node, reported, added, removed, images, batch)

    def _change(
        self,
        uuid: str,
        node: ReportedNode,
        reported: Mapping[str, Any],
        added: Collection[str],
        removed: Collection[str],
        images: Mapping[str, ImageProperties],
        batch: TableUpdate,
    ) -> None:
        """Change columns and instances of a node, after validating all of them."""
        host = node.host
        values = read_columns(reported, host, self._table.columns, IDENTITY)
        new_data = serializable(reported, self._table.columns)
        if uuid in batch.records:
            self._write(batch)
        node.data.update(new_data)
        if added or removed:
            node.instances.difference_update(removed)
            node.instances.update(added)
            batch.hosts.add(host)
        batch.added[uuid].update(_included(node, added))
        node.image_properties.update(images)
        batch.images.update(images)
        for instance in removed:
            node.image_properties.pop(instance, None)
        batch.change(uuid, values)

    def _mark_alive(self, uuid: str, batch: TableUpdate) -> None:
        node = self._nodes[uuid]
        node.seen_at = _seen_at(node, batch)
        if batch.partition is not None:
            node.note_partition(batch.partition)
        self._note_report(batch)
        batch.mark_seen(uuid, node.seen_at)
        if node.seen_at - node.stored_at > _STORED_WITHIN_S:
            batch.unsaved.add(uuid)

    def _request_whole(self, uuid: str, data: Mapping[str, Any]) -> None:
        self.counts.gaps += 1
        topic, server = data.get("reply_topic"), data.get("reply_server")
        if type(topic) is str and type(server) is str:
            self._requester.request(uuid, topic, server)
        else:
            self._requester.request(uuid, None, None)

    def _write(self, batch: TableUpdate) -> None:
        """Write a batch to the table, mark its nodes to be stored, and clear it."""
        if self._disabled:
            self._keep_disabled(batch)
        batch.write_to(self._table, self._instances)
        if batch.unsaved:
            self._mark_changed(batch.unsaved)
        batch.clear()

    def set_disabled(self, hosts: Mapping[str, str]) -> None:
        """Disable these service hosts, whatever they report, and no others.

        Parameters
        ----------
        hosts : mapping
            Why they are disabled, by service host.
        """
        with self._lock:
            before, self._disabled = self._disabled, hosts
            changed = {host for host, _ in before.items() ^ hosts.items()}
            changes = {
                uuid: self._disabling(self._nodes[uuid])
                for host in changed
                for uuid in self._uuids_of.get(host, ())
            }
            if changes:
                self._table.change_many(changes)
        for host in sorted(changed):
            if host in hosts:
                LOG.info("Host '%s' is disabled by an operator", host)
            else:
                LOG.info("Host '%s' is no longer disabled by an operator", host)

    def _disabling(self, node: ReportedNode) -> dict[str, Any]:
        """Return whether a node is disabled, by an operator or its agent, and why."""
        if node.host in self._disabled:
            reason: str | None = self._disabled[node.host]
            return {"disabled": True, "disabled_reason": reason}
        reason = node.data.get("disabled_reason")
        is_disabled = bool(node.data.get("disabled"))
        return {"disabled": is_disabled, "disabled_reason": reason}

    def _keep_disabled(self, batch: TableUpdate) -> None:
        """Disable the nodes of a batch whose hosts an operator has disabled."""
        for uuid, record in batch.records.items():
            if record.host in self._disabled:
                reason = self._disabled[record.host]
                batch.records[uuid] = replace(
                    record, disabled=True, disabled_reason=reason
                )
        for uuid, changes in batch.changes.items():
            is_changed = not changes.keys().isdisjoint(("disabled", "disabled_reason"))
            if is_changed and uuid in self._nodes:
                changes.update(self._disabling(self._nodes[uuid]))

    def _instances(self, host: str) -> set[str]:
        """Return the instances of all nodes of a service host."""
        nodes = self._uuids_of[host]
        return set().union(*(self._nodes[node].instances for node in nodes))

    # -- storage and expiry --------------------------------------------------------

    def restore(self, stored: Sequence[tuple[ReportedNode, HostRecord]]) -> int:
        """Put stored hosts into the table, except those already known.

        The time in which no scheduler was running does not count as silence: the
        silence of a host ends with the newest stored report of any host. A host that
        was silent for longer than `forget_after_s` is left out.

        Returns
        -------
        int
            The number of hosts restored.
        """
        now = self._clock()
        for node, _ in stored:
            # The clock of the scheduler that stored it may have been ahead of ours.
            node.seen_at = min(node.seen_at, now)
        last_report_at = max((node.seen_at for node, _ in stored), default=now)
        records = []
        images: dict[str, ImageProperties] = {}
        with self._lock:
            shift = now - last_report_at
            for node, record in stored:
                if record.uuid in self._nodes or self._is_lost(node, last_report_at):
                    continue
                node.seen_at += shift
                self._set_node(record, node)
                images.update(node.image_properties)
                changes = self._disabling(node)
                records.append(replace(record, last_seen_up=node.seen_at, **changes))
            hosts = {record.host for record in records}
            self._table.put_many(records, {h: self._instances(h) for h in hosts})
            self._table.set_image_properties(images)
        return len(records)

    def _is_lost(self, node: ReportedNode, now: float) -> bool:
        is_bounded = bool(self._forget_after_s) and not node.is_relayed
        return is_bounded and node.seen_at < now - self._forget_after_s

    def mark_deleted(self, instance_uuids: Iterable[str]) -> None:
        """Remember that these instances were deleted for good."""
        with self._lock:
            for uuid in instance_uuids:
                self._deleted[uuid] = None
                self._deleted.move_to_end(uuid)
            while len(self._deleted) > _MAX_DELETED:
                self._deleted.popitem(last=False)

    def locate(self, instance_uuid: str) -> InstanceLocation:
        """Return the hosts that reported an instance, or that it was deleted.

        Any other instance is pending: its host may still build it, or be silent.
        """
        with self._lock:
            nodes = self._nodes.values()
            hosts = [node.host for node in nodes if instance_uuid in node.instances]
            is_deleted = instance_uuid in self._deleted
        if hosts:
            host, *others = hosts
            return InstanceLocation(InstanceState.ON_HOST, host, also_on=tuple(others))
        state = InstanceState.GONE if is_deleted else InstanceState.PENDING
        return InstanceLocation(state)

    def forget_lost(self, silent_at: float | None = None) -> list[str]:
        """Drop the nodes that were silent for too long; return their UUIDs.

        Refusals of reports expire after the same time; refusals of unknown hosts expire
        sooner, as no later valid report can clear them.

        Parameters
        ----------
        silent_at : float, optional
            Until when reports could be received, seconds since the epoch; by default
            until now.
        """
        now = self._clock()
        until = now if silent_at is None else silent_at
        with self._lock:
            self.refusals.expire(now, self._is_known)
            nodes = self._nodes.items()
            lost = {u: node.host for u, node in nodes if self._is_lost(node, until)}
            self._drop(lost)
        for uuid, host in lost.items():
            LOG.warning(
                "Host '%s' (%s) is forgotten: it sent no report for %.0f s",
                host,
                uuid,
                self._forget_after_s,
            )
        return list(lost)

    def _is_known(self, name: str) -> bool:
        return name in self._nodes or bool(self._uuids_of.get(name))

    def _drop(self, host_by_uuid: Mapping[str, str]) -> None:
        """Drop nodes, and their instances from the table."""
        for uuid, host in host_by_uuid.items():
            del self._nodes[uuid]
            self._uuids_of[host].discard(uuid)
            self._requester.discard(uuid)
        if host_by_uuid:
            self._table.drop_many(host_by_uuid)
            hosts = set(host_by_uuid.values())
            self._table.set_instances_of({h: self._instances(h) for h in hosts})
            for host in hosts:
                if not self._uuids_of[host]:
                    del self._uuids_of[host]

    def remove(self, node_uuid: str) -> bool:
        """Drop a node, as its removal was published; return whether it was known."""
        with self._lock:
            node = self._nodes.get(node_uuid)
            if node is not None:
                self._drop({node_uuid: node.host})
        if node is not None:
            LOG.info("Host '%s' (%s) is removed", node.host, node_uuid)
        return node is not None

    def newest_relayed(self) -> float | None:
        """Return when any host behind a relay was last seen; None: there is none."""
        with self._lock:
            seen_at = (n.seen_at for n in self._nodes.values() if n.is_relayed)
            return max(seen_at, default=None)

    def routes(self) -> set[Route]:
        """Return the routes of all nodes."""
        with self._lock:
            return {node.route for node in self._nodes.values()}

    def shorten_silence(self, seconds: Mapping[Route, float]) -> None:
        """Do not count seconds in which no report of some hosts could be received.

        Parameters
        ----------
        seconds : mapping
            By the route of the hosts; hosts of other routes are not changed.
        """
        with self._lock:
            now = self._clock()
            changes = {}
            for uuid, node in self._nodes.items():
                if node.route not in seconds:
                    continue
                node.seen_at = min(node.seen_at + seconds[node.route], now)
                changes[uuid] = {"last_seen_up": node.seen_at}
            self._table.change_many(changes)

    def end_reported_claims(self) -> None:
        """Release the claims whose instances are already in their hosts' reports.

        Another scheduler's claim may be received only after the host has reported the
        instance. A claim on a host that already has the instance, as at a resize to the
        same host, must not be released before the host reports again. So a claim is
        released once two checks found its instance reported, and the host has reported
        in between.
        """
        now = self._clock()
        with self._lock:
            reported_claims: set[UnreportedClaim] = set()
            for claim in self._table.claims.unreported():
                node = self._nodes.get(claim.node_uuid)
                if node is None or claim.instance_uuid not in node.instances:
                    continue
                if claim in self._reported_claims and node.seen_at > self._checked_at:
                    self._table.claims.mark_reported(
                        claim.node_uuid, [claim.instance_uuid]
                    )
                else:
                    reported_claims.add(claim)
            self._reported_claims, self._checked_at = reported_claims, now

    def snapshot(self, node_uuids: Iterable[str]) -> dict[str, ReportedNode]:
        """Return copies of the state of these nodes; column values are shared."""
        with self._lock:
            nodes = {uuid: self._nodes.get(uuid) for uuid in node_uuids}
            return {
                uuid: replace(
                    node,
                    data=dict(node.data),
                    instances=set(node.instances),
                    image_properties=dict(node.image_properties),
                )
                for uuid, node in nodes.items()
                if node is not None
            }

    def mark_stored(self, stored: Mapping[str, ReportedNode]) -> None:
        """Record that these states were written to the store."""
        with self._lock:
            for uuid, copy in stored.items():
                node = self._nodes.get(uuid)
                if node is not None:
                    node.stored_at = copy.seen_at


def _included(node: ReportedNode, instances: Collection[str]) -> Collection[str]:
    """Return the reported instances that the node's row, as reported, includes.

    An agent reads both at once. A relay reads nova's databases, where nova-compute
    names an instance's host before it writes its node's row: that includes them once it
    counts as many. A claim that no row counts ends by its age.
    """
    if not node.is_relayed:
        return instances
    is_complete = node.data.get("num_instances", 0) >= len(node.instances)
    return node.instances if is_complete else ()


def _seen_at(node: ReportedNode, batch: TableUpdate) -> float:
    """Return when a node was last seen, even if this report is older."""
    return max(batch.now, min(node.seen_at, batch.applied_at))


def _read_instances(data: Mapping[str, Any], node: ReportedNode) -> set[str]:
    """Return a whole report's instances; instances already known are valid."""
    reported, known = data.get("instances"), set[str]()
    if type(reported) is list:
        with contextlib.suppress(TypeError):  # an item is no text: refused below
            known = node.instances.intersection(reported)
            data = {"instances": [uuid for uuid in reported if uuid not in known]}
    return known | set(read_field(data, "instances", read_uuids, node.host))


def _read_images(data: Mapping[str, Any], name: str) -> dict[str, ImageProperties]:
    if not data.get(IMAGE_PROPERTIES):
        return {}
    return read_field(data, IMAGE_PROPERTIES, read_image_properties, name)


def _numbered(data: Mapping[str, Any], name: str) -> tuple[str, str, int]:
    """Return the UUID, the incarnation and the revision of a report."""
    return (
        read_field(data, "uuid", read_uuid, name),
        read_field(data, "incarnation", read_uuid, name),
        read_field(data, "revision", read_count, name),
    )
