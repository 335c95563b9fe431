# SPDX-License-Identifier: Apache-2.0
"""A real Placement whose queries are counted, delayed and interleaved with claims."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable
from typing import Any

import fixtures

from moorage.scheduler.candidates import (
    AllocationCandidates,
    CandidatesQuery,
    QueryOffer,
)
from moorage.scheduler.placement.allocations.claims import Claim, ClaimResult
from moorage.scheduler.placement.cache import CachedOffer, CandidatesCache
from moorage.scheduler.placement.candidates_source import CountedClaim
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.seed import Provider, seed

from ...fixtures.allocations import claim_one, release_all
from ...fixtures.placement_servers import EmbeddedPlacementFixture, MisbehavingServer

HOSTS = [str(uuid.UUID(int=i)) for i in (1, 2, 3)]
SHARE = str(uuid.UUID(int=9))
N_VCPUS = 4
WAIT_S = 20.0

_AGGREGATE = str(uuid.UUID(int=77))


def vcpu_query(vcpus: int = 1, *, limit: int | None = None, disk_gb: int = 0) -> Any:
    """Return a query; another amount makes another query."""
    resources = f"VCPU:{vcpus}" + (f",DISK_GB:{disk_gb}" if disk_gb else "")
    params = (("resources", resources),)
    if limit is None:
        return CandidatesQuery(params)
    return CandidatesQuery((("limit", str(limit)), *params), limit)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """An adapter that counts candidates' GETs and does things before or after one."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self.urls: list[str] = []
        self.before: list[Callable[[], object]] = []
        self.after: list[Callable[[], object]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def get(self, url: str, **more: Any) -> Any:
        if not url.startswith("/allocation_candidates"):
            return self._adapter.get(url, **more)
        self.urls.append(url)
        while self.before:
            self.before.pop()()
        answer = self._adapter.get(url, **more)
        while self.after:
            self.after.pop()()
        return answer


class Cloud(fixtures.Fixture):
    """Three hosts of four VCPUs that share a disk of 100 GB, and a cache of candidates.

    `cache` queries through `watched`, with `clock`; `client` bypasses both.
    """

    def __init__(self, *, max_age_s: float = 5.0, max_requests: int = 1000) -> None:
        super().__init__()
        self._options = {"max_age_s": max_age_s, "max_requests": max_requests}
        self._claims: dict[str, Claim] = {}

    def _setUp(self) -> None:
        self.placement = self.useFixture(EmbeddedPlacementFixture()).placement
        self.watched = Watched(self.placement.adapter)
        self.client = PlacementClient(self.placement.adapter)
        self.clock = Clock()
        self.cache = self.new_cache(PlacementClient(self.watched))
        vcpus = {"VCPU": {"total": N_VCPUS}}
        near = frozenset({_AGGREGATE})
        disk = {"DISK_GB": {"total": 100}}
        sharing = frozenset({"MISC_SHARES_VIA_AGGREGATE"})
        seed(
            self.client,
            [Provider(h, h, vcpus, aggregates=near) for h in HOSTS]
            + [Provider(SHARE, SHARE, disk, traits=sharing, aggregates=near)],
        )

    def new_cache(self, client: PlacementClient, **changes: Any) -> CandidatesCache:
        options = {**self._options, "clock": self.clock, **changes}
        cache = CandidatesCache(client, **options)
        self.addCleanup(cache.stop)
        return cache

    @property
    def n_gets(self) -> int:
        return len(self.watched.urls)

    def claim(self, offer: QueryOffer, index: int) -> tuple[str, CountedClaim | None]:
        """Claim as a decision does; return the consumer, and the claim if granted."""
        return self.claim_request(offer.request(index))

    def claim_request(self, request: Any) -> tuple[str, CountedClaim | None]:
        consumer, began = str(uuid.uuid4()), self.cache.next_sequence()
        if not self.claim_unseen(consumer, request):
            return consumer, None
        return consumer, self.cache.count_claim([request], began=began)

    def claim_unseen(self, consumer: str, request: Any) -> bool:
        """Claim as another client would; return whether it was granted."""
        answer = claim_one(self.client, consumer, request)
        self._claims.update(answer.claims)
        return answer.result is ClaimResult.CLAIMED

    def release(self, consumer: str, claim: CountedClaim | None = None) -> None:
        release_all(self.client, {consumer: self._claims[consumer]})
        if claim is not None:
            self.cache.release(claim)


def open_hosts(offer: CachedOffer) -> set[str]:
    """The hosts that an offer has an open candidate of."""
    numbers = offer.is_open.nonzero()[0].tolist()
    hosts = hosts_of(offer.candidates)
    return {hosts[i] for i in numbers}


def hosts_of(candidates: AllocationCandidates) -> list[str]:
    """The host of each candidate."""
    found = {i: host for host in HOSTS for i in candidates.by_host.get(host, ())}
    return [found[i] for i in range(candidates.n_requests)]


class HeldServer(MisbehavingServer):
    """An HTTP server that holds candidates' GETs up while `go` is clear.

    Of those that it let go, it answers the first `n_failing` with 503.
    """

    def __init__(self, app: Any) -> None:
        super().__init__(self._held)
        self._behind = app
        self.go = threading.Event()
        self.arrived = threading.Semaphore(0)
        self.n_failing = 0

    def _held(self, environ: Any, start_response: Any) -> Any:
        if environ["PATH_INFO"] == "/allocation_candidates":
            self.arrived.release()
            assert self.go.wait(WAIT_S)
            if self.n_failing:
                self.n_failing -= 1
                start_response("503 Away", [("Content-Type", "text/plain")])
                return [b"away"]
        return self._behind(environ, start_response)

    @property
    def n_gets(self) -> int:
        return sum(
            path.startswith("/allocation_candidates") for _, path, _ in self.seen
        )


def n_waiting() -> int:
    """Threads that wait for another's GET."""
    frames = sys._current_frames().values()  # noqa: SLF001 - documented
    return sum(_is_inside(frame, "_join", "candidates_cache.py") for frame in frames)


def _is_inside(frame: Any, name: str, file: str) -> bool:
    while frame is not None:
        code = frame.f_code
        if code.co_name == name and code.co_filename.endswith(file):
            return True
        frame = frame.f_back
    return False
