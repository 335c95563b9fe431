# SPDX-License-Identifier: Apache-2.0
"""Plan the fewest moves after which more instances of a flavor fit.

what fits now ─▶ hosts that lack the least for one more ─▶ sets of their instances that
    would free enough, in ascending order of moves and memory
    ─▶ the first set whose instances all find a host, and after which the flavor fits
"""

from __future__ import annotations

import copy
import heapq
import itertools
import math
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..drivers.parts import Parts
from ..drivers.placement_queries import build_queries, run_prefilters
from ..drivers.prepared import Caller
from ..drivers.record import DecisionRecord
from ..errors import NoValidHost
from ..explain import FlavorRequest
from ..explain.capacity import HostCounter
from ..explain.query_checks import with_unlimited_room
from ..placement.providers import ProviderQuery, ProviderView
from ..request import Request
from .cloud import FindRequests, PlannedCloud
from .moves import Attempt, Instances, KnownInstance, plan_of
from .plan import Goal, Plan

#: Hosts whose instances are read: those that lack the least for one more instance.
_MAX_HOSTS: Final = 40
#: Sets of instances of one host that are considered.
_MAX_SETS: Final = 2000
#: Sets whose moves are decided.
_MAX_TRIED: Final = 100
#: Orders of the destinations that are tried for one set.
_MAX_DECISIONS: Final = 400

Int64s = npt.NDArray[np.int64]
#: The estimated cost, the room that is missing, a number, the next host, the cost, and
#: the options.
_Node = tuple[tuple[int, int], int, int, int, tuple[int, int], tuple["_Option", ...]]


class _Option(NamedTuple):
    """Instances of one host, without which more of the flavor fit there."""

    n_moves: int
    memory_mb: int
    gain: int
    host: str
    instances: tuple[KnownInstance, ...]


def plan_make_room(  # noqa: PLR0913 - four by name, the options of the command
    parts: Parts,
    view: ProviderView,
    flavor: FlavorRequest,
    find_requests: FindRequests,
    *,
    count: int = 1,
    host: str = "",
    seconds: float = 60.0,
    parallel: int = 1,
) -> Plan:
    """Return the fewest moves, and of those the least memory, that make room.

    No move needs room that another one frees, and no instance goes to a host that
    another one leaves.

    Parameters
    ----------
    count : int
        How many instances of the flavor are to fit.
    host : str
        A service host on which they are to fit; "": on any.
    seconds : float
        When the search ends.

    Raises
    ------
    SchedulerError
        A component failed.
    """
    search = _Search(
        parts, view, flavor, find_requests, host, time.monotonic() + seconds
    )
    return search.plan(count, parallel)


class _Search:
    """The search for the moves that make room for one flavor."""

    def __init__(
        self,
        parts: Parts,
        view: ProviderView,
        flavor: FlavorRequest,
        find_requests: FindRequests,
        host: str,
        ends_at: float,
    ) -> None:
        self._flavor = flavor
        self._host = host
        self._ends_at = ends_at
        self._cloud = PlannedCloud(parts, view)
        self._instances = Instances(self._cloud, find_requests)
        self._n_decisions = 0
        self._is_cut_short = False
        #: All sets of so many instances of a host are considered.
        self._n_complete = _MAX_SETS

    def plan(self, count: int, parallel: int) -> Plan:
        """Search, and return the plan; without steps if none was found."""
        n_before = min(count, self._room(self._cloud))
        n_missing = count - n_before
        is_reserved = n_missing and not self._host
        reserved = self._reserved(n_before) if is_reserved else self._cloud
        best: Attempt | None = None
        least, n_searched = 0, 0
        if n_missing:
            options = self._options(reserved, n_missing)
            n_searched = len(options)
            for number, chosen in enumerate(_sets(options, n_missing)):
                if not number:
                    least = sum(option.n_moves for option in chosen)
                    least = min(least, self._n_complete + 1)
                if number == _MAX_TRIED or self._is_over():
                    self._is_cut_short = True
                    break
                best = self._moved(reserved, chosen, n_missing)
                gain = sum(option.gain for option in chosen)
                if best is None and reserved is not self._cloud and gain > n_missing:
                    best = self._moved(self._cloud, chosen, count)
                if best is not None:
                    break
        return plan_of(
            self._cloud,
            best.steps if best is not None else (),
            kind="make-room",
            parallel=parallel,
            hosts=(),
            unknown=self._instances.unknown,
            goal=Goal(
                flavor=self._flavor.name,
                n_wanted=count,
                n_before=n_before,
                n_after=n_before if best is None else count,
                n_least_moves=least,
                n_searched=n_searched,
                is_cut_short=self._is_cut_short,
            ),
        )

    def _is_over(self) -> bool:
        return self._n_decisions >= _MAX_DECISIONS or time.monotonic() >= self._ends_at

    def _room(self, cloud: PlannedCloud) -> int:
        """Return how many instances of the flavor fit."""
        nodes = cloud.table.nodes_of(self._host) if self._host else None
        hosts = cloud.table.batch(nodes)
        counter = HostCounter(cloud.parts, cloud.provider_view(), hosts)
        return counter.count(self._flavor, 0).n_instances

    def _reserved(self, n_instances: int) -> PlannedCloud:
        """Return the cloud with instances of the flavor, whose room no move takes."""
        if not n_instances:
            return self._cloud
        cloud = self._cloud.copied()
        for number in range(n_instances):
            spec = copy.deepcopy(self._flavor.spec_obj)
            spec.instance_uuid = str(uuid.UUID(int=number + 1))
            move = cloud.decide(spec, is_named=False)
            if move.assignment is None:
                break
            cloud.count(move)
        return cloud

    # -- sets of instances -------------------------------------------------------------

    def _options(self, cloud: PlannedCloud, n_missing: int) -> list[list[_Option]]:
        """Return the sets of instances of each host that could give room."""
        hosts = cloud.table.batch()
        view = cloud.provider_view()
        if not (amounts := self._amounts()):
            return []  # no host's own provider gives what the flavor needs
        unlimited = HostCounter(cloud.parts, with_unlimited_room(view), hosts)
        passes = unlimited.upper_bounds(self._flavor).n_on_host > 0
        trees, free_of = view.state.trees, {}
        for i in np.flatnonzero(passes).tolist():
            name, node = hosts.value("host", i), hosts.value("uuid", i)
            if self._host in ("", name) and len(cloud.table.nodes_of(name)) == 1:
                row = np.array([trees.find(node)], np.int32)
                columns = [view.state.column(c).free(row)[0] for c in amounts]
                free_of[name] = np.array(columns, np.int64)
        wanted = np.array(list(amounts.values()), np.int64)
        instances_of = cloud.table.instances.of_host

        def lacking(name: str) -> float:
            free = free_of[name]
            return float(
                np.max((wanted * (_fitting(free, wanted) + 1) - free) / wanted)
            )

        with_instances = [name for name in free_of if instances_of(name)]
        nearest = sorted(with_instances, key=lambda name: (lacking(name), name))
        options = []
        for name in nearest[: _MAX_HOSTS + n_missing]:
            if time.monotonic() >= self._ends_at:
                self._is_cut_short = True
                break
            found = [i for i in self._instances.read([name]) if i.n_choices]
            if (n_complete := _n_complete(len(found))) < len(found):
                self._n_complete = min(self._n_complete, n_complete)
            options.append(_options_of(name, found, free_of[name], amounts))
        return [each for each in options if each]

    def _amounts(self) -> dict[str, int]:
        """Return what the flavor needs of a host's own provider, by class."""
        parts = self._cloud.parts
        try:
            request = Request.validated(copy.deepcopy(self._flavor.spec_obj))
            record = DecisionRecord(None, (), 1, parts.clock())
            needs = run_prefilters(parts, Caller.of({}), request, record)
            query = ProviderQuery.parse(build_queries(parts, request, needs)[0].params)
        except NoValidHost:
            return {}
        return {
            name: amount
            for group in query.groups
            if not group.suffix
            for name, amount in group.amounts.items()
        }

    # -- moves -------------------------------------------------------------------------

    def _moved(
        self, cloud: PlannedCloud, chosen: Sequence[_Option], n_wanted: int
    ) -> Attempt | None:
        """Return the moves of sets of instances after which so many fit, or None."""
        instances = sorted(
            (i for option in chosen for i in option.instances),
            key=lambda instance: instance.first_order,
        )
        sources = {option.host for option in chosen}
        return self._placed(Attempt(cloud.copied()), instances, sources, n_wanted)

    def _placed(
        self,
        attempt: Attempt,
        instances: Sequence[KnownInstance],
        sources: set[str],
        n_wanted: int,
    ) -> Attempt | None:
        """Return an attempt with the moves of instances after which so many fit.

        If one finds no host, or its host takes the room, the next host is tried.
        """
        if not instances:
            return attempt if self._room(attempt.cloud) >= n_wanted else None
        ignored = set(sources)
        while not self._is_over():
            tried = attempt.copied()
            self._n_decisions += 1
            if not tried.move(instances[0], ignored, is_freed=True):
                return None
            destination = tried.steps[-1].destination
            placed = self._placed(tried, instances[1:], sources, n_wanted)
            if placed is not None:
                return placed
            ignored.add(destination)
        self._is_cut_short = True
        return None


def _fitting(free: Int64s, wanted: Int64s) -> int:
    return int(np.min(np.maximum(free, 0) // wanted)) if len(wanted) else 0


def _n_complete(n_instances: int) -> int:
    """Return up to which size all sets of so many instances are considered."""
    n_sets = size = 0
    while size < n_instances:
        n_sets += math.comb(n_instances, size + 1)
        if n_sets > _MAX_SETS:
            break
        size += 1
    return size


def _options_of(
    host: str,
    instances: Sequence[KnownInstance],
    free: Int64s,
    amounts: Mapping[str, int],
) -> list[_Option]:
    """Return the sets of a host's instances that give room, the cheapest first.

    Of equal instances the first ones stand for all, and no set has an instance without
    which it gives as much room.
    """
    if not instances:
        return []
    wanted = np.array(list(amounts.values()), np.int64)
    n_before = _fitting(free, wanted)
    equal = defaultdict[int, list[KnownInstance]](list)
    for instance in instances:
        equal[id(instance.first)].append(instance)
    ordered = sorted(
        (alike for alike in equal.values()),
        key=lambda alike: (alike[0].spec.flavor.memory_mb, alike[0].uuid),
    )
    flat = [(kind, number) for kind, alike in enumerate(ordered)
            for number in range(len(alike))]  # fmt: skip
    freed = [
        np.array([alike[0].first.root_amounts().get(c, 0) for c in amounts], np.int64)
        for alike in ordered
    ]

    def gain(kinds: Counter[int]) -> int:
        total = free + sum(freed[kind] * n for kind, n in kinds.items())
        return _fitting(total, wanted) - n_before

    options = []
    subsets: list[tuple[tuple[int, int], ...]] = []
    for size in range(1, _n_complete(len(flat)) + 1):
        subsets += itertools.combinations(flat, size)
    # Beyond these, the largest instances go first.
    largest = sorted(flat, key=lambda one: (-one[0], one[1]))
    sizes = range(len(subsets[-1]) + 1, len(flat) + 1)
    subsets += [tuple(largest[:size]) for size in sizes]
    for subset in subsets:
        kinds = Counter(kind for kind, _ in subset)
        if any(number >= kinds[kind] for kind, number in subset):
            continue
        gained = gain(kinds)
        if gained and all(gain(kinds - Counter([kind])) < gained for kind in kinds):
            chosen = tuple(ordered[kind][number] for kind, number in subset)
            memory_mb = sum(i.spec.flavor.memory_mb for i in chosen)
            options.append(_Option(len(chosen), memory_mb, gained, host, chosen))
    return sorted(options, key=lambda option: option[:2])


def _sets(
    options: Sequence[Sequence[_Option]], n_missing: int
) -> Iterator[tuple[_Option, ...]]:
    """Yield one option or none of each host, that together give enough room.

    In ascending order of moves, then of memory: A* with the least cost of the rest.
    """
    none = (10**9, 0)
    # [i][n]: the least moves and memory that give room for n with the hosts from i on.
    rest = [[(0, 0), *[none] * n_missing]]
    for of_host in reversed(options):
        later, best = rest[0], rest[0].copy()
        cheapest: dict[int, tuple[int, int]] = {}
        for option in of_host:
            cheapest.setdefault(option.gain, option[:2])
        for gain, (n_moves, memory_mb) in cheapest.items():
            for n in range(1, n_missing + 1):
                moves, memory = later[max(0, n - gain)]
                best[n] = min(best[n], (moves + n_moves, memory + memory_mb))
        rest.insert(0, best)
    numbers = itertools.count()
    heap: list[_Node] = [(rest[0][n_missing], n_missing, next(numbers), 0, (0, 0), ())]
    while heap:
        estimate, missing, _, first, cost, chosen = heapq.heappop(heap)
        if estimate >= none:
            return
        if chosen and not missing:
            yield chosen
        for i in range(first, len(options)):
            for option in options[i]:
                moves, memory = cost[0] + option.n_moves, cost[1] + option.memory_mb
                still = max(0, missing - option.gain)
                later_moves, later_memory = rest[i + 1][still]
                heapq.heappush(
                    heap,
                    (
                        (moves + later_moves, memory + later_memory),
                        still,
                        next(numbers),
                        i + 1,
                        (moves, memory),
                        (*chosen, option),
                    ),
                )
