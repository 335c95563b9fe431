# SPDX-License-Identifier: Apache-2.0
"""A relay that waits knows what the topics have when it is elected."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from moorage.scheduler.kafka_client import topic_settings
from moorage.scheduler.relay.topics import TopicFollower, TopicState
from moorage.testing.builders import instance_uuid, node_uuid

from ...fixtures.kafka import Kafka
from ...fixtures.waiting import wait_until
from .test_relay import RelayedCloud, named

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka")]

ZONE = {"name": "z", "hosts": ["h1"], "metadata": {"availability_zone": "z"}}


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[RelayedCloud]:
    with Kafka() as kafka:
        yield RelayedCloud(kafka, tmp_path)


@pytest.fixture
def follower(cloud: RelayedCloud) -> Iterator[TopicFollower]:
    made = TopicFollower(cloud.conf, time.time)
    yield made
    made.close()


def uuids(state: TopicState) -> set[str]:
    return {*state.nodes}


def read_until(follower: TopicFollower, *names: str) -> None:
    def has_all() -> bool:
        follower.read_some()
        return uuids(follower.state) == {*map(node_uuid, names)}

    wait_until(has_all)


def test_followed_state_is_that_of_reading_all(
    cloud: RelayedCloud, follower: TopicFollower
) -> None:
    cloud.write(named("h1"), named("h2"), named("h3"), aggregates=[ZONE])
    with cloud.leader() as relay:
        read_until(follower, "h1", "h2", "h3")
        cloud.write(named("h1", instances=[instance_uuid("a")]), named("h3"))
        relay.refresh()
        read_until(follower, "h1", "h3")
        cloud.write(named("h1", vcpus=7), named("h4"))
    with cloud.leader():
        pass
    followed = follower.read_to_end()
    assert followed == TopicFollower(cloud.conf, time.time).read_to_end()
    assert uuids(followed) == {node_uuid("h1"), node_uuid("h4")}
    assert followed.aggregates == {}


def test_what_is_known_is_not_read_again(
    cloud: RelayedCloud, follower: TopicFollower
) -> None:
    cloud.write(named("h1"), named("h2"))
    with cloud.leader():
        read_until(follower, "h1", "h2")
    assert uuids(follower.read_to_end()) == {node_uuid("h1"), node_uuid("h2")}
    topics = topic_settings(cloud.conf)
    n_written = sum(len(cloud.kafka.messages(each)) for each in topics)
    assert 0 < follower.n_read <= n_written


def test_topic_that_was_replaced_is_read_again(
    cloud: RelayedCloud, follower: TopicFollower
) -> None:
    cloud.write(named("h1"), named("h2"))
    with cloud.leader():
        read_until(follower, "h1", "h2")
    client = AdminClient({"bootstrap.servers": cloud.kafka.servers})
    topics = topic_settings(cloud.conf)
    for done in client.delete_topics([*topics]).values():
        done.result()
    wait_until(lambda: not {*topics} & {*client.list_topics().topics})
    cloud.kafka.add_topics(topics)
    assert uuids(follower.read_to_end()) == set()
