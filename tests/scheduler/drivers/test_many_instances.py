# SPDX-License-Identifier: Apache-2.0
"""A request for many instances does not hold a ranking of all hosts for each one."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from moorage.scheduler.drivers.record import TOP_INSTANCES
from moorage.scheduler.placement.allocations.limits import MAX_CLAIMED_TOGETHER
from moorage.scheduler.service import Scheduler

from ...fixtures.clouds import CONTEXT, host, new_uuids, request, started_scheduler

N_HOSTS = 200
N_INSTANCES = 300
#: What 60 MiB are for 10,000 instances.
MAX_BYTES_PER_INSTANCE = 6 * 1024
#: What one ranking, its arrays and the next batch of hosts need, and the caches.
MAX_FIXED_BYTES = 1024 * 1024


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    large = {"vcpus": 64, "memory_mb": 262144, "local_gb": 4000}
    hosts = [host(f"h{i}", **large) for i in range(N_HOSTS)]
    with started_scheduler(tmp_path_factory.mktemp("cloud"), *hosts) as scheduler:
        yield scheduler


def _select(scheduler: Scheduler, n_instances: int) -> object:
    # Without UUIDs nothing is claimed: the embedded Placement's memory does not count.
    return scheduler.select_destinations(
        CONTEXT,
        request(num_instances=n_instances),
        return_objects=True,
        return_alternates=True,
    )


@pytest.mark.deep
def test_memory_of_a_request_does_not_grow_by_a_ranking_an_instance(
    scheduler: Scheduler,
) -> None:
    _select(scheduler, 2)  # candidates and results of filters are cached from now on
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        reply = _select(scheduler, N_INSTANCES)
        now, peak = tracemalloc.get_traced_memory()
        del reply
        reply_size = now - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert (
        peak - before - reply_size
        < MAX_FIXED_BYTES + N_INSTANCES * MAX_BYTES_PER_INSTANCE
    )


@pytest.mark.deep
def test_instances_of_a_large_request_are_recorded_and_the_first_in_full(
    scheduler: Scheduler,
) -> None:
    n_instances = TOP_INSTANCES + 5
    scheduler.select_destinations(
        CONTEXT, request(num_instances=n_instances), new_uuids(n_instances)
    )
    [record] = scheduler.decisions.newest(1)
    assert len(record.instances) == n_instances
    assert all(i.host and i.weight > 0 for i in record.instances)
    n_in_full = sum(bool(i.top_hosts) for i in record.instances)
    assert n_in_full == TOP_INSTANCES
    assert f"and {n_instances - TOP_INSTANCES} more" in record.summary()


def test_instances_of_a_large_request_are_claimed_in_several_posts(
    scheduler: Scheduler,
) -> None:
    n_instances = MAX_CLAIMED_TOGETHER + 20
    uuids = new_uuids(n_instances)
    scheduler.select_destinations(CONTEXT, request(num_instances=n_instances), uuids)
    [record] = scheduler.decisions.newest(1)
    assert [len(each.instance_uuids) for each in record.claims] == [
        MAX_CLAIMED_TOGETHER,
        20,
    ]
    assert [u for each in record.claims for u in each.instance_uuids] == uuids
