# SPDX-License-Identifier: Apache-2.0
"""Explanations name the hint about a level, and what the places have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moorage.objects import InstanceGroup, RequestSpec
from moorage.scheduler.errors import InvalidRequest, NoValidHost
from moorage.scheduler.service import Scheduler

from ...conftest import instance_uuid
from ...fixtures.clouds import CONTEXT, host, new_uuids, request, started_scheduler

RACKS = {"a": "r1", "b": "r1", "c": "r2", "d": "r2"}
ONE, TWO, THREE = map(instance_uuid, ("one", "two", "three"))
ON = {"a": [ONE], "b": [THREE], "c": [TWO]}


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    hosts = [
        host(name, places={"rack": rack}, instances=ON.get(name, []))
        for name, rack in RACKS.items()
    ]
    options = {"locality": {"levels": ["rack"]}}
    folder = tmp_path_factory.mktemp("cloud")
    with started_scheduler(folder, *hosts, options=options) as scheduler:
        yield scheduler


def _spec(hints: dict[str, list[str]], *members: str) -> RequestSpec:
    spec = request(instance_uuid=new_uuids(1)[0], scheduler_hints=hints)
    if members:
        group = instance_uuid("group")
        spec.instance_group = InstanceGroup(
            uuid=group, policy="soft-affinity", members=list(members)
        )
    return spec


@pytest.mark.parametrize(
    ("hints", "members", "reason"),
    [
        (
            {"different_rack": [ONE, TWO]},
            (),
            "4 rejected (different_rack: the rack has one of the named instances).",
        ),
        (
            {"same_rack": [instance_uuid("gone")]},
            (),
            "4 rejected (same_rack: no named instance is known, and other server "
            "groups are not looked up).",
        ),
        (
            {"max_server_per_rack": ["1"], "not_in_rack": ["r7"]},
            (ONE, TWO),
            "(max_server_per_rack: the rack has a member of the server group).",
        ),
        (
            {"different_rack": [ONE], "not_in_rack": ["r2"]},
            (),
            "4 rejected (the place breaks not_in_rack or different_rack).",
        ),
    ],
    ids=["instances", "unknown", "one of two", "both"],
)
def test_user_learns_which_hint_leaves_no_host(
    scheduler: Scheduler,
    hints: dict[str, list[str]],
    members: tuple[str, ...],
    reason: str,
) -> None:
    spec = _spec(hints, *members)
    with pytest.raises(NoValidHost) as caught:
        scheduler.select_destinations(CONTEXT, spec, [spec.instance_uuid])
    assert str(caught.value).endswith(reason)


def test_why_not_names_what_the_rack_of_a_host_has(scheduler: Scheduler) -> None:
    spec = _spec({"max_server_per_rack": ["2"]}, ONE, TWO, THREE)
    [verdict] = scheduler.explainer.why_not(CONTEXT, spec, "a")
    [reason] = verdict.reasons
    assert reason.reason == "max_server_per_rack: the rack has 2 members"
    assert reason.available == "rack r1 has 2 of 2 members"


@pytest.mark.parametrize(
    ("hints", "members", "texts"),
    [
        (
            {"max_server_per_rack": ["1"]},
            (ONE, TWO, THREE),
            {
                "without max_server_per_rack "
                "(rack r1 has 2 of 1 members, rack r2 has 1 of 1 members)": 4
            },
        ),
        (
            {"different_rack": [ONE], "not_in_rack": ["r2"]},
            (),
            {
                "without different_rack (rack r1 has 1 of these instances)": 2,
                "without not_in_rack (rack r2)": 2,
            },
        ),
    ],
    ids=["members", "two hints"],
)
def test_closest_names_the_hint_and_what_racks_have(
    scheduler: Scheduler,
    hints: dict[str, list[str]],
    members: tuple[str, ...],
    texts: dict[str, int],
) -> None:
    report = scheduler.explainer.closest(CONTEXT, _spec(hints, *members))
    assert {group.text: group.n_hosts for group in report.groups} == texts


@pytest.mark.parametrize(
    "value", ["rack=", "shelf=s1", "x" * 4000], ids=lambda v: v[:9]
)
def test_a_preference_that_fails_the_request_passes_no_host(
    scheduler: Scheduler, value: str
) -> None:
    spec = _spec({"near": [value]})
    with pytest.raises(InvalidRequest, match="scheduler_hints: near is") as refused:
        scheduler.select_destinations(CONTEXT, spec, [spec.instance_uuid])
    explainer = scheduler.explainer
    for ask in (
        lambda: explainer.why_not(CONTEXT, spec, "a"),
        lambda: explainer.closest(CONTEXT, spec),
    ):
        with pytest.raises(InvalidRequest) as explained:
            ask()
        assert str(explained.value) == str(refused.value)
