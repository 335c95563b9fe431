# SPDX-License-Identifier: Apache-2.0
"""Eight schedulers fill one cloud, and nothing is lost, doubled or left behind."""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import pytest

from moorage.scheduler.placement.client import PlacementClient

from ..fixtures.clouds import host
from ..fixtures.database_servers import Database
from ..fixtures.flaky_proxy import Fault, FlakyProxy
from ..fixtures.waiting import wait_until
from .claimer import Load
from .claimers import (
    N_SCHEDULERS,
    Claimers,
    Cloud,
    Outcome,
    cloud_of,
    expect_held_is_answered,
    most_used,
)

#: Requests of each scheduler. 200 last about a minute on two fast cores.
N_REQUESTS = int(os.environ.get("MOORAGE_STRESS_REQUESTS", "20"))

#: The same where answers are lost, and where Placement is killed; timeouts last long.
N_REQUESTS_OF_LOST_ANSWERS = min(N_REQUESTS, 16)
N_REQUESTS_AT_A_KILL = 24

VCPUS_A_HOST = 19

#: From the end of Placement to its next start.
AWAY_S = 1.0

pytestmark = [
    pytest.mark.deep,
    pytest.mark.database,
    pytest.mark.xdist_group("functional"),
    pytest.mark.timeout(1800),
]


class CloudFor(Protocol):
    """Make a cloud with room for 95 % of what all schedulers request."""

    def __call__(self, n_requests: int) -> AbstractContextManager[Cloud]: ...


def _on(*kinds: Database) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "cloud_for", kinds, indirect=True, ids=lambda kind: kind.name
    )


@pytest.fixture
def cloud_for(request: pytest.FixtureRequest, tmp_path: Path) -> CloudFor:
    """Clouds that are too small for all."""

    def of_size(n_requests: int) -> AbstractContextManager[Cloud]:
        n_hosts = N_SCHEDULERS * n_requests // (VCPUS_A_HOST + 1)
        names = map("h{}".format, range(n_hosts))
        hosts = [host(name, vcpus=VCPUS_A_HOST) for name in names]
        return cloud_of(request.param, tmp_path, hosts)

    return of_size


def expect_consistent(cloud: Cloud, outcome: Outcome, load: Load) -> None:
    """Print the measurements, and compare the allocations with the answers."""
    print(f"\n{outcome}")  # pytest shows it with -s or -rP
    assert len(outcome.answers) == N_SCHEDULERS * load.n_requests
    expect_held_is_answered(cloud, outcome)
    assert most_used(cloud) <= VCPUS_A_HOST


# The two kinds of database take turns: none of these tests depends on it.
@_on(Database.MARIADB)
def test_full_cloud_holds_what_was_answered(
    cloud_for: CloudFor, tmp_path: Path
) -> None:
    load = Load(N_REQUESTS)
    with (
        cloud_for(N_REQUESTS) as cloud,
        Claimers(cloud, tmp_path, load, timeout_s=120) as claimers,
    ):
        claimers.start_all()
        outcome = claimers.finished()
        expect_consistent(cloud, outcome, load)
        assert outcome.n_placed == cloud.vcpus
        left = {a.answer for a in outcome.answers.values() if not a.held}
        assert left == {None}, "the others got no valid host"


# What is lost on the way does not depend on the database, and the simulation draws it.
@_on(Database.MARIADB)
def test_answers_that_are_lost_late_or_doubled_lose_no_claim(
    cloud_for: CloudFor, tmp_path: Path
) -> None:
    load = Load(N_REQUESTS_OF_LOST_ANSWERS, retries=True)
    with (
        cloud_for(load.n_requests) as cloud,
        FlakyProxy(cloud.server.url, share=0.1, delay_s=3.6) as proxy,
        Claimers(cloud, tmp_path, load, url=proxy.url, timeout_s=3.0) as claimers,
    ):
        claimers.start_all()
        outcome = claimers.finished()
        expect_consistent(cloud, outcome, load)
        assert all(proxy.n_faults[each] for each in Fault)
        assert outcome.n_placed >= 0.8 * cloud.vcpus


@_on(Database.POSTGRESQL)
def test_placement_killed_under_load_loses_no_claim(
    cloud_for: CloudFor, tmp_path: Path
) -> None:
    load = Load(N_REQUESTS_AT_A_KILL, retries=True)
    with (
        cloud_for(load.n_requests) as cloud,
        Claimers(cloud, tmp_path, load, timeout_s=30) as claimers,
    ):
        claimers.start_all()
        # Each thread of a scheduler may have a claim that it has not answered yet.
        wait_until_used(cloud, cloud.vcpus // 4 + N_SCHEDULERS * load.n_threads)
        killed_at = time.monotonic()
        cloud.server.kill()
        time.sleep(AWAY_S)
        cloud.server.restart()
        back_at = time.monotonic()
        outcome = claimers.finished()
        expect_consistent(cloud, outcome, load)
    answers = outcome.answers.values()
    n_before = sum(bool(a.held) and a.at < killed_at for a in answers)
    n_after = sum(bool(a.held) and a.at > back_at for a in answers)
    failed = [a for a in answers if a.failed]
    n_later = sum(bool(a.held) for a in failed)
    n_never = sum(isinstance(a.answer, str) for a in failed)
    errors = {name for a in failed for name in a.failed}
    print(
        f"{n_before} placed before the end, {n_after} after the next start, "
        f"{back_at - killed_at:.1f} s later; {len(failed)} requests failed "
        f"({', '.join(sorted(errors))}), {n_later} were placed at a repeated request"
    )
    assert n_before >= cloud.vcpus // 4, "some were granted before"
    assert n_after >= cloud.vcpus // 4, "some were granted after"
    assert n_never, "some ended in an error, and hold nothing"
    assert n_later, "some ended in an error, and were placed at a repeated request"


def wait_until_used(cloud: Cloud, n_vcpus: int) -> None:
    """Wait until claims for so many have been granted, one vCPU each."""
    client: PlacementClient = cloud.server.client

    def n_claimed() -> int:
        body: Any = client.read("/usages?project_id=project")
        return int(body["usages"].get("VCPU", 0))

    wait_until(lambda: n_claimed() >= n_vcpus, interval_s=0.1)
