# SPDX-License-Identifier: Apache-2.0
"""The search of settings: the front, bounds, what is certain, and determinism."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.simulator.simulation import MEASURES, Result
from moorage.simulator.tuning import (
    PRESENT,
    Goal,
    Run,
    SearchedOption,
    Settings,
    Tuning,
    search,
    tune,
)

OPTION = SearchedOption("filter_scheduler.ram_weight_multiplier", -2, 2)
GOAL = Goal(("refused", "empty_hosts"), {}, {})


def result(refused: int, **measured: float) -> Result:
    """Return a run in which the measures had one value all the time."""
    one = Result("", "", 0, 10, None, n_requests=100, n_refused=refused)
    one.series = {name: [measured.get(name, 0.0)] for name in MEASURES}
    one.used_at_end = np.zeros((10, 2))
    return one


def run_with_optimum(settings: Settings, moved_by: int | None) -> Sequence[Result]:
    """Empty hosts are most at 0.7; above 1, instances are refused."""
    value = float(settings.get(OPTION.name, 0.0))
    noise = 0.01 * ((moved_by or 0) % 2)
    return [result(int(value > 1), empty_hosts=1 - (value - 0.7) ** 2 + noise)]


def tuned(goal: Goal = GOAL, run: Run = run_with_optimum, n_trials: int = 30) -> Tuning:
    present = {OPTION.name: "0"}
    return tune([OPTION], goal, run, present, n_trials=n_trials, n_seeds=2, seed=0)


figures = st.fixed_dictionaries(
    {
        "refused": st.integers(0, 3).map(float),
        "empty_hosts": st.integers(0, 4).map(lambda n: n / 4),
        "density": st.integers(0, 4).map(lambda n: n / 4),
    }
)


@given(summaries=st.dictionaries(st.text(max_size=2), figures, min_size=1, max_size=12))
def test_front_has_what_nothing_beats(summaries: dict[str, dict[str, float]]) -> None:
    goal = Goal(("refused", "empty_hosts"), {"density": 0.5}, {})
    front = goal.front(summaries)

    def beats(one: dict[str, float], other: dict[str, float]) -> bool:
        a = one["refused"], -one["empty_hosts"]
        b = other["refused"], -other["empty_hosts"]
        return a != b and a[0] <= b[0] and a[1] <= b[1]

    least = min(max(0.0, s["density"] - 0.5) for s in summaries.values())
    within = {
        name: s for name, s in summaries.items() if s["density"] <= 0.5 + least
    }  # fmt: skip
    assert front
    assert set(front) <= set(within)
    for name in front:
        assert not any(beats(other, within[name]) for other in within.values())
    ranked = [(within[name]["refused"], -within[name]["empty_hosts"]) for name in front]
    assert ranked == sorted(ranked)
    # Every best value is on the front, once.
    unbeaten = {
        (one["refused"], one["empty_hosts"])
        for one in within.values()
        if not any(beats(other, one) for other in within.values())
    }
    assert len(front) == len(unbeaten)


def test_search_finds_the_optimum_and_what_is_as_good() -> None:
    tuning = tuned()
    best = float(tuning.settings[tuning.best][OPTION.name])
    assert best == pytest.approx(0.7, abs=0.15)
    least, most = map(float, tuning.equal_ranges()[OPTION.name])
    assert least <= best <= most
    assert tuning.comparison.difference(tuning.best, "empty_hosts").mean > 0.4


def test_bound_outranks_the_goal() -> None:
    goal = Goal(("empty_hosts",), {}, {"empty_hosts": 0.2})
    assert goal.rank({"empty_hosts": 0.3}) < goal.rank({"empty_hosts": 0.1})
    bounded = Goal(("refused",), {"empty_hosts": 0.5}, {})
    tuning = tuned(bounded)
    assert tuning.comparison.mean(tuning.best, "empty_hosts") <= 0.5
    impossible = Goal(("refused",), {}, {"empty_hosts": 3.0})
    assert "No settings that were tried are within the bounds" in [
        *tuned(impossible).doubts()
    ]


def test_present_settings_that_nothing_beats_are_the_best() -> None:
    def run(settings: Settings, _moved_by: int | None) -> Sequence[Result]:
        return [result(0, empty_hosts=0.1 if settings else 0.9)]

    tuning = tuned(run=run, n_trials=3)
    assert tuning.best == PRESENT
    assert tuning.equal_ranges() == {}


def test_gain_by_chance_is_a_doubt() -> None:
    def run(settings: Settings, moved_by: int | None) -> Sequence[Result]:
        chance = (moved_by or 0) * 0.1 if settings else 0.0
        return [result(0, empty_hosts=0.5 + chance)]

    tuning = tuned(run=run, n_trials=3)
    [doubt] = [text for text in tuning.doubts() if PRESENT in text]
    assert doubt.endswith("in hosts without an instance: +15.0 ± 63.5")


def test_edge_of_a_range_is_a_doubt() -> None:
    edge = SearchedOption(OPTION.name, -2, -1)
    assert edge.is_at_edge("-1")
    assert not edge.is_at_edge("-1.5")
    # What is off cannot be more so.
    assert not SearchedOption(OPTION.name, 0, 2).is_at_edge("0")


def test_starts_outside_the_ranges_are_left_out() -> None:
    starts = [{OPTION.name: "9"}, {OPTION.name: "0.7"}]
    trials = search([OPTION], GOAL, run_with_optimum, starts=starts, n_trials=1, seed=0)
    assert [trial.settings for trial in trials] == [{OPTION.name: "0.7"}]


def test_choices_and_integers_are_searched() -> None:
    options = [
        SearchedOption("moorage.driver", choices=("filter_scheduler", "solver")),
        SearchedOption("filter_scheduler.host_subset_size", 1, 3, is_integer=True),
    ]
    tried = []

    def run(settings: Settings, _moved_by: int | None) -> Sequence[Result]:
        tried.append(tuple(settings.values()))
        return [result(0)]

    search(options, GOAL, run, n_trials=20, seed=0)
    assert {driver for driver, _ in tried} == {"filter_scheduler", "solver"}
    assert {size for _, size in tried} == {"1", "2", "3"}
    assert len(set(tried)) == len(tried)  # none is run twice


@pytest.mark.deep
def test_search_is_the_same_with_another_hash_seed() -> None:
    program = (
        "from moorage.simulator.simulation import MEASURES, Result\n"
        "from moorage.simulator.tuning import Goal, SearchedOption, search\n"
        "options = [SearchedOption(f'x.{name}', -2, 2) for name in ('cpu', 'ram')]\n"
        "def run(settings, moved_by):\n"
        "    one = Result('', '', 0, 10, None)\n"
        "    cpu, ram = map(float, settings.values())\n"
        "    one.series = {name: [cpu * ram] for name in MEASURES}\n"
        "    return [one]\n"
        "goal = Goal(('density', 'empty_hosts'), {}, {'density': 1})\n"
        "trials = search(options, goal, run, n_trials=15, seed=5)\n"
        "found = [[*trial.settings.values()] for trial in trials]\n"
        "if __name__ == '__main__':\n"
        "    print(found)\n"
    )
    here: dict[str, Any] = {}
    exec(program, here)
    printed = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "2"},
        capture_output=True,
        check=True,
    ).stdout
    assert printed.decode().strip() == str(here["found"])
    assert len(here["found"]) == 15
