# SPDX-License-Identifier: Apache-2.0
"""A replay is the same to the last bit; another configuration shows what differs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.objects import RequestSpec
from moorage.scheduler.decision_store import codec
from moorage.scheduler.drivers.record import Outcome
from moorage.scheduler.explain import ReplaySummary, replay
from moorage.scheduler.views import OfflineParts, StoredView
from moorage.testing.builders import group

from ...fixtures.clouds import CONTEXT, new_uuids, request
from ...fixtures.explained_clouds import explained_cloud, explained_requests
from ...fixtures.property_tests import examples
from ...fixtures.replayed_views import ReplayedViews


@pytest.fixture(scope="module")
def plain() -> Iterator[ReplayedViews]:
    with explained_cloud(9) as (scheduler, _):
        yield ReplayedViews(scheduler)


# -- another configuration -------------------------------------------------------------


def _small(**changes: Any) -> RequestSpec:
    return request(memory_mb=128, root_gb=0, **changes)


def test_another_weigher_moves_the_ranking(plain: ReplayedViews) -> None:
    plain.decide(_small())
    found = plain.replayed(filter_scheduler={"cpu_weight_multiplier": -100.0})
    changed = {each.what for each in found.differences}
    assert any(what.startswith("CPUWeigher on ") for what in changed)
    assert {"weight", "ranking"} <= changed
    assert found.is_elsewhere


def test_another_filter_is_named(plain: ReplayedViews) -> None:
    plain.decide(_small())
    assert plain.replayed().recorded.outcome is Outcome.SELECTED
    hosts = [each.host for each in plain.replayed().recorded.instances]
    isolating = ["IsolatedHostsFilter"]
    found = plain.replayed(
        filter_scheduler={
            "enabled_filters": isolating,
            "isolated_hosts": hosts,
            "isolated_images": ["11111111-1111-4111-8111-111111111111"],
        }
    )
    [isolated] = [e for e in found.differences if e.what == f"filter {isolating[0]}"]
    assert isolated.recorded is None
    assert isolated.replayed[1] == isolated.replayed[0] - 1
    assert hosts != [each.host for each in found.replayed.instances]


def test_replays_are_summed_up(plain: ReplayedViews) -> None:
    summary, n_elsewhere = ReplaySummary(), 0
    for multiplier in (1.0, -100.0):
        plain.decide(_small())
        found = plain.replayed(filter_scheduler={"cpu_weight_multiplier": multiplier})
        offline = OfflineParts(StoredView.decode(plain.views[str(len(plain.views))]))
        summary.add(found, offline, 128)
        n_elsewhere += found.is_elsewhere
    counts = summary.to_dict()
    assert (counts["replayed"], counts["elsewhere"]) == (2, n_elsewhere)
    assert 0 < counts["memory_fill"]["recorded"] <= 1
    assert counts["hosts"]["recorded"] >= 1


def test_a_group_is_replayed_on_the_hosts_of_its_members(plain: ReplayedViews) -> None:
    plain.decide(_small(instance_group=group("anti-affinity")), 2)
    assert plain.replayed().is_identical


@pytest.mark.parametrize("n_instances", [1, 2])
def test_a_request_of_an_old_conductor_is_replayed(
    plain: ReplayedViews, n_instances: int
) -> None:
    spec = _small(num_instances=n_instances)
    plain.scheduler.select_destinations(CONTEXT, spec)
    found = plain.replayed()
    assert len(found.recorded.instances) == n_instances
    assert found.is_identical


def test_a_rebuild_is_replayed(plain: ReplayedViews) -> None:
    [uuid] = new_uuids()
    plain.scheduler.select_destinations(CONTEXT, _small(), [uuid])
    host = plain.scheduler.decisions.newest(1)[0].instances[0].host
    rebuild = _small(
        scheduler_hints={"_nova_check_type": ["rebuild"]}, force_hosts=[host]
    )
    plain.scheduler.select_destinations(CONTEXT, rebuild, [uuid])
    found = plain.replayed()
    assert found.recorded.queries == []
    assert found.is_identical


def test_a_recorded_refusal_moves_a_replay_as_it_moved_the_decision(
    plain: ReplayedViews,
) -> None:
    plain.decide(_small())
    record, primitive = codec.decode(plain.records[-1])
    assert record.replay is not None
    assert primitive is not None
    [granted] = record.claims
    record.claims.insert(0, dataclasses.replace(granted, result="refused"))
    offline = OfflineParts(StoredView.decode(plain.views[record.replay.view]))
    found = replay(offline, record.replay, record, codec.read_request(primitive))
    assert found.replayed.instances[0].host != granted.hosts[0]
    assert found.n_assumed == 1


# -- drawn requests -------------------------------------------------------------------


@examples(0.3)
@given(spec=explained_requests(), n_instances=st.integers(1, 3))
def test_a_replay_of_a_request_that_mostly_fits_nowhere_is_the_same(
    plain: ReplayedViews, spec: RequestSpec, n_instances: int
) -> None:
    plain.decide(spec, n_instances)
    found = plain.replayed()
    for placed in found.recorded.instances:  # else the cloud would fill up
        assert placed.instance_uuid
        plain.scheduler.placement.delete_allocations(placed.instance_uuid)
    assert found.is_identical
