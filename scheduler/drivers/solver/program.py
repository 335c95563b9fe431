# SPDX-License-Identifier: Apache-2.0
"""Place instances by an integer program, which SciPy's HiGHS solves.

maximize    the weights of the hosts of all instances, and of the used places of wishes
x[option]   the number of instances on an option: the sum of all is n_instances
y[place]    whether a place gets instances, if a rule or a wish depends on that
"""

from __future__ import annotations

import dataclasses
import enum
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import optimize, sparse

from ...candidates import resources_of
from ...locality import EvenPlaces, JointRule, OnePlace, PlacesUsed, RoomOfPlaces
from ..base import DecisionSteps, Eligible

Numbers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SharedRoom:
    """The free amount of one provider's resource class that several options share.

    Attributes
    ----------
    options : ndarray of int64, shape (n,)
        The options that use the resource class.
    amounts : ndarray of int64, shape (n,)
        The amount that an instance on each of the options needs.
    free : int
        The amount that the provider has free.
    """

    options: Numbers
    amounts: Numbers
    free: int


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Place `n_instances` on options, which are the open candidates of some hosts.

    Attributes
    ----------
    hosts : ndarray of int64, shape (n_options,)
        The index of each option's host.
    candidates : ndarray of int64, shape (n_options,)
        The number of each option's candidate.
    most : ndarray of int64, shape (n_options,)
        The most instances that each option may get.
    weights : ndarray of float64, shape (n_hosts,)
        The weight of each host.
    """

    n_instances: int
    hosts: Numbers
    candidates: Numbers
    most: Numbers
    weights: npt.NDArray[np.float64]
    shared: Sequence[SharedRoom]
    rules: Sequence[JointRule]
    wishes: Sequence[PlacesUsed]

    @classmethod
    def read(cls, steps: DecisionSteps, eligible: Eligible, n_left: int) -> Problem:
        """Return the problem of placing `n_left` instances that have no host yet.

        The weights are those of the hosts before any of these instances is placed.
        """
        hosts = eligible.hosts
        offered = hosts.candidates
        options = np.flatnonzero(steps.open_candidates(hosts))
        most, shared = _rooms(
            steps, [resources_of(offered.request(i)) for i in options.tolist()], n_left
        )
        [uuid, *_] = steps.instance_uuids
        return cls(
            n_instances=n_left,
            hosts=offered.rows[options].astype(np.int64),
            candidates=offered.numbers[options].astype(np.int64),
            most=most,
            weights=steps.weights(hosts, uuid),
            shared=shared,
            rules=eligible.rules,
            wishes=eligible.wishes,
        )

    def with_most(self, options: npt.NDArray[np.bool_], most: int) -> Problem:
        """Return the problem with at most `most` instances on each of some options."""
        return dataclasses.replace(self, most=np.where(options, most, self.most))


def _rooms(
    steps: DecisionSteps,
    needs: Sequence[Mapping[str, Mapping[str, int]]],
    n_instances: int,
) -> tuple[Numbers, list[SharedRoom]]:
    """Return how many instances fit each option alone, and the room that options share.

    Parameters
    ----------
    needs : sequence of mapping
        For each option, {provider UUID: {resource class: amount}} of an instance.
    """
    most = np.full(len(needs), n_instances, np.int64)
    users: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for option, need in enumerate(needs):
        for provider, resources in need.items():
            for name, amount in resources.items():
                users[provider, name].append((option, amount))
    shared = []
    for (provider, name), option_amounts in users.items():
        free = steps.free(provider, name)
        options, amounts = np.array(option_amounts, np.int64).T
        most[options] = np.minimum(most[options], np.maximum(free, 0) // amounts)
        if len(option_amounts) > 1:
            shared.append(SharedRoom(options, amounts, free))
    return most, shared


Floats = npt.NDArray[np.float64]

#: The maximum difference between the highest weight and any other; lower weights are
#: raised to it, as HiGHS handles very large numbers as infinity.
_MAX_RANGE: Final = 1e12
#: The statuses of SciPy's milp.
_OPTIMAL, _LIMIT_REACHED, _INFEASIBLE = 0, 1, 2


class Result(enum.StrEnum):
    """How the solver ended."""

    OPTIMAL = "optimal"
    NONE = "no placing of all instances was found"
    OUT_OF_TIME = "the time limit was reached"


def solve(problem: Problem, time_limit_s: float) -> tuple[Result, Numbers]:
    """Return the number of instances on each option, shape (n_options,).

    All numbers are 0 if the result is not `Result.OPTIMAL`.
    """
    nothing = np.zeros(len(problem.most), np.int64)
    if not problem.most.sum() >= problem.n_instances:
        return Result.NONE, nothing
    if time_limit_s <= 0:
        return Result.OUT_OF_TIME, nothing
    answer = _Program(problem).run(time_limit_s)
    if answer.status == _OPTIMAL:
        placed = np.rint(answer.x[: len(problem.most)]).astype(np.int64)
        return Result.OPTIMAL, placed
    is_over = answer.status == _LIMIT_REACHED
    return (Result.OUT_OF_TIME if is_over else Result.NONE), nothing


class _Program:
    """The columns and rows of the integer program for a problem."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._n_instances = problem.n_instances
        weights = problem.weights - problem.weights.max(initial=-np.inf)
        gains = np.maximum(weights, -_MAX_RANGE)[problem.hosts]
        self._gains: list[Floats] = [gains]
        self._upper: list[Floats] = [problem.most.astype(float)]
        self._is_integer: list[Floats] = [np.ones(len(problem.most))]
        self._n_columns = len(problem.most)
        self._columns: list[npt.NDArray[np.integer]] = []
        self._factors: list[Floats] = []
        self._low: list[float] = []
        self._high: list[float] = []
        self._add_row(
            np.arange(self._n_columns), 1, low=self._n_instances, high=self._n_instances
        )
        for room in problem.shared:
            # The free amount is negative if a provider is used beyond its capacity.
            self._add_row(room.options, room.amounts, high=max(room.free, 0))
        for rule in problem.rules:
            self._add_rule(rule)
        for wish in problem.wishes:
            self._add_wish(wish)

    def run(self, time_limit_s: float) -> optimize.OptimizeResult:
        """Return what HiGHS answers."""
        lengths = [len(columns) for columns in self._columns]
        rows = np.repeat(np.arange(len(lengths)), lengths)
        entries = np.concatenate(self._factors), (rows, np.concatenate(self._columns))
        matrix = sparse.csr_array(entries, shape=(len(lengths), self._n_columns))
        return optimize.milp(
            -np.concatenate(self._gains),
            integrality=np.concatenate(self._is_integer),
            bounds=optimize.Bounds(0, np.concatenate(self._upper)),
            constraints=optimize.LinearConstraint(matrix, self._low, self._high),
            # With a gap, the solution could be worse than that of filter_scheduler.
            options={"time_limit": time_limit_s, "mip_rel_gap": 0.0},
        )

    # -- columns and rows --------------------------------------------------------------

    def _add_column(
        self, *, upper: float = 1, gain: float = 0, is_integer: bool = True
    ) -> int:
        self._gains.append(np.array([gain]))
        self._upper.append(np.array([upper]))
        self._is_integer.append(np.array([float(is_integer)]))
        self._n_columns += 1
        return self._n_columns - 1

    def _add_row(
        self,
        columns: npt.NDArray[np.integer],
        factors: float | Numbers | Floats,
        *more: tuple[int, float],
        low: float = -np.inf,
        high: float = np.inf,
    ) -> None:
        """Add low <= factors * columns + more <= high."""
        first = np.broadcast_to(np.asarray(factors, float), len(columns))
        self._columns.append(
            np.append(columns, [column for column, _ in more]).astype(np.intp)
        )
        self._factors.append(np.append(first, [factor for _, factor in more]))
        self._low.append(low)
        self._high.append(high)

    def _options_by_place(
        self, places: npt.NDArray[np.integer]
    ) -> list[tuple[int, Numbers]]:
        """Return each place that has options, and its options."""
        of_options = places[self._problem.hosts]
        order = np.argsort(of_options, kind="stable")
        place_numbers, first_indices = np.unique(of_options[order], return_index=True)
        options = np.split(order.astype(np.int64), first_indices[1:])
        return (
            list(zip(place_numbers.tolist(), options, strict=True))
            if len(place_numbers)
            else []
        )

    def _most(self, options: Numbers) -> int:
        return min(int(self._problem.most[options].sum()), self._n_instances)

    def _limit(self, options: Numbers, most: int) -> None:
        """Limit the instances on each of some options, without adding a row."""
        upper = self._upper[0]
        upper[options] = np.minimum(upper[options], max(most, 0))

    # -- rules -------------------------------------------------------------------------

    def _add_rule(self, rule: JointRule) -> None:
        places = self._options_by_place(rule.places)
        if isinstance(rule, RoomOfPlaces):
            for place, options in places:
                if len(options) == 1:
                    self._limit(options, int(rule.room[place]))
                elif self._most(options) > rule.room[place]:
                    self._add_row(options, 1, high=int(rule.room[place]))
        elif isinstance(rule, OnePlace):
            self._add_one_place([options for _, options in places])
        elif isinstance(rule, EvenPlaces):
            self._add_even_places(rule, places)

    def _add_one_place(self, places: Sequence[Numbers]) -> None:
        place_columns = []
        for options in places:
            if self._most(options) < self._n_instances:
                self._limit(options, 0)
                continue
            place_columns.append(self._add_column())
            self._add_row(
                options, 1, (place_columns[-1], -self._n_instances), low=0, high=0
            )
        self._add_row(np.array(place_columns, np.intp), 1, low=1, high=1)

    def _add_even_places(
        self, rule: EvenPlaces, places: Sequence[tuple[int, Numbers]]
    ) -> None:
        """Add the rows of a rule about how evenly instances are spread over places.

        A place that gets instances may then have at most ``max_skew`` more of them than
        the counted place with the fewest. The column `least` is at most the number of
        instances that each counted place has in the end.
        """
        counts, skew = rule.counts, rule.max_skew
        fewest = int(counts[rule.counted].min()) if len(rule.counted) else 0
        least = self._add_column(upper=fewest + self._n_instances, is_integer=False)
        of_place = dict(places)
        nothing = np.empty(0, np.int64)
        for place in rule.counted.tolist():
            options, count = of_place.get(place, nothing), int(counts[place])
            self._add_row(options, -1, (least, 1), high=count)
        for place, options in places:
            count = int(counts[place])
            # A place that has too many instances already keeps them, but gets no more.
            excess = max(0, count - fewest - skew)
            terms = [(least, -1.0)]
            if excess:
                used_column = self._add_column()
                self._add_row(options, 1, (used_column, -self._most(options)), high=0)
                terms.append((used_column, excess))
            self._add_row(options, 1, *terms, high=skew - count + excess)

    # -- wishes ------------------------------------------------------------------------

    def _add_wish(self, wish: PlacesUsed) -> None:
        for place, options in self._options_by_place(wish.places):
            if place < 0 or not wish.weights[place]:
                continue
            gain = float(wish.weights[place])
            if gain > 0:
                used_column = self._add_column(gain=gain, is_integer=False)
                self._add_row(options, -1, (used_column, 1), high=0)
            else:
                used_column = self._add_column(gain=gain)
                self._add_row(options, 1, (used_column, -self._most(options)), high=0)
