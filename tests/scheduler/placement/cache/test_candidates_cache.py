# SPDX-License-Identifier: Apache-2.0
"""One GET serves all equal queries for a limited time."""

from __future__ import annotations

import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from moorage.scheduler.candidates import CandidatesQuery
from moorage.scheduler.conf import load
from moorage.scheduler.errors import (
    PlacementError,
    PlacementRejected,
    PlacementUnavailable,
)
from moorage.scheduler.placement.cache import CandidatesCache
from moorage.scheduler.placement.client import PlacementClient

from ....fixtures.allocations import request_of
from ....fixtures.placement_servers import adapter_to
from ....fixtures.waiting import wait_until
from ..watched import (
    HOSTS,
    N_VCPUS,
    SHARE,
    WAIT_S,
    Cloud,
    HeldServer,
    n_waiting,
    open_hosts,
    vcpu_query,
)

N_CALLERS = 8


def _call_all(
    cache: CandidatesCache, pool: ThreadPoolExecutor, n: int = N_CALLERS, **more: Any
) -> list[Future[Any]]:
    return [pool.submit(cache.get, vcpu_query(), **more) for _ in range(n)]


# -- ages ------------------------------------------------------------------------------


def test_answer_serves_until_it_is_too_old(cloud: Cloud) -> None:
    first = cloud.cache.get(vcpu_query())
    cloud.clock.now += 3.7
    assert cloud.cache.get(vcpu_query()).candidates is first.candidates
    cloud.clock.now += 1.3
    assert cloud.cache.get(vcpu_query()).candidates is not first.candidates
    assert cloud.n_gets == 2
    assert open_hosts(first) == set(HOSTS)


def test_age_counts_from_the_arrival_of_the_answer(cloud: Cloud) -> None:
    cloud.watched.before.append(lambda: setattr(cloud.clock, "now", 1100.0))
    cloud.cache.get(vcpu_query())
    cloud.cache.get(vcpu_query())
    assert cloud.n_gets == 1


def test_other_limit_is_another_query(cloud: Cloud) -> None:
    for limit in (None, 10, 20, 10):
        cloud.cache.get(vcpu_query(limit=limit))
    assert cloud.n_gets == 3


def test_requests_whose_ports_differ_share_an_answer_with_their_own_ids(
    cloud: Cloud,
) -> None:
    def query(port: str) -> CandidatesQuery:
        params = (("resources", "VCPU:1"), (f"resources{port}", "DISK_GB:1"))
        return CandidatesQuery(params)

    ports = [str(uuid.uuid4()) for _ in range(2)]
    for port in ports:
        offer = cloud.cache.get(query(port))
        assert open_hosts(offer) == set(HOSTS)
        for number in range(3):
            assert offer.request(number)["mappings"][port] == [SHARE]
    assert cloud.n_gets == 1
    assert not any(port in url for port in ports for url in cloud.watched.urls)
    cloud.cache.exclude(offer, 0)
    assert not cloud.cache.get(query(ports[0])).is_open[0]


def test_age_0_sends_each_query_and_caches_nothing(cloud: Cloud) -> None:
    cache = cloud.new_cache(PlacementClient(cloud.watched), max_age_s=0)
    for _ in range(3):
        assert cache.get(vcpu_query()).n_open == 3
    assert cloud.n_gets == 3
    assert (cache.stats().answers, cache.stats().misses) == (0, 3)


def test_age_0_shares_no_get(cloud: Cloud, server: HeldServer) -> None:
    cache = cloud.new_cache(server.client(), max_age_s=0)
    with ThreadPoolExecutor(2) as pool:
        calls = _call_all(cache, pool, 2)
        wait_until(lambda: server.n_gets == 2)
        server.go.set()
        assert [a.result().n_open for a in calls] == [3, 3]


def test_options_have_a_default_age_and_a_limit() -> None:
    conf = load([], config_files=[])
    assert conf.moorage.candidates_max_age == 5.0
    assert conf.moorage.candidates_cache_size > 0


# -- one GET for all -------------------------------------------------------------------


def test_concurrent_callers_share_one_get(cloud: Cloud, server: HeldServer) -> None:
    cache = cloud.new_cache(server.client())
    with ThreadPoolExecutor(N_CALLERS) as pool:
        calls = _call_all(cache, pool)
        assert server.arrived.acquire(timeout=WAIT_S)
        server.go.set()
        offers = [a.result() for a in calls]
    assert server.n_gets == 1
    assert len({id(o.candidates) for o in offers}) == 1
    stats = cache.stats()
    assert stats.misses == 1
    assert stats.shared + stats.hits == N_CALLERS - 1


def test_different_queries_do_not_wait_for_each_other(
    cloud: Cloud, server: HeldServer
) -> None:
    cache = cloud.new_cache(server.client())
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(cache.get, vcpu_query(n)) for n in (1, 2)]
        for _ in calls:
            assert server.arrived.acquire(timeout=WAIT_S)
        server.go.set()
        assert [a.result().n_open for a in calls] == [3, 3]


def test_failure_is_shared_by_all_callers_and_not_cached(
    cloud: Cloud, server: HeldServer
) -> None:
    cache = cloud.new_cache(server.client())
    wrong = CandidatesQuery((("resources", "CUSTOM_NOBODY_KNOWS:1"),))
    with ThreadPoolExecutor(N_CALLERS) as pool:
        calls = [pool.submit(cache.get, wrong) for _ in range(N_CALLERS)]
        assert server.arrived.acquire(timeout=WAIT_S)
        # A caller after the failure sends its own GET: wait for all to have called.
        wait_until(lambda: n_waiting() == N_CALLERS - 1)
        server.go.set()
        errors = [a.exception() for a in calls]
    assert [type(e) for e in errors] == [PlacementRejected] * N_CALLERS
    assert len({id(e) for e in errors}) == N_CALLERS
    assert all("CUSTOM_NOBODY_KNOWS" in str(e) for e in errors)
    assert server.n_gets == 1
    with pytest.raises(PlacementRejected):
        cache.get(wrong)
    assert server.n_gets == 2


def test_waiter_of_a_killed_sender_sends_its_own_query(
    cloud: Cloud, server: HeldServer
) -> None:
    class Killed:
        """Is killed once the server has seen its first request."""

        def __init__(self) -> None:
            self.adapter = adapter_to(server.url)
            self.is_first = True

        def get(self, *args: Any, **more: Any) -> Any:
            was_first, self.is_first = self.is_first, False
            answer = self.adapter.get(*args, **more)
            if was_first:
                raise KeyboardInterrupt
            return answer

    cache = cloud.new_cache(PlacementClient(Killed()))  # type: ignore[arg-type]  # only get is called
    with ThreadPoolExecutor(2) as pool:
        killed = pool.submit(cache.get, vcpu_query())
        assert server.arrived.acquire(timeout=WAIT_S)
        waiter = pool.submit(cache.get, vcpu_query())
        wait_until(lambda: n_waiting() == 1)
        server.go.set()
        assert isinstance(killed.exception(), KeyboardInterrupt)
        assert waiter.result().n_open == 3


# -- fresh answers ---------------------------------------------------------------------


def test_fresh_answer_was_queried_after_the_request_arrived(cloud: Cloud) -> None:
    cache = cloud.cache
    old = cache.get(vcpu_query())
    began = cache.next_sequence()
    again = cache.get(vcpu_query(), since=began)
    assert again.candidates is not old.candidates
    assert again.began > began > old.began
    assert cache.get(vcpu_query(), since=began).candidates is again.candidates
    assert cache.get(vcpu_query()).candidates is again.candidates
    assert cloud.n_gets == 2


def test_fresh_queries_wait_for_the_old_get_and_share_the_next(
    cloud: Cloud, server: HeldServer
) -> None:
    cache = cloud.new_cache(server.client())
    with ThreadPoolExecutor(N_CALLERS + 1) as pool:
        old = pool.submit(cache.get, vcpu_query())
        assert server.arrived.acquire(timeout=WAIT_S)
        calls = _call_all(cache, pool, since=cache.next_sequence())
        wait_until(lambda: n_waiting() == N_CALLERS)
        assert server.n_gets == 1
        server.go.set()
        fresh = {id(a.result().candidates) for a in calls}
    assert server.n_gets == 2
    assert len(fresh) == 1
    assert id(old.result().candidates) not in fresh


def test_fresh_query_does_not_share_an_older_gets_failure(
    cloud: Cloud, server: HeldServer
) -> None:
    cache = cloud.new_cache(server.client())
    server.n_failing = 1
    with ThreadPoolExecutor(2) as pool:
        old = pool.submit(cache.get, vcpu_query())
        assert server.arrived.acquire(timeout=WAIT_S)
        fresh = pool.submit(cache.get, vcpu_query(), since=cache.next_sequence())
        wait_until(lambda: n_waiting() == 1)
        server.go.set()
        assert isinstance(old.exception(), PlacementUnavailable)
        assert fresh.result().n_open == 3


# -- many at once ----------------------------------------------------------------------


def test_threads_claim_everything_and_get_right_answers(cloud: Cloud) -> None:
    """12 VCPUs, 16 callers: 12 get one, and 4 get no candidate from Placement."""

    def decide(_: int) -> bool:
        sequence = cloud.cache.next_sequence()
        offer = cloud.cache.get(vcpu_query())
        while True:
            for index in offer.is_open.nonzero()[0].tolist():
                if cloud.claim(offer, index)[1] is not None:
                    return True
                cloud.cache.exclude(offer, index)
            again = cloud.cache.get(vcpu_query(), since=sequence)
            if not again.has_more_than(offer):
                return False
            offer = again

    with ThreadPoolExecutor(N_CALLERS) as pool:
        granted = list(pool.map(decide, range(16)))
    assert sum(granted) == 12
    for host in HOSTS:
        used = cloud.client.read(f"/resource_providers/{host}/usages")
        assert used["usages"] == {"VCPU": N_VCPUS}  # type: ignore[index]  # decoded JSON


def test_unreachable_placement_is_the_same_error_as_without_cache(cloud: Cloud) -> None:
    with HeldServer(cloud.placement.wsgi_app) as gone:
        client = gone.client(timeout_s=1)
    with pytest.raises(PlacementError):
        cloud.new_cache(client).get(vcpu_query())


def test_fresh_query_includes_claims_of_others(cloud: Cloud) -> None:
    cloud.cache.get(vcpu_query())
    assert cloud.claim_unseen(HOSTS[1], request_of(HOSTS[0], VCPU=N_VCPUS))
    assert open_hosts(cloud.cache.get(vcpu_query())) == set(HOSTS)
    fresh = cloud.cache.get(vcpu_query(), since=cloud.cache.next_sequence())
    assert open_hosts(fresh) == set(HOSTS[1:])
