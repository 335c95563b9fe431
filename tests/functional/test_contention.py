# SPDX-License-Identifier: Apache-2.0
"""Schedulers that prefer the same hosts fill half a cloud; no request finds no host.

How often they are refused is printed: always on the best host, and on one of some
near-equal ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ..fixtures.clouds import host
from ..fixtures.database_servers import Database
from .claimer import Load
from .claimers import (
    N_SCHEDULERS,
    Claimers,
    Outcome,
    cloud_of,
    expect_held_is_answered,
    most_used,
)

N_REQUESTS = 6

#: So few that the best host is full before the others know; half of all stays free.
VCPUS_A_HOST = 2

pytestmark = [
    pytest.mark.deep,
    pytest.mark.database,
    pytest.mark.xdist_group("functional"),
    pytest.mark.timeout(1800),
]


def claimed(kind: Database, folder: Path, load: Load) -> Outcome:
    """Let eight schedulers claim on an empty cloud, and check what it then holds.

    Its hosts differ by a MiB of RAM each: all schedulers like the same ones best.
    """
    folder.mkdir()
    n_hosts = N_SCHEDULERS * load.n_requests
    hosts = [
        host(f"h{i}", vcpus=VCPUS_A_HOST, memory_mb=65536 + i) for i in range(n_hosts)
    ]
    with (
        cloud_of(kind, folder, hosts) as cloud,
        Claimers(cloud, folder, load, timeout_s=120) as claimers,
    ):
        claimers.start_all()
        outcome = claimers.finished()
        expect_held_is_answered(cloud, outcome)
        assert most_used(cloud) <= VCPUS_A_HOST
    assert outcome.n_placed == N_SCHEDULERS * load.n_requests, "there was room for all"
    return outcome


def test_choice_among_near_equal_hosts_is_refused_less_often(
    tmp_path: Path,
) -> None:
    kind = Database.MARIADB
    best = claimed(kind, tmp_path / "best", Load(N_REQUESTS, max_choices=1))
    near = claimed(kind, tmp_path / "near", Load(N_REQUESTS))
    print(f"\nalways the best: {best}\none of the near: {near}")  # with -s or -rP
    assert near.n_refused < best.n_refused / 2
