# SPDX-License-Identifier: Apache-2.0
"""The fixtures for plugin authors: a Placement, and a scheduler with a bus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import oslo_messaging
import pytest

from moorage.objects import Selection
from moorage.scheduler.conf import load
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.rpc import SchedulerAPI, get_transport
from moorage.testing import SchedulerFixture, aggregate, host, spec
from moorage.testing.builders import instance_uuid

CONTEXT = {"request_id": "req-test", "project_id": "project", "user_id": "user"}


@pytest.fixture
def running() -> Iterator[SchedulerFixture]:
    fixture = SchedulerFixture(
        host(host="full", free_ram_mb=0),
        host(host="h1", free_ram_mb=4096),
        host(host="h2", disabled=True),
        aggregates=[aggregate(1, "h1", availability_zone="east")],
        instances={"h1": [instance_uuid("there")]},
        options={"scheduler": {"max_attempts": 2}},
    )
    with fixture:
        yield fixture


def test_conductor_selects_over_the_bus(running: SchedulerFixture) -> None:
    uuid = instance_uuid("new")
    [[chosen]] = running.api.select_destinations(CONTEXT, spec(), [uuid])
    assert chosen.service_host == "h1"
    found: Any = running.placement.read(f"/allocations/{uuid}")
    assert list(found["allocations"]) == [chosen.compute_node_uuid]


def test_placement_and_table_agree(running: SchedulerFixture) -> None:
    with pytest.raises(NoValidHost):
        running.api.select_destinations(
            CONTEXT, spec(memory_mb=4097), [instance_uuid("new")]
        )


def test_options_instances_and_aggregates_are_those_given(
    running: SchedulerFixture,
) -> None:
    table = running.scheduler.table
    assert running.scheduler.conf.scheduler.max_attempts == 2
    assert table.instances.hosts_of(instance_uuid("there")) == ("h1",)
    assert [a.name for a in table.aggregates.of_host("h1")] == ["aggregate1"]


def test_another_can_be_made_after_it(running: SchedulerFixture) -> None:
    running.cleanUp()
    with SchedulerFixture(host(host="h3")) as another:
        [[chosen]] = another.scheduler.select_destinations(
            CONTEXT, spec(), [instance_uuid("new")], return_objects=True
        )
        assert isinstance(chosen, Selection)
    assert chosen.service_host == "h3"
    running.setUp()


def test_what_an_earlier_caller_left_on_the_bus_is_not_served() -> None:
    transport = get_transport(load([], config_files=[]), "fake://")
    with pytest.raises(oslo_messaging.MessagingTimeout):
        SchedulerAPI(transport, timeout_s=1).select_destinations(
            CONTEXT, spec(), [instance_uuid("left")]
        )
    with SchedulerFixture(host(host="h1")) as running:
        running.api.select_destinations(CONTEXT, spec(), [instance_uuid("new")])
    [decision] = running.scheduler.decisions.newest(9)
    assert decision.instance_uuids == (instance_uuid("new"),)
