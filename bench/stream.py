# SPDX-License-Identifier: Apache-2.0
"""Many requests to one Placement with many providers, compared with nova's calls.

For each request nova's scheduler sends GET /allocation_candidates, GET
/allocations/{consumer}, and PUT of the first candidate. Only these calls are measured,
without nova's own work between them.

The possible ratio depends on the server. If the three calls take G, g and P, and a
decision were only a PUT, then n requests of 8 flavors would be
n (G + g + P) / (8 G + n P) times as fast: 30 times for n = 500 and G = 55 P.
"""

from __future__ import annotations

import functools
import itertools
import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from moorage.scheduler.candidates import MICROVERSION
from moorage.scheduler.conf import load
from moorage.scheduler.drivers.record import DecisionRecord
from moorage.scheduler.placement.adapter import Response
from moorage.scheduler.service import Scheduler, build

from .clouds import Cloud, CloudSource
from .decisions import daemon_gc_thresholds
from .real_placement import (
    CountedAdapter,
    Kind,
    Progress,
    Where,
    seeded_placement,
)
from .requests import CONTEXT, FLAVORS, BenchRequest, Flavor, of_flavor
from .timing import Percentiles, Plan, elapsed_ms, repeated

#: ``[moorage] candidates_max_age`` of this benchmark, seconds; the default is 5.
MAX_AGE_S = 60.0

#: nova's default of ``[scheduler] max_placement_results``, and Moorage's.
LIMIT = 1000

#: Instances in a request for several.
N_SEVERAL = 100

_READING: Final[dict[str, Any]] = {
    "headers": {
        "Accept": "application/json",
        "OpenStack-API-Version": f"placement {MICROVERSION}",
    },
    "raise_exc": False,
}
_OWNER = {"project_id": "nova", "user_id": "nova"}


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """What is measured with one Placement.

    Attributes
    ----------
    n_requests : int
        Requests of the stream.
    singles, several : Plan
        Decisions for one instance and for N_SEVERAL, compared with PUTs.
    """

    n_requests: int
    singles: Plan
    several: Plan


@dataclass(frozen=True, slots=True)
class Rate:
    """The times of some requests, and the number of all their GETs."""

    latencies_ms: tuple[float, ...]
    n_gets: int

    @property
    def n_requests(self) -> int:
        """The number of requests, which ran one after the other."""
        return len(self.latencies_ms)

    @property
    def elapsed_s(self) -> float:
        """The time of all requests."""
        return sum(self.latencies_ms) / 1000

    @property
    def per_s(self) -> float:
        """Requests per second."""
        return self.n_requests / self.elapsed_s

    @property
    def gets_per_request(self) -> float:
        """GETs per request."""
        return self.n_gets / self.n_requests

    def followed_by(self, other: Rate) -> Rate:
        """Return the rate of both together."""
        return Rate(self.latencies_ms + other.latencies_ms, self.n_gets + other.n_gets)


@dataclass(frozen=True, slots=True)
class DecisionAndPuts:
    """Whole decisions, and PUTs of the same allocations, ms.

    Attributes
    ----------
    claim, rest : Percentiles
        The parts of `decision`: its PUT or POST, and the rest.
    n_gets : int
        GETs of all runs together: expired answers are queried again.
    """

    n_instances: int
    decision: Percentiles
    claim: Percentiles
    rest: Percentiles
    puts: Percentiles
    n_gets: int


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """What was measured with one Placement.

    Attributes
    ----------
    first, later : Rate
        Moorage: the first request of each flavor, and all others.
    """

    kind: Kind
    first: Rate
    later: Rate
    nova: Rate
    single: DecisionAndPuts
    several: DecisionAndPuts


def stream_times(
    cloud: Cloud,
    plan: StreamPlan,
    where: Where,
    progress: Progress,
    say: Callable[[str], None],
) -> StreamTimes:
    """Return the times; `progress` is called while seeding, `say` with each step."""
    with seeded_placement(cloud, where, progress) as adapter:
        say("a stream of requests")
        with _running(cloud, adapter) as streamed:
            first, later = streamed.stream(plan.n_requests)
            say("nova's calls")
            nova = nova_calls(adapter, streamed.queries)
        say("decisions and PUTs")
        with _running(cloud, adapter) as streamed:
            single = streamed.compare_with_puts(FLAVORS, 1, plan.singles)
        say(f"{N_SEVERAL} instances in a request, and as many PUTs")
        with _running(cloud, adapter) as streamed:
            several = streamed.compare_with_puts(FLAVORS[:1], N_SEVERAL, plan.several)
    return StreamTimes(where.kind, first, later, nova, single, several)


@contextmanager
def _running(cloud: Cloud, adapter: CountedAdapter) -> Iterator[_StreamedScheduler]:
    """Yield a new scheduler with an empty cache; release its claims at the end."""
    conf = load(config_files=[])
    conf.set_override("max_placement_results", LIMIT, group="scheduler")
    conf.set_override("candidates_max_age", MAX_AGE_S, group="moorage")
    conf.set_override("random_seed", 1, group="moorage")
    scheduler = build(conf, placement=adapter, source=CloudSource(conf, cloud))
    scheduler.start()
    streamed = _StreamedScheduler(cloud, adapter, scheduler)
    try:
        with daemon_gc_thresholds():
            yield streamed
    finally:
        streamed.release()
        scheduler.stop()


class _StreamedScheduler:
    """A scheduler, with its queries and claims."""

    def __init__(
        self, cloud: Cloud, adapter: CountedAdapter, scheduler: Scheduler
    ) -> None:
        self._cloud = cloud
        self._adapter = adapter
        self._scheduler = scheduler
        self._claimed: list[str] = []
        #: One query to Placement for each flavor.
        self.queries: list[str] = []

    def stream(self, n_requests: int) -> tuple[Rate, Rate]:
        """Return the rates of the first request of each flavor, and of all others."""
        flavors = itertools.islice(itertools.cycle(FLAVORS), n_requests)
        requests = [of_flavor(self._cloud, each) for each in flavors]
        first = self._rate(requests[: len(FLAVORS)])
        records = self._scheduler.decisions.newest(len(FLAVORS))
        self.queries = [record.queries[0] for record in records]
        return first, self._rate(requests[len(FLAVORS) :])

    def _rate(self, requests: Sequence[BenchRequest]) -> Rate:
        return _rate(
            self._adapter, [functools.partial(self._decide, r) for r in requests]
        )

    def compare_with_puts(
        self, flavors: Sequence[Flavor], n_instances: int, plan: Plan
    ) -> DecisionAndPuts:
        """Return the times of decisions, and of PUTs of the same allocations."""
        for flavor in flavors:
            self._decide(of_flavor(self._cloud, flavor))
        n_gets = self._adapter.n_gets()
        requests = (
            of_flavor(self._cloud, each, n_instances)
            for each in itertools.cycle(flavors)
        )
        runs = repeated(plan, lambda: self._compare_with_puts(next(requests)))
        decisions, claims, puts = zip(*runs, strict=True)
        return DecisionAndPuts(
            n_instances,
            Percentiles.of(decisions),
            Percentiles.of(claims),
            Percentiles.of([d - c for d, c in zip(decisions, claims, strict=True)]),
            Percentiles.of(puts),
            self._adapter.n_gets() - n_gets,
        )

    def _compare_with_puts(self, request: BenchRequest) -> tuple[float, float, float]:
        """Return the decision, its claim, and the PUTs, ms."""
        requests, record = self._decide(request)
        for consumer in requests:
            # The PUT must find the same state of the consumer as the claim did.
            _done(self._adapter.delete(f"/allocations/{consumer}", **_READING))
        puts = sum(
            elapsed_ms(functools.partial(_put, self._adapter, consumer, each))
            for consumer, each in requests.items()
        )
        return record.times_ms["total"], record.times_ms["claim"], puts

    def _decide(self, request: BenchRequest) -> tuple[dict[str, Any], DecisionRecord]:
        """Return the allocation requests that were claimed, by consumer."""
        answer: Any = self._scheduler.select_destinations(
            CONTEXT,
            spec_obj=request.spec(),
            instance_uuids=request.instance_uuids,
            return_objects=True,
            return_alternates=True,
        )
        self._claimed += request.instance_uuids
        chosen = zip(request.instance_uuids, answer, strict=True)
        requests = {i: json.loads(mine[0].allocation_request) for i, mine in chosen}
        return requests, self._scheduler.decisions.newest(1)[0]

    def release(self) -> None:
        """Release all claims."""
        for consumer in self._claimed:
            self._adapter.delete(f"/allocations/{consumer}", **_READING)


def nova_calls(adapter: CountedAdapter, queries: Sequence[str]) -> Rate:
    """Return the times of nova's calls to Placement for these queries."""
    consumers = [str(uuid.uuid4()) for _ in queries]

    def call(query: str, consumer: str) -> None:
        found = _body(adapter.get(query, **_READING))["allocation_requests"]
        _body(adapter.get(f"/allocations/{consumer}", **_READING))
        _put(adapter, consumer, found[0])

    pairs = zip(queries, consumers, strict=True)
    rate = _rate(adapter, [functools.partial(call, *pair) for pair in pairs])
    for consumer in consumers:
        _done(adapter.delete(f"/allocations/{consumer}", **_READING))
    return rate


def _rate(adapter: CountedAdapter, calls: Sequence[Callable[[], object]]) -> Rate:
    n_gets = adapter.n_gets()
    return Rate(tuple(map(elapsed_ms, calls)), adapter.n_gets() - n_gets)


def _put(adapter: CountedAdapter, consumer: str, request: dict[str, Any]) -> None:
    body = {**request, **_OWNER, "consumer_generation": None}
    _done(adapter.put(f"/allocations/{consumer}", json=body, **_READING))


def _body(response: Response) -> dict[str, Any]:
    _done(response)
    body: dict[str, Any] = response.json()
    return body


def _done(response: Response) -> None:
    if response.status_code >= 300:
        raise RuntimeError(
            f"Placement answered {response.status_code}: {response.text}"
        )
