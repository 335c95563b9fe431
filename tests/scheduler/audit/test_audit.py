# SPDX-License-Identifier: Apache-2.0
"""An audit finds every planted fault, and nothing else, also while requests run."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from moorage.scheduler.audit import AuditReport, Kind
from moorage.scheduler.waiting import SystemWaiter

from ...fixtures.audited_clouds import audited_cloud
from ...fixtures.waiting import wait_until


def _found(report: AuditReport) -> set[tuple[Kind, str]]:
    return {(finding.kind, finding.subject) for finding in report.findings}


@pytest.mark.parametrize("follows", [True, False], ids=["database", "api"])
def test_cloud_that_agrees_has_no_findings(tmp_path: Path, follows: bool) -> None:
    with audited_cloud(tmp_path, 1, follows=follows) as cloud:
        report = cloud.audit()
        assert report.findings == []
        assert report.n_hosts == len(cloud.hosts) + 1


def test_fault_that_a_faster_clock_wrote_is_found(tmp_path: Path) -> None:
    with audited_cloud(tmp_path, 1, follows=True) as cloud:
        consumer = cloud.uuid()
        cloud.hold(consumer, {cloud.hosts["node0"]: {"VCPU": 1}})
        with contextlib.closing(sqlite3.connect(tmp_path / "placement.sqlite")) as db:
            ahead = "strftime('%Y-%m-%d %H:%M:%f000', 'now', '5 seconds')"
            written = f"created_at = {ahead}, updated_at = {ahead}"
            db.execute(
                f"UPDATE allocations SET {written} WHERE consumer_id = ?",
                [consumer],
            )
            db.commit()
        assert _found(cloud.audit()) == {(Kind.LEFTOVER, consumer)}
        assert _found(cloud.audit(min_age_s=0.001)) == set()


class _UntilDecided(SystemWaiter):
    """Pauses between two comparisons until requests have changed something."""

    def __init__(self, decided: list[str]) -> None:
        self._decided = decided
        self.n_pauses = 0

    def sleep(self, seconds: float) -> None:
        if seconds < 1:
            super().sleep(seconds)
            return
        self.n_pauses += 1
        n_before = len(self._decided)
        wait_until(lambda: len(self._decided) > n_before + 2)


@pytest.mark.parametrize("follows", [True, False], ids=["database", "api"])
def test_all_faults_are_found_and_nothing_else(tmp_path: Path, follows: bool) -> None:
    with audited_cloud(tmp_path, 0, follows=follows) as cloud:
        faults = cloud.plant()
        assert _found(cloud.audit()) == faults


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(1, 11))
def test_all_faults_of_many_clouds_are_found(tmp_path: Path, seed: int) -> None:
    # More faults are planted before each of four audits; beside two, requests run. Over
    # the API, providers are read one after the other, while instances move: there, none
    # run.
    with audited_cloud(tmp_path, seed, follows=True) as cloud:
        faults = cloud.plant()
        assert _found(cloud.audit()) == faults
        for _ in range(2):
            faults |= cloud.plant()
            with cloud.requests_running() as decided:
                waiter = _UntilDecided(decided)
                assert _found(cloud.audit(pause_s=1, waiter=waiter)) == faults
                assert waiter.n_pauses == 1
        faults |= cloud.plant()
        cloud.read_api()
        assert _found(cloud.audit()) == faults
