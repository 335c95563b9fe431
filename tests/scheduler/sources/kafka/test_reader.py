# SPDX-License-Identifier: Apache-2.0
"""When reading to the end stops: with a consumer whose brokers answer in part."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from moorage.scheduler.conf import load
from moorage.scheduler.errors import ConfigurationError

pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaError, Message

from moorage.scheduler.sources.kafka import reader
from moorage.scheduler.sources.kafka.messages import TopicMessage

TIMEOUT_S = 10.0


class ReaderTime:
    """Takes the place of the reader's monotonic time; it passes in the tests only."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ReaderTime:
    clock = ReaderTime()
    monkeypatch.setattr(reader, "time", clock)
    monkeypatch.setattr(PartlyAnswering, "clock", clock, raising=False)
    return clock


class PartlyAnswering:
    """Takes the place of the library's consumer; partition 0 has no leader.

    Partition 1 has some messages, then its end; a message is written to it each time
    that it is read.
    """

    clock: ReaderTime

    def __init__(self, _settings: dict[str, Any]) -> None:
        self._waiting = deque([_message(offset) for offset in range(3)])
        self._waiting.append(_end(1, 3))
        self._n_written = 3

    def assign(self, _partitions: object) -> None:
        pass

    def unassign(self) -> None:
        pass

    def poll(self, timeout_s: float) -> Message:
        if not self._waiting:
            self.clock.now += timeout_s
            self._waiting += [_message(self._n_written), _end(1, self._n_written + 1)]
            self._n_written += 1
        return self._waiting.popleft()

    def consume(self, _number: int, timeout: float) -> Sequence[Message]:
        found, self._waiting = list(self._waiting), deque()
        return found


class Answering(PartlyAnswering):
    """Partition 0 is empty, and its end is known after all messages of the other."""

    def poll(self, _timeout_s: float) -> Message:
        return self._waiting.popleft() if self._waiting else _end(0, 0)


def _message(offset: int) -> Message:
    key = str(offset).encode()
    return Message("hosts", 1, offset, key=key, value=b"{}", timestamp=(1, 1000))


def _end(partition: int, offset: int) -> Message:
    error = KafkaError(KafkaError._PARTITION_EOF)  # noqa: SLF001 - its public name
    return Message("hosts", partition, offset, error=error)


def _reader(monkeypatch: pytest.MonkeyPatch, consumer: type) -> reader.TopicReader:
    monkeypatch.setattr(reader, "Consumer", consumer)
    conf = load([], config_files=[])
    conf.set_override("bootstrap_servers", ["127.0.0.1:1"], group="kafka")
    conf.set_override("timeout", TIMEOUT_S, group="kafka")
    return reader.TopicReader(conf, fetch_wait_ms=10)


PARTITIONS = [("hosts", 0), ("hosts", 1)]


def test_partition_without_a_leader_is_named_though_others_are_written_to(
    clock: ReaderTime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def apply(_messages: Iterable[TopicMessage]) -> None:
        assert clock.now < 3 * TIMEOUT_S, "it would wait for ever"

    monkeypatch.setattr(reader, "_WINDOW", 5)
    read = _reader(monkeypatch, PartlyAnswering)
    with pytest.raises(ConfigurationError, match=r"partitions hosts 0\."):
        read.read_to_end(PARTITIONS, apply)


def test_time_in_which_messages_are_applied_is_no_silence(
    clock: ReaderTime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[TopicMessage] = []

    def apply(messages: Iterable[TopicMessage]) -> None:
        found.extend(messages)
        clock.now += 2 * TIMEOUT_S

    monkeypatch.setattr(reader, "_WINDOW", 2)
    read = _reader(monkeypatch, Answering)
    offsets = read.read_to_end(PARTITIONS, apply)
    assert offsets == {("hosts", 0): 0, ("hosts", 1): 3}
    assert [each.offset for each in found] == [0, 1, 2]


@pytest.mark.usefixtures("clock")
def test_large_messages_are_applied_before_many_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers: list[int] = []
    monkeypatch.setattr(reader, "_WINDOW_BYTES", 6)
    read = _reader(monkeypatch, Answering)
    read.read_to_end(PARTITIONS, lambda found: numbers.append(len(list(found))))
    assert numbers == [3, 0], "while it reads, and at the end"
