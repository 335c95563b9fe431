# SPDX-License-Identifier: Apache-2.0
"""The funnel of a decision, from its record alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.cmd.cli.tables import funnel_table
from moorage.scheduler.drivers.record import DecisionRecord, FilterStep, Outcome
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.explain import (
    FunnelStep,
    RejectionCount,
    cause_of,
    count_rejections,
    funnel,
    with_funnel,
)
from moorage.scheduler.service import Scheduler, build

from ...fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory

Decide = Callable[[int], DecisionRecord]


def _record(**changes: Any) -> DecisionRecord:
    fields: dict[str, Any] = {
        "queries": ["/q"],
        "n_candidates": 5,
        "n_known_hosts": 9,
        "n_hosts": 5,
    }
    fields |= {"n_instances": 1, **changes}
    return DecisionRecord("req", (), started_at=0.0, **fields)


def test_placements_answer_is_the_first_step() -> None:
    steps = [FilterStep("A", 5, 5, "reason a"), FilterStep("B", 5, 0, "reason b")]
    assert funnel(_record(steps=steps)) == [
        FunnelStep("Placement", 9, 5, "not all that was asked of Placement"),
        FunnelStep("A", 5, 5),
        FunnelStep("B", 5, 0, "reason b"),
    ]


@pytest.fixture(
    params=[
        pytest.param(
            ("filter_scheduler", "placement"), id="filter_scheduler, placement"
        ),
        pytest.param(("filter_scheduler", "memory"), id="filter_scheduler, memory"),
        pytest.param(("solver", "placement"), id="solver"),
    ]
)
def decide(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Decide]:
    """Decide for some instances on 5 hosts; one is down, each takes one instance."""
    hosts = [host(f"h{n}", forced_down=n == 4) for n in range(5)]
    conf = moorage_conf.load([], config_files=[])
    path = write_inventory(tmp_path, *hosts)
    conf.set_override("inventory_file", str(path), group="moorage")
    driver, candidates = request.param
    conf.set_override("driver", driver, group="moorage")
    conf.set_override("candidates", candidates, group="moorage")
    conf.set_override("max_instances_per_host", 1, group="filter_scheduler")
    conf.set_override(
        "enabled_filters", ["ComputeFilter", "NumInstancesFilter"],
        group="filter_scheduler",
    )  # fmt: skip
    scheduler = build(conf)
    scheduler.start()
    yield lambda n: _decide(scheduler, n)
    scheduler.stop()


def _decide(scheduler: Scheduler, n_instances: int) -> DecisionRecord:
    with contextlib.suppress(NoValidHost):
        scheduler.select_destinations(
            CONTEXT, request(num_instances=n_instances), new_uuids(n_instances)
        )
    [record] = scheduler.decisions.newest(1)
    return record


DOWN = "compute service disabled or down"


@pytest.mark.parametrize("n_instances", [1, 3])
def test_of_several_instances_the_first_one_is_shown(
    decide: Decide, n_instances: int
) -> None:
    # The later ones lose the hosts that the earlier ones filled.
    assert funnel(decide(n_instances))[1:] == [
        FunnelStep("ComputeFilter", 5, 4, DOWN),
        FunnelStep("NumInstancesFilter", 4, 4),
    ]


def test_the_instance_that_found_no_host_is_shown_with_its_number(
    decide: Decide,
) -> None:
    record = decide(5)
    of_first = [step for step in funnel(record)[1:] if step.instance == 1]
    assert of_first == [
        FunnelStep("ComputeFilter", 5, 4, DOWN),
        FunnelStep("NumInstancesFilter", 4, 4),
    ]
    if of_last := funnel(record)[3:]:  # the solver places all of them at once
        assert {step.instance for step in of_last} == {5}
        assert of_last[-1].n_out == 0
    [down, *_] = sorted(count_rejections([record]), key=lambda each: -each.n_hosts)
    assert down == RejectionCount("ComputeFilter", DOWN, 1, 1, 0)
    assert sum(each.n_requests for each in count_rejections([record])) == 1


def test_rejections_of_several_instances_are_those_of_the_first(decide: Decide) -> None:
    assert count_rejections([decide(3)]) == [
        RejectionCount("ComputeFilter", DOWN, n_hosts=1, n_decisions=1)
    ]


def test_table_names_the_instances_that_it_is_about() -> None:
    steps = [FilterStep("A", 5, 4, "a", 0), FilterStep("A", 4, 0, "a", 1)]
    record = _record(steps=steps, n_instances=2, outcome=Outcome.NO_VALID_HOST)
    table = funnel_table(with_funnel(record))
    assert str(table.title).endswith(", for the first of 2 instances")
    assert [str(each) for each in table.columns[0].cells] == [
        "Placement", "A", "A, instance 2",
    ]  # fmt: skip


def test_an_instance_is_shown_as_the_filters_ran_for_it_last() -> None:
    steps = [
        FilterStep("force_hosts", 5, 4, "required"),
        FilterStep("A", 4, 3, "a", 0),
        FilterStep("B", 3, 2, "b", 0),
        # Its host was not granted.
        FilterStep("A", 4, 0, "a", 0),
    ]
    assert funnel(_record(steps=steps))[1:] == [
        FunnelStep("force_hosts", 5, 4, "required"),
        FunnelStep("A", 4, 0, "a"),
    ]


def test_steps_of_an_earlier_release_are_those_of_the_first_instance() -> None:
    steps = [FilterStep("A", 5, 4, "a"), FilterStep("A", 4, 4, "a")]
    record = _record(steps=steps, n_instances=2)
    assert funnel(record)[1:] == [FunnelStep("A", 5, 4, "a")]


def test_a_rebuild_has_no_step_of_placement() -> None:
    record = _record(queries=[], n_candidates=None, steps=[FilterStep("A", 1, 1, "")])
    assert [step.name for step in funnel(record)] == ["A"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"n_candidates": None, "no_answer": "Placement gave no answer"},
            "Placement gave no answer",
        ),
        ({"n_hosts": 9, "is_truncated": True}, "truncated at [scheduler]"),
        (
            {"n_hosts": 9, "n_without_row": 2},
            "2 provider(s) of candidates belong to no known host",
        ),
    ],
)
def test_what_is_known_of_placements_answer_is_said(
    changes: dict[str, Any], reason: str
) -> None:
    assert funnel(_record(**changes))[0].reason.startswith(reason)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("resources=VCPU:1,MEMORY_MB:2", "too little MEMORY_MB or VCPU"),
        (
            "resources=VCPU:1&root_required=!COMPUTE_STATUS_DISABLED,!CUSTOM_A",
            "too little VCPU, or the forbidden trait CUSTOM_A, or disabled",
        ),
        (
            "resources_1=VGPU:1&required_1=HW_X,in:CUSTOM_B&group_policy=none",
            "too little VGPU, or no trait CUSTOM_B or HW_X",
        ),
        (
            "resources=VCPU:1&member_of=in:a,b&member_of=!c&in_tree=d",
            "too little VCPU, or outside the zone or aggregates that are required, or "
            "in a forbidden aggregate, or not the requested host",
        ),
        ("resources=VCPU:1&required=HW_A…", "too little VCPU, or no trait HW_A"),
    ],
)
def test_hosts_that_placement_left_out_lack_what_it_was_asked(
    query: str, reason: str
) -> None:
    record = _record(queries=[f"/allocation_candidates?limit=3&{query}"])
    assert funnel(record)[0].reason == reason


@pytest.mark.parametrize("n_providers", [1, 2, 1000])
def test_a_cause_names_no_number_of_providers(n_providers: int) -> None:
    record = _record(n_hosts=0, n_known_hosts=0, n_without_row=n_providers)
    assert (
        cause_of(record) == "Placement: providers of candidates belong to no known host"
    )


def test_a_cause_names_placement_once() -> None:
    record = _record(n_candidates=None, no_answer="Placement rejected the query")
    assert cause_of(record) == "Placement rejected the query"


def _rejecting(*steps: FilterStep, outcome: Outcome, **changes: Any) -> DecisionRecord:
    made = DecisionRecord("req", (), 1, started_at=0.0, n_candidates=9, n_hosts=9)
    made.n_known_hosts, made.steps, made.outcome = 9, list(steps), outcome
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_hosts_and_refused_requests_are_counted_by_step_and_reason() -> None:
    half, rest = FilterStep("Half", 9, 4, "too old"), FilterStep("Rest", 4, 0, "off")
    refused = _rejecting(half, rest, outcome=Outcome.NO_VALID_HOST)
    selected = _rejecting(half, outcome=Outcome.SELECTED)
    assert count_rejections([refused, selected, refused]) == [
        RejectionCount("Rest", "off", n_hosts=8, n_decisions=2, n_requests=2),
        RejectionCount("Half", "too old", n_hosts=15, n_decisions=3, n_requests=0),
    ]


def test_a_request_that_placement_refuses_is_counted() -> None:
    record = _rejecting(outcome=Outcome.NO_VALID_HOST, n_hosts=0, n_candidates=0)
    [count] = count_rejections([record])
    assert (count.step, count.n_hosts, count.n_requests) == ("Placement", 9, 1)


def test_a_request_whose_claims_failed_is_counted() -> None:
    record = _rejecting(outcome=Outcome.NO_VALID_HOST)
    [count] = count_rejections([record])
    assert (count.step, count.n_requests) == ("claim", 1)


def test_what_rejected_nothing_is_left_out() -> None:
    kept = FilterStep("Kept", 9, 9, "never")
    assert count_rejections([_rejecting(kept, outcome=Outcome.SELECTED)]) == []
