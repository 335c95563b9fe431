# SPDX-License-Identifier: Apache-2.0
"""A topic of Kafka in which schedulers announce claims, under the client library.

Above it is the real code, from `KafkaPeers` to `TopicReader`. Announcements arrive in
the order of their partition, some twice, or late: while no broker answers, they wait in
the process that sends them, and are lost with it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final, Self

from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition

from moorage.objects import Serializer
from moorage.scheduler import kafka_peers
from moorage.scheduler.sources.kafka import reader

from ..fixtures.virtual_time import VirtualTime
from .events import EventLog, Kind
from .network import TWICE, Network

NAME: Final = "claims"
#: The options that have a scheduler announce claims in it.
OPTIONS: Final[Mapping[tuple[str, str], Any]] = {
    ("kafka", "bootstrap_servers"): ["broker:9092"],
    ("kafka", "claims_topic"): NAME,
}

_N_PARTITIONS: Final = 2
#: Longest time until a broker has an announcement, and until a scheduler reads it,
#: seconds of virtual time.
_SENT_S: Final = 0.05
_READ_S: Final = 0.5
#: The longest times without a broker: announcements survive most of the shorter ones.
_AWAY_S: Final = (12.0, 60.0)
#: How long a reader waits at most, instead of the 0.2 s of its process: each wait of a
#: quarter of an hour without an announcement costs time.
_WAIT_S: Final = 10.0


@dataclass
class _Message:
    """What the library returns: a message, or the end of a partition."""

    _partition: int
    _offset: int
    _key: bytes | None = None
    _value: bytes | None = None
    _at: float = 0.0
    _error: KafkaError | None = None

    def topic(self) -> str:
        return NAME

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return 2, int(self._at * 1000)

    def error(self) -> KafkaError | None:
        return self._error


class ClaimsTopic:
    """The brokers; while entered, schedulers that are built have clients of these."""

    def __init__(
        self,
        virtual: VirtualTime,
        rng: random.Random,
        network: Network,
        log: EventLog,
    ) -> None:
        self.virtual = virtual
        self.rng = rng
        self.network = network
        self.log = log
        self.partitions: list[list[_Message]] = [[] for _ in range(_N_PARTITIONS)]
        self.consumers: list[_Consumer] = []
        self._away_until = 0.0
        self._replaced: list[tuple[Any, str, Any]] = []
        log.n_of[Kind.CLAIMS_TOPIC] += 1

    def __enter__(self) -> Self:
        library = SimpleNamespace(
            Producer=lambda settings: _Producer(self, settings),
            KafkaException=KafkaException,
        )
        for module, name, new in (
            (kafka_peers, "kafka_library", lambda: library),
            (reader, "Consumer", lambda _: _Consumer(self)),
        ):
            self._replaced.append((module, name, getattr(module, name)))
            setattr(module, name, new)
        return self

    def __exit__(self, *raised: object) -> None:
        for module, name, old in self._replaced:
            setattr(module, name, old)

    @property
    def away_s(self) -> float:
        """For how long no broker answers yet; 0: one does."""
        return max(0.0, self._away_until - self.virtual.monotonic())

    def go_away(self) -> None:
        """Have no broker answer for a while."""
        for_s = self.rng.uniform(1, self.rng.choice(_AWAY_S))
        self.log.add(
            f"no broker of the topic answers for {for_s:.0f} s", Kind.TOPIC_AWAY
        )
        self._away_until = max(self._away_until, self.virtual.monotonic() + for_s)

    def announce(self, claims: Sequence[dict[str, Any]]) -> None:
        """Have claims of a scheduler that is no part of the simulation in it."""
        for claim in claims:
            content = {"version": "1.0", "claim": claim}
            value = json.dumps(Serializer().serialize_entity({}, content))
            self.append(b"another", value.encode())

    def append(self, key: bytes, value: bytes) -> None:
        """Append a message to a random partition, and tell the consumers."""
        number = self.rng.randrange(_N_PARTITIONS)
        records = self.partitions[number]
        records.append(_Message(number, len(records), key, value, self.virtual()))
        for each in self.consumers:
            each.notice(number)


class _Producer:
    """A client that sends announcements, in order."""

    def __init__(self, topic: ClaimsTopic, settings: Mapping[str, Any]) -> None:
        self._topic = topic
        self._timeout_s = settings["delivery.timeout.ms"] / 1000
        self._group = topic.virtual.current().group
        self._n_queued = 0
        self._sent_at = 0.0
        self._results: list[Callable[[], None]] = []

    def produce(
        self,
        _name: str,
        *,
        key: bytes,
        value: str,
        on_delivery: Callable[[KafkaError | None, object], None],
    ) -> None:
        topic = self._topic
        queued_at = topic.virtual.monotonic()
        # None overtakes an earlier one.
        self._sent_at = max(self._sent_at, queued_at + topic.rng.uniform(0, _SENT_S))
        self._n_queued += 1

        def arrive() -> None:
            waits = topic.away_s > 0
            while topic.away_s:
                topic.virtual.sleep(topic.away_s)
            self._n_queued -= 1
            waited_s = topic.virtual.monotonic() - queued_at
            if waits and (self._group.is_killed or waited_s > self._timeout_s):
                error = KafkaError(KafkaError._MSG_TIMED_OUT)  # noqa: SLF001 - its public name
                topic.log.n_of[Kind.ANNOUNCEMENT_LOST] += 1
                self._results.append(lambda: on_delivery(error, None))
                return
            topic.append(key, value.encode())
            if topic.rng.random() < TWICE:
                topic.log.n_of[Kind.ANNOUNCEMENT_TWICE] += 1
                topic.append(key, value.encode())
            self._results.append(lambda: on_delivery(None, None))

        pause_s = self._sent_at - queued_at
        topic.network.later(pause_s, arrive, name="announcement")

    def poll(self, _timeout_s: float = 0) -> int:
        results, self._results = self._results, []
        for each in results:
            each()
        return len(results)

    def flush(self, timeout_s: float) -> int:
        until = self._topic.virtual.monotonic() + timeout_s
        while self._n_queued and self._topic.virtual.monotonic() < until:
            self._topic.virtual.sleep(0.1)
        self.poll()
        return self._n_queued


@dataclass
class _Position:
    offset: int
    #: When each message from `offset` on can be read; and whether the end was reported.
    readable_at: list[float] = field(default_factory=list)
    is_at_end: bool = False


class _Consumer:
    """A client that reads partitions, from any offset on."""

    def __init__(self, topic: ClaimsTopic) -> None:
        self._topic = topic
        self._positions: dict[int, _Position] = {}
        self._has_news = topic.virtual.event("an announcement")

    def list_topics(self, timeout: float) -> SimpleNamespace:
        """Return what there is; a supervisor repeats a start that fails."""
        while self._topic.away_s:
            self._topic.virtual.sleep(self._topic.away_s)
        partitions = dict.fromkeys(range(_N_PARTITIONS))
        return SimpleNamespace(topics={NAME: SimpleNamespace(partitions=partitions)})

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._positions = {
            each.partition: _Position(each.offset) for each in partitions
        }
        self._topic.consumers.append(self)

    def close(self) -> None:
        if self in self._topic.consumers:
            self._topic.consumers.remove(self)
        self._positions = {}

    def notice(self, number: int) -> None:
        """Have a new message of a partition be readable a while later."""
        position = self._positions[number]
        if position.offset == OFFSET_END:
            return
        readable_at = self._topic.virtual.monotonic()
        readable_at += self._topic.rng.uniform(0, _READ_S)
        position.readable_at.append(max([readable_at, *position.readable_at[-1:]]))
        self._has_news.set()

    def poll(self, timeout_s: float = 0) -> _Message | None:
        if (message := self._next()) is not None or not timeout_s:
            return message
        now = self._topic.virtual.monotonic()
        readable_at = [at for p in self._positions.values() for at in p.readable_at[:1]]
        pause_s = min([_WAIT_S, *(max(at - now, 0.0) for at in readable_at)])
        self._has_news.clear()
        self._has_news.wait(max(pause_s, self._topic.away_s))
        return self._next()

    def consume(self, n: int, timeout: float) -> list[_Message]:
        messages: list[_Message] = []
        while len(messages) < n and (message := self._next()) is not None:
            messages.append(message)
        return messages

    def _next(self) -> _Message | None:
        if self._topic.away_s:
            return None
        now = self._topic.virtual.monotonic()
        for number, position in self._positions.items():
            records = self._topic.partitions[number]
            if position.offset == OFFSET_END:
                position.offset = len(records)
            if position.readable_at and position.readable_at[0] <= now:
                del position.readable_at[0]
                position.offset += 1
                position.is_at_end = False
                return records[position.offset - 1]
            if not position.readable_at and not position.is_at_end:
                position.is_at_end = True
                error = KafkaError(KafkaError._PARTITION_EOF)  # noqa: SLF001 - its public name
                return _Message(number, position.offset, _error=error)
        return None
