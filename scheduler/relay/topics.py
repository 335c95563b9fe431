# SPDX-License-Identifier: Apache-2.0
"""The contents of the topics, from which a new leader finds what it must write."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaException
from oslo_config import cfg

from ...objects import MalformedObject, ReportKind, report_data
from ..errors import ConfigurationError
from ..failures import one_line
from ..hosts.columns import read_time, read_uuid
from ..kafka_client import TopicNames, topic_settings
from ..sources.kafka.messages import (
    Partition,
    TopicMessage,
    list_partitions,
)
from ..sources.kafka.reader import TopicReader

LOG = logging.getLogger(__name__)

#: Fields of a report that differ though the host has not changed.
_VOLATILE: Final = frozenset(
    {"incarnation", "revision", "seen_at", "reply_topic", "reply_server"}
)
_DATA: Final = "nova_object.data"
#: How long a broker holds a request if there is no further message: only then does the
#: reader know that it is at the end.
_FETCH_WAIT_MS: Final = 100
#: Seconds of reading at a time: in between the relay takes part in the election.
_SOME_S: Final = 0.2
_RETRY_S: Final = 5.0
#: Seconds without an answer after which brokers count as silent: a client that has just
#: connected has no answer yet.
_SILENT_S: Final = 3.0
#: The digest of a message that cannot be read, and has to be replaced.
_UNREADABLE: Final = b""
#: What reading a message may raise: anything may be in a topic.
_UNUSABLE: Final = (ValueError, KeyError, TypeError, RecursionError)


@dataclass(slots=True)
class KnownNode:
    """The newest report of a node.

    Attributes
    ----------
    digest : bytes
        The digest of the report's content, see `content_of`.
    cell_uuid : str
    seen_at : float
        When the node was last seen according to the topics, seconds since the epoch.
    is_relayed : bool
        Whether a relay wrote the report; a relay does not change reports of agents.
    """

    incarnation: str
    revision: int
    digest: bytes
    cell_uuid: str
    seen_at: float
    is_relayed: bool = True


@dataclass(slots=True)
class TopicState:
    """The newest messages of the topics: nodes by UUID, aggregates' digests by id."""

    topics: TopicNames
    nodes: dict[str, KnownNode] = field(default_factory=dict)
    aggregates: dict[int, bytes] = field(default_factory=dict)
    #: When nodes were last seen according to heartbeats alone: a heartbeat may be read
    #: before its report.
    _seen_at: dict[str, float] = field(default_factory=dict)

    def apply(self, messages: Iterable[TopicMessage]) -> None:
        """Apply messages; the messages of a topic must be in order.

        A message with an unusable key, and an unusable heartbeat, is ignored.
        """
        for message in messages:
            try:
                key = (message.key or b"").decode()
                if message.topic == self.topics.aggregates:
                    self._apply_aggregate(int(key), message.value)
                elif message.topic == self.topics.hosts:
                    self._apply_report(read_uuid(key), message.value)
                else:
                    self._apply_heartbeat(read_uuid(key), message.value)
            except _UNUSABLE:  # schedulers skip such a message, too
                continue

    def _apply_aggregate(self, aggregate_id: int, value: bytes | None) -> None:
        if value is None:
            self.aggregates.pop(aggregate_id, None)
            return
        self.aggregates[aggregate_id] = _UNREADABLE
        self.aggregates[aggregate_id] = digest_of(msgspec.json.decode(value)[_DATA])

    def _apply_report(self, uuid: str, value: bytes | None) -> None:
        if value is None:
            self.nodes.pop(uuid, None)
            return
        try:
            node = _node_of(msgspec.json.decode(value))
            node.seen_at = max(node.seen_at, self._seen_at.get(uuid, 0.0))
            self.nodes[uuid] = node
        except _UNUSABLE:
            # The message may be an agent's. A host of the source with this key replaces
            # it.
            self.nodes[uuid] = KnownNode("", 0, _UNREADABLE, "", 0.0, is_relayed=False)

    def _apply_heartbeat(self, uuid: str, value: bytes | None) -> None:
        if value is None:
            return
        _, data = report_data(msgspec.json.decode(value))
        if "seen_at" not in data:
            return
        seen_at = max(read_time(data["seen_at"]), self._seen_at.get(uuid, 0.0))
        self._seen_at[uuid] = seen_at
        if (node := self.nodes.get(uuid)) is not None:
            node.seen_at = max(node.seen_at, seen_at)


def _node_of(primitive: object) -> KnownNode:
    kind, data = report_data(primitive)
    if kind is not ReportKind.WHOLE:
        raise MalformedObject("a HostReport", primitive)
    return KnownNode(
        incarnation=str(data["incarnation"]),
        revision=int(data["revision"]),
        digest=digest_of(content_of(data)),
        cell_uuid=str(data["cell_uuid"]),
        seen_at=read_time(data.get("seen_at", 0.0)),
        is_relayed="seen_at" in data,
    )


def content_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a report that change only with the host."""
    return {name: value for name, value in data.items() if name not in _VOLATILE}


def digest_of(content: object) -> bytes:
    """Return a digest of values that JSON can represent."""
    text = msgspec.json.encode(content, order="deterministic")
    return hashlib.blake2b(text, digest_size=16).digest()


class TopicFollower:
    """Reads the topics, so that a relay knows their contents when it is elected.

    Not thread-safe.

    Parameters
    ----------
    clock : callable
        Returns now, seconds since the epoch.

    Attributes
    ----------
    n_read : int
        The number of messages that were read.
    """

    def __init__(self, conf: cfg.ConfigOpts, clock: Callable[[], float]) -> None:
        self._conf = conf
        self._clock = clock
        self._topics = TopicNames.of(conf)
        self._reader: TopicReader | None = None
        self._positions: Mapping[Partition, int] = {}
        self._retry_at = 0.0
        self._failure = ""
        #: When brokers last answered for all partitions.
        self._answered_at = time.monotonic()
        self.state = TopicState(self._topics)
        self.n_read = 0

    def read_some(self) -> None:
        """Read new messages for a short time, as far as brokers answer."""
        if time.monotonic() < self._retry_at:
            return
        ends_at = time.monotonic() + _SOME_S
        try:
            reader = self._opened()
            while messages := reader.read(0):
                self._apply(messages)
                if time.monotonic() > ends_at:
                    break
        except (
            ConfigurationError,
            KafkaException,
        ) as e:  # if this relay leads by then, `read_to_end` raises the error
            LOG.warning("The topics cannot be followed, retrying: %s", one_line(e))
            self.close()
            self._failure = f"The topics cannot be followed: {one_line(e)}"
            self._retry_at = time.monotonic() + _RETRY_S
            return
        self._failure = ""
        if not reader.unanswered:
            self._answered_at = time.monotonic()
        if self._is_rewound(reader.positions):
            LOG.warning("A Kafka topic was replaced; reading all topics again")
            self.close()
        else:
            self._positions = reader.positions

    @property
    def trouble(self) -> str:
        """Why the topics cannot be followed; "": they are followed, or not opened."""
        reader = self._reader
        if reader is None:
            return self._failure
        silent_s = time.monotonic() - self._answered_at
        if silent_s > _SILENT_S and reader.unanswered:
            return (
                f"No broker of Kafka has answered for {silent_s:.0f} s for the "
                f"partitions {list_partitions(reader.unanswered)}. {reader.error.text}"
            )
        return " ".join(reader.failures.values())

    def _apply(self, messages: Iterable[TopicMessage]) -> None:
        batch = tuple(messages)
        self.n_read += len(batch)
        self.state.apply(batch)

    def _opened(self) -> TopicReader:
        """Return the reader; open it at the beginnings of the topics if necessary."""
        if self._reader is None:
            self._reader = TopicReader(self._conf, fetch_wait_ms=_FETCH_WAIT_MS)
            self._answered_at = time.monotonic()
            self._reader.follow(self._beginnings(self._reader))
        return self._reader

    def _beginnings(self, reader: TopicReader) -> dict[Partition, int]:
        by_topic = reader.partitions(topic_settings(self._conf))
        since = self._clock() - self._conf.service_down_time
        beginnings: dict[Partition, int] = {}
        for topic, numbers in by_topic.items():
            partitions = [(topic, number) for number in numbers]
            begins_at = since if topic == self._topics.heartbeats else 0.0
            beginnings |= reader.offsets_since(partitions, begins_at)
        return beginnings

    def _is_rewound(self, positions: Mapping[Partition, int]) -> bool:
        """Return whether a position moved back: then the topic was replaced."""
        before = self._positions
        return any(
            offset < before.get(partition, offset)
            for partition, offset in positions.items()
        )

    def read_to_end(self) -> TopicState:
        """Read the topics to their ends; return their contents, and forget them.

        Raises
        ------
        ConfigurationError
            A topic cannot be read, or no broker answers.
        """
        try:
            reader = self._opened()
            positions = reader.positions
            offsets = self._beginnings(reader) | positions
            ends = reader.read_to_end(offsets, self._apply, offsets=offsets)
            if any(ends[partition] < at for partition, at in positions.items()):
                LOG.warning("A Kafka topic was replaced; reading all topics again")
                self.state = TopicState(self._topics)
                offsets = self._beginnings(reader)
                reader.read_to_end(offsets, self._apply, offsets=offsets)
            return self.state
        finally:
            self.close()

    def close(self) -> None:
        """Close all connections, and forget the contents."""
        if self._reader is not None:
            self._reader.close()
        self._reader, self._positions = None, {}
        self.state = TopicState(self._topics)
