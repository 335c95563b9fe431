# SPDX-License-Identifier: Apache-2.0
"""The funnel of a decision, from its record alone."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.scheduler.drivers.record import DecisionRecord, FilterStep
from moorage.scheduler.explain import FunnelStep, funnel


def _record(**changes: Any) -> DecisionRecord:
    fields = {"queries": ["/q"], "n_candidates": 5, "n_known_hosts": 9, "n_hosts": 5}
    return DecisionRecord("req", (), 1, started_at=0.0, **{**fields, **changes})


def test_placements_answer_is_the_first_step() -> None:
    steps = [FilterStep("A", 5, 5, "reason a"), FilterStep("B", 5, 0, "reason b")]
    assert funnel(_record(steps=steps)) == [
        FunnelStep("Placement", 9, 5, "resources, traits or aggregates are missing"),
        FunnelStep("A", 5, 5),
        FunnelStep("B", 5, 0, "reason b"),
    ]


def test_a_filter_of_several_instances_stands_once() -> None:
    steps = [FilterStep("A", 5, 4, "a"), FilterStep("A", 4, 4, "a")]
    assert funnel(_record(steps=steps))[1:] == [FunnelStep("A", 5, 4, "a")]


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
        ({"n_hosts": 9, "n_without_row": 2}, "2 provider(s) are not known as hosts"),
    ],
)
def test_what_is_known_of_placements_answer_is_said(
    changes: dict[str, Any], reason: str
) -> None:
    assert funnel(_record(**changes))[0].reason.startswith(reason)
