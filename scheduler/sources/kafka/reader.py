# SPDX-License-Identifier: Apache-2.0
"""Read topics: all partitions to their ends, then what is appended."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from oslo_config import cfg

from ...clock import now_s
from ...errors import ConfigurationError
from ...kafka_client import (
    LastError,
    allow_command,
    client_settings,
    is_denied,
    partitions_of,
)
from .messages import Partition, TopicMessage, list_partitions

#: Applies some messages.
Apply = Callable[[Iterable[TopicMessage]], object]

#: Messages that are applied at a time: applying them takes 2 to 3 ms, for which a
#: decision may have to wait.
_MAX_AT_A_TIME: Final = 50
#: Messages of which only the newest of each key is applied, while reading to the end.
_WINDOW: Final = 20_000
#: Most bytes of these messages: a host with many devices has a report of tens of kB.
_WINDOW_BYTES: Final = 64 * 1024**2
_STATISTICS_MS: Final = 1_000
_NEW_PARTITIONS_MS: Final = 60_000
#: The library's states of a broker that is connected.
_CONNECTED: Final = frozenset(("UP", "UPDATE"))
#: Microseconds without an answer after which a connected broker counts as silent: a
#: broker answers a fetch within half a second, even if there is no message.
_SILENT_US: Final = 3_000_000


class TopicReader:
    """A consumer of all partitions of some topics, without a group.

    The consumer has threads: close it before the process is forked.

    Parameters
    ----------
    fetch_wait_ms : int
        How long a broker holds a request if there is no further message. Only after
        this time does the reader know that it is at the end of a partition.
    clock : callable
        Returns now, seconds since the epoch.

    Attributes
    ----------
    failures : dict
        Why topics cannot be read, by topic.
    unanswered : tuple
        The partitions that are followed and for which no broker answers: they have no
        leader, or their leader is frozen or not connected.
    is_connected : bool
        Whether a broker answers for any partition, within some seconds.
    n_unread : int
        Messages that the brokers have and that are not read.

    Raises
    ------
    ConfigurationError
        [kafka] is invalid.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        *,
        fetch_wait_ms: int,
        clock: Callable[[], float] = now_s,
    ) -> None:
        self._conf = conf
        self._clock = clock
        self.error = LastError(conf)
        self.failures: dict[str, str] = {}
        self.is_connected = True
        self.unanswered: tuple[Partition, ...] = ()
        self.n_unread = 0
        self._next: dict[Partition, int] = {}
        self._progress: dict[Partition, _Progress] = {}
        self._unassigned: set[Partition] = set()
        self._consumer = Consumer(
            {
                **client_settings(conf),
                "client.id": "moorage-scheduler",
                "group.id": "moorage-scheduler",  # required; no group is joined
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                # Skip messages of open and aborted transactions of moorage-relay.
                "isolation.level": "read_committed",
                # Applies also if retention has deleted an offset in the meantime.
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": fetch_wait_ms,
                "queued.min.messages": 10_000,
                "topic.metadata.refresh.interval.ms": _NEW_PARTITIONS_MS,
                "statistics.interval.ms": _STATISTICS_MS,
                "stats_cb": self._read_statistics,
                "error_cb": self.error.note,
            }
        )

    def close(self) -> None:
        """Close all connections, and end the threads of the consumer."""
        self._consumer.close()

    # -- reading to the end --------------------------------------------------------

    def partitions(self, topics: Mapping[str, str]) -> dict[str, list[int]]:
        """Return the partitions of each topic.

        Parameters
        ----------
        topics : mapping
            The settings that each topic is created with, by topic.

        Raises
        ------
        ConfigurationError
            No broker answers, or a topic does not exist.
        """
        return partitions_of(self._conf, self._consumer, topics, self.error)

    def read_to_end(
        self,
        partitions: Collection[Partition],
        apply: Apply,
        since: float = 0.0,
        *,
        offsets: Mapping[Partition, int] | None = None,
    ) -> dict[Partition, int]:
        """Apply the messages up to the present ends; return the offsets after them.

        Superseded messages of a key may be left out.

        Parameters
        ----------
        since : float
            The time from which messages are read, seconds since the epoch; 0: from
            the beginning.
        offsets : mapping, optional
            Where reading begins; `since` is ignored then. If an offset is beyond the
            end, as after a topic was deleted and created again, reading begins at the
            beginning.

        Raises
        ------
        ConfigurationError
            A topic cannot be read, or no broker answers for [kafka] timeout seconds
            for the partitions whose end is not reached.
        """
        if offsets is None:
            offsets = self.offsets_since(partitions, since)
        self._consumer.assign(
            [TopicPartition(*position) for position in _flat(offsets)]
        )
        self._next = {}
        remaining = set(partitions)
        newest: dict[object, TopicMessage] = {}
        n_bytes = 0
        answered_at = time.monotonic()
        while remaining:
            for message in self._receive(timeout_s=0.5):
                # Messages of complete partitions must not hide that another has no
                # leader.
                if _partition(message) in remaining:
                    answered_at = time.monotonic()
                if message.error() is None:
                    topic_message = self._read(message)
                    newest[_identity(topic_message)] = topic_message
                    n_bytes += len(topic_message.value or b"")
                elif self._is_end(message):
                    remaining.discard(_partition(message))
                else:
                    raise ConfigurationError(self._unreadable(message))
            if len(newest) >= _WINDOW or n_bytes >= _WINDOW_BYTES:
                began = time.monotonic()
                apply(newest.values())
                newest.clear()
                n_bytes = 0
                answered_at += time.monotonic() - began  # applying is no silence
            if time.monotonic() - answered_at > self._conf.kafka.timeout:
                raise ConfigurationError(self._silence_text(remaining))
        apply(newest.values())
        self._consumer.unassign()
        return dict(self._next)

    def offsets_since(
        self, partitions: Iterable[Partition], since: float = 0.0
    ) -> dict[Partition, int]:
        """Return the offset of each partition at a time; 0: at its beginning.

        Raises
        ------
        ConfigurationError
            No broker answers.
        """
        if not since:
            return dict.fromkeys(partitions, confluent_kafka.OFFSET_BEGINNING)
        # The library takes the times in the place of offsets.
        times = [
            TopicPartition(*partition, int(since * 1000)) for partition in partitions
        ]
        try:
            offsets = self._consumer.offsets_for_times(times, self._conf.kafka.timeout)
        except confluent_kafka.KafkaException as e:
            raise ConfigurationError(f"Kafka does not answer: {e.args[0]}") from e
        return {(item.topic, item.partition): item.offset for item in offsets}

    def _silence_text(self, remaining: Collection[Partition]) -> str:
        return (
            f"Reading the Kafka topics stopped: for {self._conf.kafka.timeout:g} s no "
            f"broker answered for the partitions {list_partitions(remaining)}. "
            f"{self.error.text}"
        )

    # -- following -----------------------------------------------------------------

    def follow(self, offsets: Mapping[Partition, int]) -> None:
        """Continue at these offsets; `read` returns the messages."""
        self._next = dict(offsets)
        now = self._clock()
        self._progress = {
            partition: self._progress.get(partition) or _Progress(now)
            for partition in offsets
        }
        self._consumer.assign(
            [TopicPartition(*position) for position in _flat(offsets)]
        )

    def follow_from_end(self, partitions: Iterable[Partition]) -> None:
        """Continue at the ends, as they are once a broker answers."""
        self.follow(dict.fromkeys(partitions, confluent_kafka.OFFSET_END))

    @property
    def read_until(self) -> float:
        """The time until which all messages of all partitions are read, within 2 s.

        Seconds since the epoch; valid after `follow`.
        """
        return min(
            (progress.read_until for progress in self._progress.values()), default=0.0
        )

    def read_until_by_partition(self) -> dict[Partition, float]:
        """Return `read_until` of each partition that is followed."""
        return {
            partition: progress.read_until
            for partition, progress in self._progress.items()
        }

    @property
    def positions(self) -> dict[Partition, int]:
        """The next offset of each partition; negative until it is known."""
        return dict(self._next)

    @property
    def knows_its_positions(self) -> bool:
        """Whether the next offsets of all partitions are known."""
        return all(offset >= 0 for offset in self._next.values())

    def read(self, timeout_s: float) -> list[TopicMessage]:
        """Return the next messages, at most 50; none after the timeout."""
        self._assign_new_partitions()
        messages = []
        for message in self._receive(timeout_s):
            if message.error() is None:
                messages.append(self._read(message))
                self.failures.pop(messages[-1].topic, None)
            elif self._is_end(message):
                self.failures.pop(message.topic() or "", None)
            else:
                self._note_failure(message)
        return messages

    def _assign_new_partitions(self) -> None:
        if self._unassigned:
            new, self._unassigned = self._unassigned, set()
            self.follow(self._next | dict.fromkeys(new, 0))

    def _note_failure(self, message: Message) -> None:
        error = message.error()
        # After a retriable error the library retries by itself.
        if error is not None and not error.retriable():
            self.failures[message.topic() or ""] = self._unreadable(message)

    # -- receiving -----------------------------------------------------------------

    def _receive(self, timeout_s: float) -> Sequence[Message]:
        """Return available messages, with errors and ends; wait only for the first."""
        first = self._consumer.poll(timeout_s)
        if first is None:
            return ()
        messages = [first, *self._consumer.consume(_MAX_AT_A_TIME - 1, timeout=0)]
        # The library requests the coordinator of the group, though no group is joined.
        # If the user lacks the right to do so, the error has no topic and is ignored.
        return [message for message in messages if message.topic() is not None]

    def _read(self, message: Message) -> TopicMessage:
        """Convert a message, and advance the position of its partition."""
        topic, partition = _partition(message)
        offset = message.offset() or 0
        self._next[topic, partition] = offset + 1
        _, milliseconds = message.timestamp()
        return TopicMessage(
            topic, partition, offset, message.key(), message.value(),
            milliseconds / 1000,
        )  # fmt: skip

    def _unreadable(self, message: Message) -> str:
        error, topic = message.error(), message.topic() or ""
        text = f"The Kafka topic {topic!r} cannot be read: {error and error.str()}"
        if error and is_denied(error):
            command = allow_command(self._conf, topic, "Read", "Describe")
            return f"{text}. Allow it: {command}"
        return text

    def _is_end(self, message: Message) -> bool:
        """Return whether this is the end of a partition; if so, update its position."""
        error = message.error()
        if error is None or error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            return False
        # A transaction's marker, which is not read as a message, may precede the end.
        self._next[_partition(message)] = message.offset() or 0
        return True

    def _read_statistics(self, text: str) -> None:
        statistics = json.loads(text)
        ends = dict(_ends(statistics))
        answered = set(_answered(statistics))
        now = self._clock()
        for partition, progress in self._progress.items():
            if partition in answered and partition in ends:
                progress.note(now, self._next.get(partition, 0), ends[partition])
        self.unanswered = tuple(self._progress.keys() - answered)
        self.is_connected = not self._progress or bool(self._progress.keys() & answered)
        if self._next:
            topics = {topic for topic, _ in self._next}
            self._unassigned = {p for p in ends.keys() - self._next if p[0] in topics}
        self.n_unread = sum(
            max(0, end - self._next[partition])
            for partition, end in ends.items()
            if self._next.get(partition, -1) >= 0  # else the position is not known yet
        )


class _Progress:
    """Computes until when the messages of a partition are read.

    Once the reader reaches the end that a partition had at some time, all messages
    until that time are read. Until then, later ends are ignored.

    Attributes
    ----------
    read_until : float
        Seconds since the epoch.
    """

    __slots__ = ("_end", "_end_seen_at", "read_until")

    def __init__(self, now: float) -> None:
        self.read_until = now
        self._end: int | None = None
        self._end_seen_at = now

    def note(self, now: float, position: int, end: int) -> None:
        if end < 0:  # no broker has returned the end yet
            return
        if self._end is not None and position >= self._end:
            self.read_until = self._end_seen_at
            self._end = None
        if position >= end:
            self.read_until = now
        elif self._end is None:
            self._end, self._end_seen_at = end, now


def _answered(statistics: dict[str, Any]) -> Iterable[Partition]:
    """Yield the partitions whose leader answers."""
    idle_us_by_broker = {
        broker["nodeid"]: broker["rxidle"]
        for broker in statistics["brokers"].values()
        if broker["state"] in _CONNECTED
    }
    for name, topic in statistics["topics"].items():
        for number, partition in topic["partitions"].items():
            idle_us = idle_us_by_broker.get(partition["leader"])
            # The library fetches nothing from a leader while it has enough messages.
            if idle_us is not None and (
                idle_us < _SILENT_US or partition["fetchq_cnt"]
            ):
                yield name, int(number)


def _ends(statistics: dict[str, Any]) -> Iterable[tuple[Partition, int]]:
    for name, topic in statistics["topics"].items():
        for number, partition in topic["partitions"].items():
            if int(number) >= 0:  # -1 is an internal partition of the library
                yield (name, int(number)), partition["ls_offset"]


def _flat(offsets: Mapping[Partition, int]) -> Iterable[tuple[str, int, int]]:
    return ((topic, number, offset) for (topic, number), offset in offsets.items())


def _partition(message: Message) -> Partition:
    return message.topic() or "", message.partition() or 0


def _identity(message: TopicMessage) -> object:
    """Return what two messages share if the newer one supersedes the older one."""
    if message.key is None:  # messages without a key are all kept, to be skipped
        return message.topic, message.partition, message.offset
    return message.topic, message.key
