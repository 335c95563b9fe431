# SPDX-License-Identifier: Apache-2.0
"""The driver: solves, checks the solution with the filters, claims it, or falls back.

If there is no solution, ``filter_scheduler`` places the instances.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from oslo_config import cfg

from ...errors import ConfigurationError
from ...hosts import HostBatch
from ...placement.allocations.limits import MAX_POSTS
from ..base import BaseSchedulerDriver, Choice, DecisionSteps, Eligible, Selections
from .program import Numbers, Problem

LOG = logging.getLogger(__name__)

_REFUSED = "Placement refused claims"


class SolverScheduler(BaseSchedulerDriver):
    """Place all instances of a request so that the sum of their weights is the highest.

    The weights are those that ``filter_scheduler`` computes for the first instance,
    before any is placed. ``filter_scheduler`` places a single instance, and instances
    that the solver cannot place.

    Raises
    ------
    ConfigurationError
        SciPy is not installed.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        self._time_limit_s: float = conf.solver.time_limit
        try:
            from .program import Result, solve
        except ImportError as e:
            raise ConfigurationError(
                "[moorage] driver = solver needs SciPy, which Moorage's extra solver "
                "installs: run pip install '.[solver]' in a checkout"
            ) from e
        self._solve, self._results = solve, Result

    def select(self, steps: DecisionSteps) -> Selections:
        """Return hosts of the highest sum of weights; see `BaseSchedulerDriver`."""
        unplaced = list(steps.instance_uuids)
        if len(unplaced) == 1:
            return steps.select_by_weight()
        deadline = steps.monotonic() + self._time_limit_s
        why = _REFUSED
        for _ in range(MAX_POSTS):
            eligible = steps.eligible(steps.candidates, unplaced[0])
            choices, why = self._choose(steps, eligible, unplaced, deadline)
            if not choices:
                break
            _, unplaced = steps.claim_together(eligible.hosts, choices)
            if not unplaced:
                return _answer(steps)
            why = _REFUSED
        return _fall_back(steps, unplaced, why)

    def _choose(
        self,
        steps: DecisionSteps,
        eligible: Eligible,
        uuids: Sequence[str],
        deadline: float,
    ) -> tuple[list[Choice], str]:
        """Return a choice for each instance, or no choices and the reason.

        The filters accept all the choices. A filter may accept fewer instances on a
        host than Placement has room for: the problem is then solved again with less
        room.
        """
        problem = Problem.read(steps, eligible, len(uuids))
        while True:
            remaining_s = deadline - steps.monotonic()
            result, n_each = self._solve(problem, remaining_s)
            if result is not self._results.OPTIMAL:
                return [], result
            choices = list(_choices(problem, n_each, uuids))
            smaller = _without_rejected(steps, eligible.hosts, problem, choices)
            if smaller is problem:
                return choices, ""
            problem = smaller


def _choices(
    problem: Problem, n_each: Numbers, uuids: Sequence[str]
) -> Iterator[Choice]:
    """Yield a choice for each instance, in descending order of their hosts' weights."""
    used_options = np.flatnonzero(n_each)
    order = used_options[
        np.argsort(-problem.weights[problem.hosts[used_options]], kind="stable")
    ]
    options = np.repeat(order, n_each[order])
    hosts, candidates = problem.hosts[options], problem.candidates[options]
    yield from map(Choice, uuids, hosts.tolist(), candidates.tolist())


def _without_rejected(
    steps: DecisionSteps,
    hosts: HostBatch,
    problem: Problem,
    choices: Iterable[Choice],
) -> Problem:
    """Return the problem with less room on hosts where filters reject a choice.

    The problem itself is returned if no choice is rejected. Only the second and further
    instances on a host can be rejected.
    """
    on_host: dict[int, list[Choice]] = {}
    for choice in choices:
        on_host.setdefault(choice.index, []).append(choice)
    for index, host_choices in on_host.items():
        if len(host_choices) == 1:
            continue
        n_passing = steps.n_passing(hosts, host_choices)
        if n_passing < len(host_choices):
            candidate = host_choices[n_passing].candidate
            n_same = sum(
                choice.candidate == candidate for choice in host_choices[:n_passing]
            )
            is_full = (problem.candidates == candidate) & (problem.hosts == index)
            problem = problem.with_most(is_full, n_same)
    return problem


def _answer(steps: DecisionSteps) -> Selections:
    steps.note("solver: the sum of weights is the highest possible")
    last = steps.instance_uuids[-1]
    hosts = steps.passing(steps.candidates, last)
    return steps.selections(alternates=steps.ranked(hosts, last))


def _fall_back(steps: DecisionSteps, unplaced: Sequence[str], why: str) -> Selections:
    n_all = len(steps.instance_uuids)
    which = f"{len(unplaced)} of {n_all} instance(s)"
    steps.note(f"solver: {why}; filter_scheduler placed {which}")
    LOG.info("Placing %s as filter_scheduler does: %s", which, why)
    return steps.select_by_weight()
