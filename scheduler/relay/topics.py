# SPDX-License-Identifier: Apache-2.0
"""What the topics have of each host and aggregate, as a new leader reads it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from oslo_config import cfg

from ...objects import MalformedObject, ReportKind, report_data
from ..hosts.columns import read_time, read_uuid
from ..kafka_client import topic_settings
from ..sources.kafka.messages import TopicMessage, TopicNames
from ..sources.kafka.reader import TopicReader

#: Fields of a report that differ though the host has not changed.
_VOLATILE: Final = frozenset(
    {"incarnation", "revision", "seen_at", "reply_topic", "reply_server"}
)
_DATA: Final = "nova_object.data"
_FETCH_WAIT_MS: Final = 10
#: The digest of what cannot be read, and has to be replaced.
_UNREADABLE: Final = b""
#: What reading a message may raise: anything may be in a topic.
_UNUSABLE: Final = (ValueError, KeyError, TypeError, RecursionError)


@dataclass(slots=True)
class KnownNode:
    """The newest report of a node.

    Attributes
    ----------
    digest : bytes
        Of the values and instances.
    cell_uuid : str
    seen_at : float
        The newest that the topics have, seconds since the epoch.
    is_relayed : bool
        Whether a relay wrote it; others are left to their agents.
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

    def apply(self, messages: Iterable[TopicMessage]) -> None:
        """Apply messages in order; those with an unusable key are ignored."""
        for message in messages:
            try:
                key = (message.key or b"").decode()
                if message.topic == self.topics.aggregates:
                    self._apply_aggregate(int(key), message.value)
                elif message.topic == self.topics.hosts:
                    self._apply_report(read_uuid(key), message.value)
                else:
                    self._apply_heartbeat(read_uuid(key), message.value)
            except _UNUSABLE:  # schedulers skip it, too
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
            self.nodes[uuid] = _known(msgspec.json.decode(value))
        except _UNUSABLE:
            # It may be an agent's; a host of the source with its key replaces it.
            self.nodes[uuid] = KnownNode("", 0, _UNREADABLE, "", 0.0, is_relayed=False)

    def _apply_heartbeat(self, uuid: str, value: bytes | None) -> None:
        node = self.nodes.get(uuid)
        if node is None or value is None:
            return
        _, data = report_data(msgspec.json.decode(value))
        if "seen_at" in data:
            node.seen_at = max(node.seen_at, read_time(data["seen_at"]))


def _known(primitive: object) -> KnownNode:
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


def read_topics(conf: cfg.ConfigOpts, since: float) -> TopicState:
    """Read the topics to their ends.

    Parameters
    ----------
    since : float
        The time from which heartbeats are read, seconds since the epoch.

    Raises
    ------
    ConfigurationError
        A topic cannot be read, or no broker answers.
    """
    options = conf.kafka
    state = TopicState(
        TopicNames(
            options.hosts_topic, options.heartbeats_topic, options.aggregates_topic
        )
    )
    reader = TopicReader(conf, fetch_wait_ms=_FETCH_WAIT_MS)
    try:
        found = reader.partitions(topic_settings(conf))
        names = state.topics.hosts, state.topics.aggregates
        states = [(topic, number) for topic in names for number in found[topic]]
        reader.read_to_end(states, state.apply)
        heartbeats = state.topics.heartbeats
        numbers = [(heartbeats, number) for number in found[heartbeats]]
        reader.read_to_end(numbers, state.apply, since)
    finally:
        reader.close()
    return state
