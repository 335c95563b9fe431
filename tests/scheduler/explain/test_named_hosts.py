# SPDX-License-Identifier: Apache-2.0
"""Explanations of a request that names a host ask Placement what the decision asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moorage.objects import Destination
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.service import Scheduler

from ...fixtures.clouds import CONTEXT
from ...fixtures.placed_clouds import CloudKind, chosen_hosts, placed_cloud, placing

KINDS = [
    CloudKind("filter_scheduler", candidates, "aggregates", is_shared)
    for candidates in ("memory", "api")
    for is_shared in (False, True)
]
FORCED = {"force_hosts": ["c"]}


def _requested(host: str, node: str | None = None) -> dict[str, Any]:
    return {"requested_destination": Destination(host=host, node=node)}


@pytest.fixture(scope="module", params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> CloudKind:
    found: CloudKind = request.param
    return found


@pytest.fixture(scope="module")
def scheduler(
    kind: CloudKind, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scheduler]:
    with placed_cloud(kind, tmp_path_factory.mktemp("cloud")) as made:
        yield made


@pytest.mark.parametrize("changes", [FORCED, _requested("c")], ids=["forced", "wanted"])
def test_named_host_passes_only_if_placement_grants_its_disk(
    kind: CloudKind, scheduler: Scheduler, changes: dict[str, Any]
) -> None:
    spec, uuids = placing(**changes)
    [verdict] = scheduler.explainer.why_not(CONTEXT, spec, "c")
    report = scheduler.explainer.closest(CONTEXT, spec)
    if not kind.is_shared:
        assert chosen_hosts(scheduler, spec, uuids) == ["c"]
        assert not verdict.reasons
        assert report.n_passing == 1
        return
    with pytest.raises(NoValidHost):
        chosen_hosts(scheduler, spec, uuids)
    [reason] = verdict.reasons
    assert reason.check == "DISK_GB"
    assert "sharing provider" in reason.reason
    assert report.n_passing == 0
    assert report.groups


@pytest.mark.parametrize(
    "changes",
    [_requested("nosuch"), _requested("nosuch", "nosuch")],
    ids=["host", "node"],
)
def test_closest_to_a_request_for_a_host_without_a_node_is_another_host(
    scheduler: Scheduler, changes: dict[str, Any]
) -> None:
    spec, uuids = placing(**changes)
    with pytest.raises(NoValidHost):
        chosen_hosts(scheduler, spec, uuids)
    report = scheduler.explainer.closest(CONTEXT, spec)
    assert report.groups
    assert any("requested" in str(each.changes) for each in report.groups)


def test_host_in_a_zone_is_not_called_outside_because_of_its_pool(
    kind: CloudKind, scheduler: Scheduler
) -> None:
    spec, uuids = placing(availability_zone="az1")
    [verdict] = scheduler.explainer.why_not(CONTEXT, spec, "c")
    if not kind.is_shared:
        assert chosen_hosts(scheduler, spec, uuids)
        assert not verdict.reasons
        return
    with pytest.raises(NoValidHost):
        chosen_hosts(scheduler, spec, uuids)
    [reason] = verdict.reasons
    assert reason.reason.startswith(
        "the provider that shares DISK_GB with it is not in"
    )
    [outside] = scheduler.explainer.why_not(CONTEXT, spec, "x")
    assert not any(
        each.reason.startswith("the provider that shares") for each in outside.reasons
    )
    [group, *_] = scheduler.explainer.closest(CONTEXT, spec).groups
    assert "the provider that the hosts share added to aggregate az1" in str(
        group.changes
    )
