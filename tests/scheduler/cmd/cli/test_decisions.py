# SPDX-License-Identifier: Apache-2.0
"""`moorage decisions`: groups of failures, and the mark of stale host state."""

from __future__ import annotations

import json
import time

from click.testing import CliRunner

from moorage.scheduler.cmd.cli.main import cli
from moorage.scheduler.drivers.record import DecisionRecord, Outcome
from moorage.testing.builders import instance_uuid

from ....fixtures.explaining_api import FAILED, ExplainingAPI, decide

_UUIDS = [instance_uuid(number) for number in range(900, 903)]


def _run(url: str, *args: str) -> str:
    result = CliRunner().invoke(cli, ["--url", url, "decisions", *args])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_failures_are_grouped_by_cause_and_by_what_was_requested(
    api: ExplainingAPI, url: str
) -> None:
    gold_specs = {"trait:CUSTOM_GOLD": "required"}
    for number in range(2):
        id_ = f"req-gold-{number}"
        decide(api.scheduler, id_, [_UUIDS[number]], vcpus=512, extra_specs=gold_specs)
    decide(api.scheduler, "req-large", [_UUIDS[2]], vcpus=513)
    api.store.flush()
    groups = json.loads(_run(url, "--group", "--json"))["groups"]
    by_example = {group["example"]: group for group in groups}
    gold, large = by_example["req-gold-1"], by_example["req-large"]
    assert gold["n_decisions"] == 3  # with `FAILED`, the oldest of them
    assert "512 vCPU" in gold["shape"]
    assert "trait:CUSTOM_GOLD=required" in gold["shape"]
    assert large["n_decisions"] == 1
    assert "513 vCPU" in large["shape"]
    assert FAILED not in by_example
    table = _run(url, "--group", "--project", "project")
    assert "req-gold-1" in table
    assert "trait:CUSTOM_GOLD=required" in " ".join(table.split())
    assert "No stored" in _run(url, "--group", "--project", "other")


def test_limit_of_stale_state_is_shown_beside_the_mark(
    api: ExplainingAPI, url: str
) -> None:
    assert "stale" not in _run(url, "--limit", "1")
    record = DecisionRecord("req-stale", (), 1, time.time(), view_age_s=500.0)
    record.outcome = Outcome.SELECTED
    api.store.add(record)
    api.store.flush()
    text = " ".join(_run(url, "--limit", "1").split())
    assert "host state 500 s old" in text
    assert "max_view_age, 120 s, is stale" in text


def test_selected_decisions_have_no_groups() -> None:
    args = ["--url", "http://h", "decisions", "--group", "--selected"]
    result = CliRunner().invoke(cli, args)
    assert result.exit_code == 2
    assert "Pass --group or --selected, not both" in result.stderr
