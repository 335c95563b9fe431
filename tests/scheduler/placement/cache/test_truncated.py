# SPDX-License-Identifier: Apache-2.0
"""An answer that the limit truncated is noticed, and requested in full if useless."""

from __future__ import annotations

import pytest

from ..watched import HOSTS, Cloud, open_hosts, vcpu_query


def test_truncated_answer_is_warned_of_once_per_query(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        assert cloud.cache.get(vcpu_query(limit=2)).is_truncated
        cloud.clock.now += 6
    cloud.cache.get(vcpu_query(2, limit=2))
    assert caplog.text.count("truncated at 2 candidates") == 2
    assert cloud.cache.stats().truncated == 3


def test_query_has_no_limit_after_a_useless_truncated_answer(
    cloud: Cloud,
) -> None:
    few = cloud.cache.get(vcpu_query(limit=2))
    assert cloud.cache.lift_limit(few)
    assert cloud.cache.stats().requests == 0
    every = cloud.cache.get(vcpu_query(limit=2))
    assert open_hosts(every) == set(HOSTS)
    assert every.has_more_than(few)
    assert "limit" not in cloud.watched.urls[-1]
    assert cloud.cache.get(vcpu_query(limit=1)).candidates is every.candidates
    assert len(open_hosts(cloud.cache.get(vcpu_query(2, limit=2)))) == 2
    cloud.clock.now += 61
    assert cloud.cache.get(vcpu_query(limit=2)).candidates.n_requests == 2


def test_useless_whole_answer_is_not_queried_again(cloud: Cloud) -> None:
    assert not cloud.cache.lift_limit(cloud.cache.get(vcpu_query(limit=4)))
    cloud.cache.get(vcpu_query(limit=4))
    assert cloud.n_gets == 1
