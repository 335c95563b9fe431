# SPDX-License-Identifier: Apache-2.0
"""Messages for what the topics lack: changed reports, heartbeats and aggregates."""

from __future__ import annotations

import dataclasses
import logging
import math
import uuid
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from ...objects import Aggregate, ReportKind, report_primitive
from ..hosts import HostAggregate, HostRecord, HostTable, ImageProperties
from ..sources.base import BaseHostSource
from ..sources.report_columns import RefusedReport, read_record, report_values
from ..sources.report_images import IMAGE_PROPERTIES, write_image_properties
from .topics import KnownNode, TopicState, digest_of
from .writer import OutgoingMessage

LOG = logging.getLogger(__name__)

REPORT: Final = "report"
REMOVAL: Final = "removal"
HEARTBEAT: Final = "heartbeat"
AGGREGATE: Final = "aggregate"

#: Seconds between the heartbeats that are sent for hosts whose source has none.
_HEARTBEAT_INTERVAL_S: Final = 10.0


class _Instances(NamedTuple):
    """The instances in a node's report, and the image properties of instances."""

    uuids: frozenset[str] = frozenset()
    images: dict[str, ImageProperties] = {}  # noqa: RUF012 - never changed


_NO_INSTANCES: Final = _Instances()


class _TableNode(NamedTuple):
    """A row of the host table, and the instances in the node's report.

    Attributes
    ----------
    is_carrier : bool
        Whether this node's report has the instances of the service host. Of the nodes
        of a host, only one is the carrier.
    """

    record: HostRecord
    instances: _Instances
    is_carrier: bool

    def has_same_content(self, record: HostRecord, instances: _Instances) -> bool:
        """Return whether nothing differs except the time the host was last seen up."""
        seen_at = record.last_seen_up
        return instances == self.instances and record == dataclasses.replace(
            self.record, last_seen_up=seen_at
        )


class TableReporter:
    """Compares a host table with the topics, and returns the messages that they lack.

    The reporter assumes that the returned messages are written. If writing fails, the
    caller must create another reporter from the contents of the topics.

    Parameters
    ----------
    table : HostTable
    source : BaseHostSource
        The source that fills the table.
    state : TopicState
        The contents of the topics; the reporter updates it for each message.
    clock : callable
        Returns the current time, seconds since the epoch.
    """

    def __init__(
        self,
        table: HostTable,
        source: BaseHostSource,
        state: TopicState,
        clock: Callable[[], float],
    ) -> None:
        self._table = table
        self._source = source
        self._state = state
        self._clock = clock
        self._incarnation = str(uuid.uuid4())
        self._n_reports = 0
        #: The revision of the table at the last comparison; None: before the first one.
        self._revision: int | None = None
        self._instances_revision = -1
        #: Nodes by UUID, and aggregates by id, as they were at the last comparison.
        self._compared_nodes: dict[str, _TableNode] = {}
        self._compared_aggregates: dict[int, HostAggregate] = {}
        self._heartbeats_at = -math.inf
        #: Why nodes cannot be reported, by UUID.
        self._refused: dict[str, str] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Why hosts cannot be reported: one text for each host."""
        return tuple(self._refused.values())

    def messages(self) -> Iterator[OutgoingMessage]:
        """Return the messages for what has changed since the last call."""
        now = self._clock()
        if self._table.revision != self._revision:
            before = -1 if self._revision is None else self._revision
            # The revision is taken first: later changes are compared the next time.
            self._revision, changed = self._table.changed_since(before)
            if self._source.has_aggregates:
                yield from self._aggregate_messages()
            yield from self._node_messages(changed, now)
            yield from self._removals()
        if abs(now - self._heartbeats_at) >= _HEARTBEAT_INTERVAL_S:
            self._heartbeats_at = now
            yield from self._periodic_heartbeats(now)
            # Again: once a cell can be read again, its absent nodes are known to be
            # removed, even if the table has not changed.
            yield from self._removals()

    # -- nodes ---------------------------------------------------------------------

    def _node_messages(
        self, changed: Collection[str], now: float
    ) -> Iterator[OutgoingMessage]:
        batch = self._table.batch()
        hosts = dict(zip(batch.uuid, batch.host, strict=True))
        # The nodes of a host share its instances, which one of them reports.
        carriers = {host: node for node, host in sorted(hosts.items(), reverse=True)}
        since = self._instances_revision
        instances = self._table.instances
        self._instances_revision, changed_hosts = instances.changed_since(since)
        for node, host in hosts.items():
            is_carrier = carriers[host] == node
            before = self._compared_nodes.get(node)
            is_role_same = before is not None and before.is_carrier == is_carrier
            have_instances_changed = is_carrier and host in changed_hosts
            if not is_role_same or node in changed or have_instances_changed:
                reported = self._instances_of(host) if is_carrier else _NO_INSTANCES
                yield from self._compare(node, reported, is_carrier, now)

    def _instances_of(self, host: str) -> _Instances:
        instances = self._table.instances
        images = instances.image_properties_of(host)
        return _Instances(instances.of_host(host), images)

    def _removals(self) -> Iterator[OutgoingMessage]:
        """Return messages that remove deleted nodes from the topics."""
        absent = self._table.missing(self._state.nodes)
        for node in absent:
            if self._is_gone(node, self._state.nodes[node]):
                del self._state.nodes[node]
                self._compared_nodes.pop(node, None)
                self._refused.pop(node, None)
                yield OutgoingMessage(REMOVAL, self._state.topics.hosts, node, None)

    def _is_gone(self, node: str, known: KnownNode) -> bool:
        return (
            known.is_relayed
            and self._source.is_gone(node, known.cell_uuid)
            # Checked last: the source may have added the node since `missing`.
            and not self._table.has_node(node)
        )

    def _compare(
        self, node: str, instances: _Instances, is_carrier: bool, now: float
    ) -> Iterator[OutgoingMessage]:
        """Return the report or heartbeat of a node that the topics lack, if any."""
        record = self._table.as_reported(node)
        if record is None:  # removed since the batch was read
            return
        known = self._state.nodes.get(node)
        seen_at = _seen_at(record, now)
        if known is not None and 0 < seen_at < known.seen_at:
            # The previous leader has reported a later state, for example because it
            # read another replica of the database.
            self._compared_nodes.pop(node, None)
            return
        before = self._compared_nodes.get(node)
        self._compared_nodes[node] = _TableNode(record, instances, is_carrier)
        if (
            known is not None
            and before is not None
            and before.has_same_content(record, instances)
        ):
            yield from self._heartbeat(node, known, seen_at)
        else:
            yield from self._report(node, record, instances, seen_at)

    def _report(
        self, node: str, record: HostRecord, instances: _Instances, seen_at: float
    ) -> Iterator[OutgoingMessage]:
        content: dict[str, Any]
        try:
            content = report_values(record, self._table.columns)
            content["instances"] = sorted(instances.uuids)
            if instances.images:
                images = write_image_properties(instances.images)
                content[IMAGE_PROPERTIES] = images
            digest = digest_of(content)
            known = self._state.nodes.get(node)
            if known is not None and known.digest == digest and known.is_relayed:
                yield from self._heartbeat(node, known, seen_at)
                return
            read_record(content, seen_at, self._table.columns)
        except RefusedReport as e:
            self._refuse(node, e)
            return
        self._refused.pop(node, None)
        self._n_reports += 1
        self._state.nodes[node] = KnownNode(
            self._incarnation, self._n_reports, digest, record.cell_uuid, seen_at
        )
        data = {
            **content,
            "incarnation": self._incarnation,
            "revision": self._n_reports,
            "seen_at": seen_at,
        }
        yield _message(REPORT, self._state.topics.hosts, node, ReportKind.WHOLE, data)

    def _refuse(self, node: str, error: RefusedReport) -> None:
        text = str(error)
        if self._refused.get(node) != text:
            LOG.warning("A host cannot be reported, and stays as it was: %s", text)
        self._refused[node] = text

    def _heartbeat(
        self, node: str, known: KnownNode, seen_at: float
    ) -> Iterator[OutgoingMessage]:
        """Return a heartbeat if the host was seen since the last one."""
        if seen_at <= known.seen_at:
            return
        known.seen_at = seen_at
        data = {
            "uuid": node,
            "incarnation": known.incarnation,
            "revision": known.revision,
            "since": known.revision,
            "seen_at": seen_at,
        }
        topic = self._state.topics.heartbeats
        yield _message(HEARTBEAT, topic, node, ReportKind.DELTA, data)

    def _periodic_heartbeats(self, now: float) -> Iterator[OutgoingMessage]:
        """Return heartbeats of the hosts that are up although the source has none."""
        for node, compared in self._compared_nodes.items():
            known = self._state.nodes.get(node)
            if compared.record.last_seen_up == math.inf and known is not None:
                yield from self._heartbeat(node, known, now)

    # -- aggregates ----------------------------------------------------------------

    def _aggregate_messages(self) -> Iterator[OutgoingMessage]:
        topic, known = self._state.topics.aggregates, self._state.aggregates
        present = {aggregate.id: aggregate for aggregate in self._table.aggregates}
        for id_, aggregate in present.items():
            if self._compared_aggregates.get(id_) == aggregate:
                continue
            self._compared_aggregates[id_] = aggregate
            primitive = _primitive(aggregate)
            digest = digest_of(primitive["nova_object.data"])
            if known.get(id_) != digest:
                known[id_] = digest
                value = msgspec.json.encode(primitive)
                yield OutgoingMessage(AGGREGATE, topic, str(id_), value)
        for id_ in known.keys() - present.keys():
            del known[id_]
            self._compared_aggregates.pop(id_, None)
            yield OutgoingMessage(AGGREGATE, topic, str(id_), None)


def _seen_at(record: HostRecord, now: float) -> float:
    """Return when a host was last seen up, limited to 0..`now`; 0: never."""
    if math.isnan(record.last_seen_up):
        return 0.0
    return max(0.0, min(record.last_seen_up, now))


def _message(
    kind: str, topic: str, node: str, report: ReportKind, data: dict[str, Any]
) -> OutgoingMessage:
    value = msgspec.json.encode(report_primitive(report, data))
    return OutgoingMessage(kind, topic, node, value)


def _primitive(aggregate: HostAggregate) -> dict[str, Any]:
    """Return the primitive of nova's Aggregate; it is the same for equal aggregates."""
    primitive: dict[str, Any] = Aggregate(
        id=aggregate.id,
        uuid=aggregate.uuid,
        name=aggregate.name,
        hosts=sorted(aggregate.hosts),
        metadata=dict(aggregate.metadata),
    ).obj_to_primitive()
    return primitive
