# SPDX-License-Identifier: Apache-2.0
"""A decision leaves a record: plain data, and one line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moorage.scheduler.drivers.record import (
    ClaimAttempt,
    DecisionRecord,
    FilterStep,
    InstanceRecord,
    Outcome,
    WeighedHost,
    WeigherPart,
)


def _record(*uuids: str, **changes: Any) -> DecisionRecord:
    plain = {"request_id": "req-1", "n_instances": 1, "started_at": 0.0}
    return DecisionRecord(**{**plain, "instance_uuids": uuids, **changes})


def _full() -> DecisionRecord:
    part = WeigherPart("RAMWeigher", 8192.0, 1.0, 1.0)
    top = WeighedHost("a", "a", 1.0, (part,))
    return _record(
        "u1",
        n_candidates=7,
        is_truncated=True,
        n_hosts=5,
        steps=[FilterStep("ComputeFilter", 5, 3, "down")],
        instances=[InstanceRecord("u1", "a", 1.0, (top,), ("b",))],
        claims=[ClaimAttempt(("u1",), ("a",), "claimed", 2, "")],
        times_ms={"total": 1.25},
        outcome=Outcome.SELECTED,
    )


def test_summary_is_one_line_with_all_steps() -> None:
    assert _full().summary() == (
        "req-1: 1 instance(s) selected; 7 candidate(s) (truncated), 5 host(s)"
        " > ComputeFilter 3; u1 on a (1.000), alternates [b]; 2 claim attempt(s);"
        " total 1.2 ms"
    )


def test_summary_has_the_reason_why_nothing_was_selected() -> None:
    record = _record(outcome=Outcome.NO_VALID_HOST, reason="No such host ")
    assert record.summary().startswith(
        "req-1: 1 instance(s) no valid host (No such host); Placement not queried, "
        "0 host(s); nothing claimed"
    )


def test_record_is_plain_data_that_json_can_hold() -> None:
    again = json.loads(json.dumps(_full().to_dict()))
    assert again["outcome"] == "selected"
    [step] = again["steps"]
    assert (step["name"], step["n_in"], step["n_out"]) == ("ComputeFilter", 5, 3)
    assert again["instances"][0]["top_hosts"][0]["parts"][0]["raw"] == 8192.0


def test_times_of_a_step_add_up() -> None:
    record = _record()
    with record.timed("filters"):
        pass
    first = record.times_ms["filters"]
    with pytest.raises(KeyError), record.timed("filters"):
        raise KeyError
    assert record.times_ms["filters"] >= first >= 0


def test_step_that_later_instances_repeat_is_written_once() -> None:
    counts = [("ComputeFilter", 3), ("NUMATopologyFilter", 3)]
    again = [*counts, ("ComputeFilter", 3), ("NUMATopologyFilter", 2)]
    steps = [FilterStep(name, 3, n_out, "") for name, n_out in again]
    record = _record("u1", "u2", n_candidates=3, n_hosts=3, steps=steps)
    assert "3 host(s) > ComputeFilter 3 > NUMATopologyFilter 3/2;" in record.summary()


def test_line_of_a_failure_names_the_command_that_explains_it() -> None:
    hint = 'see "moorage explain req-1"'
    assert hint in _record(outcome=Outcome.NO_VALID_HOST).summary()
    assert hint in _record(outcome=Outcome.FAILED).summary()
    assert hint not in _record(outcome=Outcome.SELECTED).summary()
    assert "explain" not in _record(outcome=Outcome.FAILED, request_id=None).summary()
