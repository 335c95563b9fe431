# SPDX-License-Identifier: Apache-2.0
"""The capacity where providers share storage is what a loop of claims places."""

from __future__ import annotations

import contextlib
import copy
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import os_traits
import pytest
from oslo_config import cfg

from moorage.objects import RequestSpec
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.explain import FlavorCapacity, request_of_flavor
from moorage.scheduler.placement.memory import ProviderCandidatesSource
from moorage.scheduler.placement.seed import Provider, seed
from moorage.scheduler.service import Scheduler, build

from ...fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory

_SHARES = frozenset({os_traits.MISC_SHARES_VIA_AGGREGATE})
_MOST = 50

Counts = Callable[..., tuple[FlavorCapacity, int]]


@contextlib.contextmanager
def _cloud(
    conf: cfg.ConfigOpts, folder: Path, hosts: list[dict[str, Any]], pools: list[int]
) -> Iterator[Scheduler]:
    """Run hosts that share pools of so many GB."""
    aggregate = {"name": "a", "hosts": [each["host"] for each in hosts], "metadata": {}}
    path = write_inventory(folder, *hosts, aggregates=[aggregate])
    conf.set_override("inventory_file", str(path), group="moorage")
    conf.set_override("candidates_max_age", 0, group="moorage")
    conf.set_override("enabled_filters", ["ComputeFilter"], group="filter_scheduler")
    scheduler = build(conf)
    try:
        scheduler.start()
        [shared] = [each.uuid for each in scheduler.table.aggregates]
        providers = [
            Provider(
                str(uuid.uuid4()),
                f"pool{i}",
                {"DISK_GB": {"total": disk_gb}},
                _SHARES,
                frozenset({shared}),
            )
            for i, disk_gb in enumerate(pools)
        ]
        seed(scheduler.placement, providers)
        assert isinstance(scheduler.candidates, ProviderCandidatesSource)
        assert scheduler.candidates.follower.poll()
        yield scheduler
    finally:
        scheduler.stop()


def _placed(scheduler: Scheduler, spec: RequestSpec) -> int:
    for n_placed in range(_MOST):
        try:
            scheduler.select_destinations(
                CONTEXT, copy.deepcopy(spec), new_uuids(), True, False
            )
        except NoValidHost:
            return n_placed
    raise AssertionError("it never ends")


@pytest.fixture
def counts(conf: cfg.ConfigOpts, tmp_path: Path) -> Counts:
    """Return the capacity, and what a loop of claims places."""

    def found(
        hosts: list[dict[str, Any]], pools: list[int], **specs: str
    ) -> tuple[FlavorCapacity, int]:
        flavor = request_of_flavor(request(extra_specs=specs).flavor)
        flavor.spec_obj.project_id = flavor.spec_obj.user_id = "someone"
        with _cloud(conf, tmp_path, hosts, pools) as scheduler:
            [counted] = scheduler.explainer.capacity([flavor]).flavors
            return counted, _placed(scheduler, flavor.spec_obj)

    return found


def test_a_pool_that_hosts_with_and_without_pcpus_share_counts_once(
    counts: Counts,
) -> None:
    resources = {"PCPU": {"total": 8}, "VCPU": {"total": 1, "reserved": 1}}
    hosts = [
        host("h0", local_gb=0, vcpus=1, resources=resources),
        host("h1", local_gb=0),
    ]
    counted, n_placed = counts(hosts, [20], **{"hw:cpu_policy": "dedicated"})
    assert counted.n_instances == n_placed == 2


@pytest.mark.parametrize(
    ("local_gb", "pools", "n_expected"),
    [
        (20, [10], 5),
        (0, [20, 20], 4),
        (0, [30], 3),
    ],
)
def test_disks_of_hosts_and_pools_count_together(
    counts: Counts, local_gb: int, pools: list[int], n_expected: int
) -> None:
    hosts = [host("h0", local_gb=local_gb), host("h1", local_gb=local_gb)]
    counted, n_placed = counts(hosts, pools)
    assert counted.n_instances == n_placed == n_expected
    # Which of several providers a claim takes is a choice.
    assert counted.is_exact == (pools == [30])


def test_a_pool_without_the_disks_of_hosts_limits_hosts_without_any(
    counts: Counts,
) -> None:
    hosts = [host("h0", local_gb=50), host("h1", local_gb=0), host("h2", local_gb=0)]
    counted, _ = counts(hosts, [10])
    assert (counted.n_instances, counted.is_exact) == (6, False)


def test_room_of_hosts_that_share_a_pool_is_at_most_their_sum(
    conf: cfg.ConfigOpts, tmp_path: Path
) -> None:
    """Each host may use the whole pool, which has room for three instances."""
    hosts = [host("h0", local_gb=0), host("h1", local_gb=0)]
    flavor = request_of_flavor(request().flavor)
    with _cloud(conf, tmp_path, hosts, [30]) as scheduler:
        page = scheduler.explainer.hosts(flavors=[flavor])
    assert [each.fits for each in page.hosts] == [{"plain": 3}, {"plain": 3}]
    assert page.room is not None
    [plain] = page.room.flavors
    assert (plain.n_instances, plain.is_exact) == (6, False)
