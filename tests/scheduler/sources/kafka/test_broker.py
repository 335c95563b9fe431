# SPDX-License-Identifier: Apache-2.0
"""What the source relies on: a real broker keeps a key's newest message."""

from __future__ import annotations

import pytest

from ....fixtures.kafka import DedicatedKafka, Kafka
from ....fixtures.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.deep, pytest.mark.xdist_group("kafka")]

#: A topic that is compacted within a second.
COMPACTED: dict[str, str | int] = {
    "cleanup_policy": "compact",
    "segment_ms": 100,
    "min_cleanable_dirty_ratio": "0.01",
    "delete_retention_ms": 100,
}


def test_newest_message_of_a_key_remains() -> None:
    with Kafka() as kafka:
        kafka.add_topic(kafka.name, 1, **COMPACTED)
        kafka.produce(kafka.name, ("a", b"1"), ("b", b"1"), ("a", b"2"), ("b", None))

        def is_compacted() -> bool:
            # A new message ends the segment, which is compacted then.
            kafka.produce(kafka.name, ("c", b"end"))
            found = kafka.messages(kafka.name)
            return [each for each in found if each[0] != "c"] == [("a", b"2")]

        wait_until(is_compacted, interval_s=0.2)


def test_killed_broker_keeps_its_messages() -> None:
    with DedicatedKafka() as kafka:
        kafka.add_topic(kafka.name)
        kafka.produce(kafka.name, ("a", b"1"))
        kafka.kill()
        kafka.restart()
        assert kafka.messages(kafka.name) == [("a", b"1")]
