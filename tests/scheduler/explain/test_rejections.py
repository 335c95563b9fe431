# SPDX-License-Identifier: Apache-2.0
"""What recent decisions rejected hosts and requests for."""

from __future__ import annotations

from typing import Any

from moorage.scheduler.drivers.record import DecisionRecord, FilterStep, Outcome
from moorage.scheduler.explain import RejectionCount, count_rejections


def _record(*steps: FilterStep, outcome: Outcome, **changes: Any) -> DecisionRecord:
    made = DecisionRecord("req", (), 1, started_at=0.0, n_candidates=9, n_hosts=9)
    made.n_known_hosts, made.steps, made.outcome = 9, list(steps), outcome
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_hosts_and_refused_requests_are_counted_by_step_and_reason() -> None:
    half, rest = FilterStep("Half", 9, 4, "too old"), FilterStep("Rest", 4, 0, "off")
    refused = _record(half, rest, outcome=Outcome.NO_VALID_HOST)
    selected = _record(half, outcome=Outcome.SELECTED)
    assert count_rejections([refused, selected, refused]) == [
        RejectionCount("Rest", "off", n_hosts=8, n_decisions=2, n_requests=2),
        RejectionCount("Half", "too old", n_hosts=15, n_decisions=3, n_requests=0),
    ]


def test_a_request_that_placement_refuses_is_counted() -> None:
    record = _record(outcome=Outcome.NO_VALID_HOST, n_hosts=0, n_candidates=0)
    [count] = count_rejections([record])
    assert (count.step, count.n_hosts, count.n_requests) == ("Placement", 9, 1)


def test_a_request_whose_claims_failed_is_counted() -> None:
    record = _record(outcome=Outcome.NO_VALID_HOST)
    [count] = count_rejections([record])
    assert (count.step, count.n_requests) == ("claim", 1)


def test_what_rejected_nothing_is_left_out() -> None:
    kept = FilterStep("Kept", 9, 9, "never")
    assert count_rejections([_record(kept, outcome=Outcome.SELECTED)]) == []
