# SPDX-License-Identifier: Apache-2.0
"""nova's own functional tests pass with Moorage in nova-scheduler's place.

nova's API, conductor and computes run as nova's tests start them, in one process, with
their Placement, their databases and their message bus; only the scheduler is ours (see
`in_nova_tests`). Here are those that say most about a scheduler. MOORAGE_NOVA_TESTS
names other ones, with spaces between: modules, classes or tests.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from .peer import peer_python

PROGRAM = Path(__file__).parent / "in_nova_tests" / "run.py"
FUNCTIONAL = "nova.tests.functional"

CHOSEN = (
    "test_aggregates",
    "test_scheduler",
)

#: Tests that replace a part of nova-scheduler, which is not there.
ABOUT_ITS_INSIDE = {
    "test_aggregate_multitenancy_isolation_filter": "HostManager.get_filtered_hosts",
    "test_boot_with_immediate_port_fails_due_to_config": "SchedulerReportClient",
}

pytestmark = pytest.mark.peer


def chosen() -> list[str]:
    named = os.environ.get("MOORAGE_NOVA_TESTS")
    return named.split() if named else [f"{FUNCTIONAL}.{name}" for name in CHOSEN]


@pytest.mark.parametrize("name", chosen())
def test_they_pass(name: str) -> None:
    python = peer_python()
    if not python.exists():
        reason = f"no nova 34: {python} is missing; run `make peer`"
        if os.environ.get("MOORAGE_REQUIRE_ALL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    run = subprocess.run(
        [python, "-W", "ignore", PROGRAM, name],
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    rows = [json.loads(line) for line in run.stdout.splitlines() if line[:1] == "["]
    failed = {
        test: said
        for test, outcome, _, said in rows
        if outcome == "failed" and test.rsplit(".", 1)[-1] not in ABOUT_ITS_INSIDE
    }
    assert run.returncode == 0, run.stderr
    assert any(outcome == "passed" for _, outcome, _, _ in rows), run.stderr
    assert not failed, "\n\n".join(f"{test}\n{said}" for test, said in failed.items())
