# SPDX-License-Identifier: Apache-2.0
"""Memory is limited: expired answers are evicted first, then the longest unused."""

from __future__ import annotations

from moorage.scheduler.placement.client import PlacementClient

from ..watched import Cloud, vcpu_query


def test_least_recently_used_answers_go_first(cloud: Cloud) -> None:
    cache = cloud.new_cache(PlacementClient(cloud.watched), max_requests=7)
    cache.get(vcpu_query(1))
    cache.get(vcpu_query(2))
    cache.get(vcpu_query(1))
    cache.get(vcpu_query(3))  # three candidates each: the third has to push one out
    stats = cache.stats()
    assert (stats.answers, stats.requests, stats.evicted) == (2, 6, 1)
    cache.get(vcpu_query(1))
    assert cloud.n_gets == 3
    cache.get(vcpu_query(2))
    assert cloud.n_gets == 4


def test_answer_above_the_size_limit_is_returned_and_not_cached(cloud: Cloud) -> None:
    cache = cloud.new_cache(PlacementClient(cloud.watched), max_requests=2)
    assert cache.get(vcpu_query()).n_open == 3
    assert (cache.stats().answers, cache.stats().requests) == (0, 0)


def test_answers_that_are_too_old_make_room(cloud: Cloud) -> None:
    cloud.cache.get(vcpu_query(1))
    cloud.clock.now += 6
    cloud.cache.get(vcpu_query(2))
    assert (cloud.cache.stats().answers, cloud.cache.stats().evicted) == (1, 0)


def test_empty_answers_are_limited_too(cloud: Cloud) -> None:
    cache = cloud.new_cache(PlacementClient(cloud.watched), max_requests=2)
    for n in (10, 11, 12):
        assert cache.get(vcpu_query(n)).n_open == 0
    assert cache.stats().answers == 2
