# SPDX-License-Identifier: Apache-2.0
"""Two schedulers over a real broker share one real Placement and lose no claim."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from moorage.objects import Selection
from moorage.scheduler.errors import NoValidHost

from ..fixtures.clouds import (
    CONTEXT,
    claimed,
    host,
    new_uuids,
    request,
    summed,
    usages,
)
from ..fixtures.database_servers import Database
from ..fixtures.waiting import wait_until
from .served_cloud import ServedCloud, served_cloud

N_HOSTS = 6
N_CALLS = 25


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[ServedCloud]:
    """Two schedulers and six hosts of 8 vCPUs each."""
    hosts = [host(f"h{number}") for number in range(N_HOSTS)]
    with served_cloud(Database.POSTGRESQL, tmp_path, hosts, n_schedulers=2) as made:
        yield made


class Answered(NamedTuple):
    """A call's instances, and their selections; None: it fits nowhere."""

    uuids: Sequence[str]
    selections: list[list[Selection]] | None


def _call(cloud: ServedCloud, vcpus: int, count: int) -> Answered:
    uuids = new_uuids(count)
    spec = request(vcpus=vcpus, num_instances=count)
    try:
        return Answered(
            uuids,
            cloud.api.select_destinations(CONTEXT, spec, uuids, return_alternates=True),
        )
    except NoValidHost:
        return Answered(uuids, None)


def _held(cloud: ServedCloud, uuids: Iterable[str]) -> dict[str, Any]:
    return {uuid: cloud.placement.allocations(uuid).resources for uuid in uuids}


@pytest.mark.deep
@pytest.mark.broker
@pytest.mark.database
@pytest.mark.xdist_group("functional")
def test_concurrent_calls_lose_no_claim(cloud: ServedCloud) -> None:
    # 48 vCPUs for 103 requested: some calls must fail, some of them in part.
    sizes = [(1, 1)] * 10 + [(2, 3)] * 7 + [(3, 1)] * 5 + [(5, 2)] * 2 + [(16, 1)]
    random.Random(0).shuffle(sizes)
    with ThreadPoolExecutor(N_CALLS) as pool:
        answers = list(pool.map(lambda size: _call(cloud, *size), sizes))

    failed = [answer for answer in answers if answer.selections is None]
    wanted = {
        uuid: claimed(selections[number][0]) if selections else {}
        for uuids, selections in answers
        for number, uuid in enumerate(uuids)
    }
    # A release that met other writers four times is repeated after the answer.
    wait_until(
        lambda: _held(cloud, wanted) == wanted,
        describe=lambda: f"{_held(cloud, wanted)} is held, {wanted} was answered",
    )
    used = usages(cloud.placement, cloud.nodes)
    assert used == {uuid: summed(wanted.values()).get(uuid, {}) for uuid in cloud.nodes}
    assert max(resources["VCPU"] for resources in used.values()) <= 8, used
    assert 1 <= len(failed) < N_CALLS, "the cloud is too small for all, not for any"
    assert sum(r["VCPU"] for r in used.values()) >= 0.7 * 8 * N_HOSTS
    n_decided = lambda: [each.count("Decision") for each in cloud.schedulers]  # noqa: E731 - as short as its use
    wait_until(lambda: sum(n_decided()) == N_CALLS)
    assert all(n_decided()), "both schedulers had their share"
    assert [scheduler.stop() for scheduler in cloud.schedulers] == [0, 0]
