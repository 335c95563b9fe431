# SPDX-License-Identifier: Apache-2.0
"""Only queries that are used often are refreshed in the background."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ....fixtures.placement_servers import Misbehaviour
from ....fixtures.waiting import wait_until
from ..watched import N_VCPUS, Cloud, HeldServer, n_waiting, vcpu_query


def _renewing_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "allocation-candidates"]


def test_hot_answer_is_renewed_while_the_old_one_serves(
    cloud: Cloud, server: HeldServer
) -> None:
    cache = cloud.new_cache(server.client())
    server.go.set()
    old = cache.get(vcpu_query())
    server.go.clear()
    cloud.clock.now += 4.5
    assert cache.get(vcpu_query()).candidates is old.candidates
    wait_until(lambda: server.n_gets == 2)
    assert cache.get(vcpu_query()).candidates is old.candidates  # and it is not held up
    server.go.set()
    wait_until(lambda: cache.get(vcpu_query()).candidates is not old.candidates)
    cloud.clock.now += 3.0
    cache.get(vcpu_query())
    assert server.n_gets == 2
    assert cache.stats().refreshes == 1


def test_unused_query_is_never_refreshed(cloud: Cloud) -> None:
    cloud.cache.get(vcpu_query())
    cloud.clock.now += 3.0
    cloud.cache.get(vcpu_query())  # young still
    cloud.clock.now += 1.9
    assert not _renewing_threads()
    assert cloud.n_gets == 1


def test_slow_answer_is_renewed_the_earlier(cloud: Cloud) -> None:
    def take_2_s() -> None:
        cloud.clock.now += 2.0

    cloud.watched.before.append(take_2_s)
    cloud.cache.get(vcpu_query())
    cloud.clock.now += 2.1  # 2.9 s are left, less than 1.5 times its duration
    cloud.cache.get(vcpu_query())
    wait_until(lambda: cloud.n_gets == 2)


def test_asker_joins_a_renewal_once_the_old_answer_is_too_old(
    cloud: Cloud, server: HeldServer
) -> None:
    cache = cloud.new_cache(server.client())
    server.go.set()
    cache.get(vcpu_query())
    server.go.clear()
    cloud.clock.now += 4.5
    cache.get(vcpu_query())
    wait_until(lambda: server.n_gets == 2)
    cloud.clock.now += 4.5
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(cache.get, vcpu_query())
        wait_until(lambda: n_waiting() == 1)
        server.go.set()
        assert call.result().n_open == 3
    assert server.n_gets == 2


def test_renewals_are_few_at_a_time(cloud: Cloud, server: HeldServer) -> None:
    cache = cloud.new_cache(server.client())
    server.go.set()
    for n in range(1, N_VCPUS + 1):
        cache.get(vcpu_query(n))
    server.go.clear()
    cloud.clock.now += 4.5
    for _ in range(2):
        for n in range(1, N_VCPUS + 1):
            cache.get(vcpu_query(n))
    assert len(_renewing_threads()) == 2
    assert cache.stats().refreshes == 2
    server.go.set()
    cache.stop()
    assert not _renewing_threads()


def test_absent_placement_is_queried_once_while_the_old_answer_serves(
    cloud: Cloud, server: HeldServer, caplog: pytest.LogCaptureFixture
) -> None:
    cache = cloud.new_cache(server.client())
    server.go.set()
    old = cache.get(vcpu_query())
    server.misbehave(Misbehaviour.ERROR, verb="GET")
    cloud.clock.now += 4.0
    cache.get(vcpu_query())
    wait_until(lambda: not _renewing_threads())
    assert cache.get(vcpu_query()).candidates is old.candidates
    cache.stop()
    assert server.n_gets == 2
    assert "Refreshing cached candidates failed" in caplog.text


def test_nothing_is_renewed_after_the_end(cloud: Cloud) -> None:
    cloud.cache.get(vcpu_query())
    cloud.cache.stop()
    cloud.clock.now += 4.5
    assert cloud.cache.get(vcpu_query()).n_open == 3
    assert not _renewing_threads()
    assert cloud.n_gets == 1
