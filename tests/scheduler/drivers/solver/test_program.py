# SPDX-License-Identifier: Apache-2.0
"""The integer program finds the best of all placings, compared with trying them all."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.scheduler.drivers.solver.program import Problem, Result, SharedRoom, solve
from moorage.scheduler.locality import (
    EvenPlaces,
    JointRule,
    OnePlace,
    PlacesUsed,
    RoomOfPlaces,
)

from ....fixtures.property_tests import examples

N_PLACES = 3
LIMIT_S = 60.0


@st.composite
def _rules(draw: st.DrawFn, n_hosts: int) -> JointRule:
    number = st.integers(0, N_PLACES - 1)
    places = np.array(draw(st.lists(number, min_size=n_hosts, max_size=n_hosts)))
    few = st.lists(st.integers(0, 3), min_size=N_PLACES, max_size=N_PLACES)
    kind = draw(st.sampled_from(["any", "room", "one", "even"]))
    if kind == "room":
        return RoomOfPlaces(places, np.array(draw(few)))
    if kind == "one":
        return OnePlace(places)
    if kind == "even":
        counted = np.unique([*places, *draw(st.lists(number, max_size=1))])
        return EvenPlaces(places, np.array(draw(few)), counted, draw(st.integers(1, 2)))
    return JointRule(places)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    n_hosts = draw(st.integers(1, 4))
    n_options = n_hosts + draw(st.integers(0, 1))
    host = st.integers(0, n_hosts - 1)
    hosts = np.array([*range(n_hosts), *draw(_lists(host, n_options - n_hosts))])
    weight = st.integers(-4, 4).map(lambda n: n / 2)
    shared = []
    if draw(st.booleans()):
        options = np.array([0, n_options - 1]) if n_options > 1 else np.array([0])
        amounts = np.array(draw(_lists(st.integers(1, 2), len(options))))
        shared.append(SharedRoom(options, amounts, draw(st.integers(0, 5))))
    wishes = []
    if draw(st.booleans()):
        places = np.array(draw(_lists(st.integers(-1, N_PLACES - 1), n_hosts)))
        gains = np.array(draw(_lists(weight, N_PLACES)), float)
        wishes.append(PlacesUsed(places, gains))
    return Problem(
        n_instances=draw(st.integers(1, 4)),
        hosts=hosts,
        candidates=np.arange(n_options),
        most=np.array(draw(_lists(st.integers(0, 3), n_options))),
        weights=np.array(draw(_lists(weight, n_hosts)), float),
        shared=shared,
        rules=draw(st.lists(_rules(n_hosts), max_size=2)),
        wishes=wishes,
    )


def _lists(of: st.SearchStrategy[int | float], length: int) -> st.SearchStrategy[list]:
    return st.lists(of, min_size=length, max_size=length)


def _placings(problem: Problem) -> Iterator[npt.NDArray[np.int64]]:
    each = (range(int(most) + 1) for most in problem.most)
    for numbers in itertools.product(*each):
        if sum(numbers) == problem.n_instances:
            placed = np.array(numbers)
            if all(_has_room(room, placed) for room in problem.shared) and all(
                _conforms(rule, problem, placed) for rule in problem.rules
            ):
                yield placed


def _has_room(room: SharedRoom, placed: npt.NDArray[np.int64]) -> bool:
    return bool((placed[room.options] * room.amounts).sum() <= room.free)


def _by_place(
    places: npt.NDArray[np.integer], problem: Problem, placed: npt.NDArray[np.int64]
) -> list[int]:
    at = places[problem.hosts]
    return [int(placed[at == place].sum()) for place in range(N_PLACES)]


def _conforms(rule: JointRule, problem: Problem, placed: npt.NDArray[np.int64]) -> bool:
    added = _by_place(rule.places, problem, placed)
    if isinstance(rule, RoomOfPlaces):
        return all(n <= room for n, room in zip(added, rule.room, strict=True))
    if isinstance(rule, OnePlace):
        return sum(n > 0 for n in added) == 1
    if isinstance(rule, EvenPlaces):
        total = [int(c) + n for c, n in zip(rule.counts, added, strict=True)]
        least = min(total[place] for place in rule.counted)
        return all(
            total[place] <= least + rule.max_skew
            for place in range(N_PLACES)
            if added[place]
        )
    return True


def _sum(problem: Problem, placed: npt.NDArray[np.int64]) -> float:
    total = float((problem.weights[problem.hosts] * placed).sum())
    for wish in problem.wishes:
        used = _by_place(wish.places, problem, placed)
        total += sum(w for w, n in zip(wish.weights, used, strict=True) if n)
    return total


@examples(4)
@given(problems())
def test_answer_is_the_best_of_all_placings(problem: Problem) -> None:
    best = max((_sum(problem, each) for each in _placings(problem)), default=None)
    result, placed = solve(problem, LIMIT_S)
    if best is None:
        assert result is Result.NONE
        assert not placed.any()
        return
    assert result is Result.OPTIMAL
    assert any((placed == each).all() for each in _placings(problem))
    assert _sum(problem, placed) == pytest.approx(best, abs=1e-6)


def test_weights_of_any_size_have_an_answer() -> None:
    lowest = np.finfo(np.float64).min
    problem = _plain(weights=[lowest, 0.0, -1e6, -1e6 - 0.5], n_instances=3)
    result, placed = solve(problem, LIMIT_S)
    assert result is Result.OPTIMAL
    assert placed.tolist() == [0, 1, 1, 1]


def test_no_time_is_no_answer() -> None:
    problem = _plain(weights=[1.0, 2.0], n_instances=2)
    result, placed = solve(problem, 0.0)
    assert result is Result.OUT_OF_TIME
    assert not placed.any()


def _plain(weights: list[float], n_instances: int) -> Problem:
    n = np.arange(len(weights))
    return Problem(n_instances, n, n, np.ones_like(n), np.array(weights), [], [], [])


def test_provider_used_beyond_its_capacity_hinders_no_other() -> None:
    problem = _plain(weights=[2.0, 2.0, 1.0, 0.0], n_instances=2)
    overused = SharedRoom(np.array([0, 1]), np.array([1, 1]), -3)
    none = np.array([0, 0, 1, 1])
    limited = dataclasses.replace(problem, most=none, shared=[overused])
    result, placed = solve(limited, LIMIT_S)
    assert result is Result.OPTIMAL
    assert placed.tolist() == [0, 0, 1, 1]
