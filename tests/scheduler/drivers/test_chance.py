# SPDX-License-Identifier: Apache-2.0
"""The driver "chance" selects any passing host, and claims as every driver does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from moorage.objects import Selection
from moorage.scheduler.errors import NoValidHost
from moorage.testing import SchedulerFixture, host

from ...fixtures.clouds import CONTEXT, new_uuids, request
from ...fixtures.explained_clouds import explained_cloud
from ...fixtures.replayed_views import ReplayedViews


@pytest.fixture
def chance() -> Iterator[SchedulerFixture]:
    """Three hosts that differ in weight, and one that a filter rejects."""
    hosts = [
        host(host=f"h{i}", free_ram_mb=4096 * (i + 1), vcpus_used=0) for i in range(3)
    ]
    # Claims are deleted behind the scheduler's back.
    ours = {"driver": "chance", "random_seed": 7, "candidates_max_age": 0}
    options = {"moorage": ours}
    off = host(host="off", disabled=True)
    with SchedulerFixture(*hosts, off, options=options) as running:
        yield running


def _select(running: SchedulerFixture, uuids: list[str]) -> list[list[Selection]]:
    selections: list[list[Selection]] = running.scheduler.select_destinations(
        CONTEXT,
        request(num_instances=len(uuids), memory_mb=64, root_gb=0),
        uuids,
        return_objects=True,
        return_alternates=True,
    )  # type: ignore[assignment]
    return selections


@pytest.mark.deep
def test_every_passing_host_is_as_likely(chance: SchedulerFixture) -> None:
    chosen, first_alternates = Counter[str](), Counter[str]()
    for _ in range(40):
        [[first, *others]] = _select(chance, uuids := new_uuids())
        chosen[first.service_host] += 1
        first_alternates[others[0].service_host] += 1
        assert {each.service_host for each in (first, *others)} == {"h0", "h1", "h2"}
        chance.placement.delete_allocations(uuids[0])
    for counts in (chosen, first_alternates):
        assert set(counts) == {"h0", "h1", "h2"}
        assert min(counts.values()) > 5, counts


def test_instances_are_claimed_in_one_post_and_counted(
    chance: SchedulerFixture,
) -> None:
    uuids = new_uuids(3)
    answer = _select(chance, uuids)
    for uuid, [first, *_] in zip(uuids, answer, strict=True):
        held = chance.placement.allocations(uuid).resources
        assert list(held) == [first.compute_node_uuid]
    [record] = chance.scheduler.decisions.newest(1)
    assert [len(each.instance_uuids) for each in record.claims] == [3]
    assert not any(top.parts for each in record.instances for top in each.top_hosts)
    assert len(chance.scheduler.table.claims.unreported()) == 3


def test_nothing_stays_claimed_where_not_all_fit(chance: SchedulerFixture) -> None:
    uuids = new_uuids(25)
    with pytest.raises(NoValidHost):
        _select(chance, uuids)
    assert not any(chance.placement.allocations(uuid).resources for uuid in uuids)
    assert not chance.scheduler.table.claims.unreported()


def test_replay_selects_the_same_hosts() -> None:
    with explained_cloud(9, moorage__driver="chance") as (scheduler, _):
        seen = ReplayedViews(scheduler)
        for _ in range(5):
            seen.decide(request(memory_mb=64, root_gb=0), 2)
            found = seen.replayed()
            assert found.recorded.instances
            assert found.is_identical, found.differences
