# SPDX-License-Identifier: Apache-2.0
"""Apply the messages of the topics; skip, log and count unusable messages."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ....objects import (
    Aggregate,
    MalformedObject,
    Serializer,
    UnsetField,
    UnsupportedObject,
    UnsupportedReportVersion,
    report_data,
)
from ...decoding import loads
from ...hosts import HostAggregate, HostTable
from ...hosts.columns import read_time, read_uuid
from ...kafka_client import TopicNames
from ..reported.hosts import ReceivedReport, ReportedHosts

LOG = logging.getLogger(__name__)

#: Skipped messages that are logged one by one within a window; further ones are only
#: counted.
_MAX_LOGGED: Final = 20
_WINDOW_S: Final = 60.0
#: Most partitions that a text for operators names.
_MAX_NAMED: Final = 5
#: Kinds of unsupported messages that are remembered, to log each once.
_MAX_KINDS: Final = 100

#: A topic and the number of a partition.
Partition = tuple[str, int]


class TopicMessage(NamedTuple):
    """A message of a topic.

    Attributes
    ----------
    received_at : float
        The message's timestamp in the topic, seconds since the epoch.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    received_at: float

    @property
    def origin(self) -> str:
        """Topic, partition and offset of the message, for an operator."""
        return f"topic {self.topic}, partition {self.partition}, offset {self.offset}"


@dataclass(slots=True)
class MessageCounts:
    """The number of messages that are not applied reports, since the start.

    Attributes
    ----------
    skipped : int
        Messages that cannot be read.
    unsupported : int
        Messages of an unknown kind or of another major version.
    removed : int
        Hosts that a message without a value has removed.
    """

    skipped: int = 0
    unsupported: int = 0
    removed: int = 0


class MessageApplier:
    """Applies messages to the reported hosts, and to the aggregates of a table."""

    def __init__(
        self, topics: TopicNames, hosts: ReportedHosts, table: HostTable
    ) -> None:
        self._topics = topics
        self._hosts = hosts
        self._table = table
        self._serializer = Serializer()
        #: The aggregates that the topic has, by id.
        self._aggregates: dict[int, HostAggregate] = {}
        self._unsupported: set[str] = set()
        self._window_from = 0.0
        self._n_logged = 0
        self.counts = MessageCounts()

    def apply(self, messages: Iterable[TopicMessage]) -> None:
        """Apply messages in order; messages of one key must be in the topic's order."""
        reports: list[ReceivedReport] = []
        for message in messages:
            try:
                if message.topic == self._topics.aggregates:
                    self._apply_aggregate(message)
                elif message.value is None:
                    self._hosts.apply_received(reports)
                    reports = []
                    self._remove(message)
                else:
                    reports.append(_report(message))
            except (UnsupportedObject, UnsupportedReportVersion) as e:
                self._skip_unsupported(message, e)
            except (ValueError, RecursionError, UnsetField) as e:
                self._skip(message, e)
        self._hosts.apply_received(reports)

    def _remove(self, message: TopicMessage) -> None:
        if message.topic == self._topics.hosts:
            self.counts.removed += self._hosts.remove(_node_uuid(message))

    def _apply_aggregate(self, message: TopicMessage) -> None:
        aggregate_id = int(_text(message.key, "key"))
        if message.value is None:
            self._aggregates.pop(aggregate_id, None)
            self._table.drop_aggregate(aggregate_id)
            return
        primitive = loads(_text(message.value, "value"))
        aggregate = self._serializer.deserialize_entity({}, primitive)
        if not isinstance(aggregate, Aggregate):
            raise MalformedObject("an Aggregate", primitive)
        if aggregate.id != aggregate_id:
            raise ValueError(f"id: {aggregate.id} is not the key, {aggregate_id}")
        self._aggregates[aggregate_id] = HostAggregate.of(aggregate)
        self._table.put_aggregate(self._aggregates[aggregate_id])

    def aggregates_not_in_topic(self) -> list[int]:
        """Return the ids of aggregates that differ between the table and the topic."""
        present = {aggregate.id: aggregate for aggregate in self._table.aggregates}
        ids = sorted(present.keys() | self._aggregates.keys())
        return [id_ for id_ in ids if present.get(id_) != self._aggregates.get(id_)]

    @property
    def n_aggregates(self) -> int:
        """The number of aggregates that the topic has."""
        return len(self._aggregates)

    def _skip_unsupported(self, message: TopicMessage, error: MalformedObject) -> None:
        self.counts.unsupported += 1
        kind = f"{error}"
        if kind in self._unsupported or len(self._unsupported) >= _MAX_KINDS:
            return
        self._unsupported.add(kind)
        LOG.warning(
            "Skipping messages that a newer version may have sent, the first at %s: "
            "%s; upgrade this scheduler",
            message.origin,
            error,
        )

    def _skip(self, message: TopicMessage, error: Exception) -> None:
        self.counts.skipped += 1
        now = time.monotonic()
        if now - self._window_from > _WINDOW_S:
            self._window_from, self._n_logged = now, 0
        self._n_logged += 1
        if self._n_logged <= _MAX_LOGGED:
            LOG.warning(
                "A message cannot be read and is skipped: %s: %s", message.origin, error
            )


def _report(message: TopicMessage) -> ReceivedReport:
    """Return a message's report; raise ValueError if its node is not the key."""
    node_uuid = _node_uuid(message)
    primitive = loads(_text(message.value, "value"))
    _, data = report_data(primitive)
    if read_uuid(data.get("uuid")) != node_uuid:
        raise ValueError(f"uuid: {data['uuid']} is not the key, {node_uuid}")
    seen_at = message.received_at
    if "seen_at" in data:
        seen_at = min(seen_at, read_time(data["seen_at"]))
    partition = message.topic, message.partition
    return ReceivedReport(primitive, seen_at, message.origin, partition)


def _node_uuid(message: TopicMessage) -> str:
    return read_uuid(_text(message.key, "key"))


def _text(encoded: bytes | None, part: str) -> str:
    if encoded is None:
        raise ValueError(f"it has no {part}")
    return encoded.decode()


def list_partitions(partitions: Collection[Partition]) -> str:
    """Return a text that names partitions, of many only the first few."""
    named = [f"{topic} {number}" for topic, number in sorted(partitions)[:_MAX_NAMED]]
    n_unnamed = len(partitions) - len(named)
    unnamed_text = f" and {n_unnamed} more" if n_unnamed else ""
    return f"{', '.join(named)}{unnamed_text}"
