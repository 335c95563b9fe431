# SPDX-License-Identifier: Apache-2.0
"""The command replay: with other options for some of the decision's."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from moorage.scheduler.cmd.cli.main import cli

from ....fixtures.explaining_api import SELECTED

Call = Callable[..., Result]

SPREAD, PACKED = "cpu_weight_multiplier", "ram_weight_multiplier"


@pytest.fixture
def call(url: str) -> Call:
    """Call replay on decisions that were made without any filter."""

    def call(*args: str, status: int = 0) -> Result:
        result = CliRunner().invoke(cli, ["--url", url, "replay", *args])
        assert result.exit_code == status, result.output
        return result

    return call


def test_option_is_set_beside_those_of_the_decision(call: Call) -> None:
    text = call(SELECTED, "--set", f"filter_scheduler.{SPREAD}=-10").stdout
    assert "CPUWeigher on" in text
    assert "filter " not in text
    same = call(SELECTED, "--set", f"filter_scheduler.{SPREAD}=1.0").stdout
    assert "Identical to the last bit" in same


def test_scores_say_which_multipliers_come_from_a_preset(call: Call) -> None:
    text = call(SELECTED, "--set", "moorage.preset=pack").stdout
    recorded, _, replayed = text.partition("Scores, replayed")
    assert "by preset" not in recorded
    assert "RAMWeigher: -1 by preset pack" in " ".join(replayed.split())


def test_file_replaces_only_the_options_that_it_has(call: Call, tmp_path: Path) -> None:
    other = tmp_path / "other.conf"
    other.write_text(f"[filter_scheduler]\n{SPREAD} = -10\n")
    text = call(SELECTED, "--config-file", str(other)).stdout
    assert "CPUWeigher on" in text
    assert "filter " not in text
    # Also those whose value there is the default.
    other.write_text("[filter_scheduler]\nenabled_filters = ComputeFilter\n")
    assert "filter ComputeFilter" in call(SELECTED, "--config-file", str(other)).stdout


def test_setting_replaces_that_of_a_file(call: Call, tmp_path: Path) -> None:
    other = tmp_path / "other.conf"
    other.write_text(f"[filter_scheduler]\n{SPREAD} = -10\n{PACKED} = 1\n")
    both = ["--config-file", str(other), "--set", f"filter_scheduler.{SPREAD}=1"]
    assert "Identical to the last bit" in call(SELECTED, *both).stdout


def test_lists_are_set_as_in_a_file(call: Call) -> None:
    filters = "filter_scheduler.enabled_filters=ComputeFilter, NumInstancesFilter"
    text = call(SELECTED, "--set", filters).stdout
    assert "filter ComputeFilter" in text
    assert "filter NumInstancesFilter" in text


def test_settings_hold_for_all_decisions_of_an_hour(call: Call) -> None:
    text = call("--since", "1h", "--set", f"filter_scheduler.{SPREAD}=-10").stdout
    assert "3 decision(s) replayed, 0 without a view" in text
    assert "0 could not be repeated" in text
    _, _, counts = text.partition("without a view: ")
    assert sum(map(int, re.findall(r"\b\d+\b", counts.partition(".")[0]))) == 3


@pytest.mark.parametrize(
    ("setting", "status", "why"),
    [
        ("cpu_weight_multiplier=1", 2, "is not GROUP.OPTION=VALUE"),
        ("filter_scheduler.cpu_weight_multiplier", 2, "is not GROUP.OPTION=VALUE"),
        (
            "filter_scheduler.cpu_weight_multiplier=two",
            1,
            "cpu_weight_multiplier = two: not a number (--set)",
        ),
        (
            "filter_scheduler.cpu_weight_multiplyer=2",
            1,
            "Did you mean cpu_weight_multiplier?",
        ),
    ],
)
def test_setting_that_is_invalid_is_refused(
    call: Call, setting: str, status: int, why: str
) -> None:
    assert why in call(SELECTED, "--set", setting, status=status).stderr
