# SPDX-License-Identifier: Apache-2.0
"""Failed requests of a cloud of 10,000 hosts: their causes in three commands each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner

from moorage.scheduler.cmd.cli.main import cli

from ..fixtures.failing_cloud import (
    DOWN_S,
    FULL_ZONE,
    TRAIT,
    FailingCloud,
    FailureCause,
    failing_cloud,
)

pytestmark = [pytest.mark.deep, pytest.mark.xdist_group("functional")]

N_HOSTS = 10_000
#: Of a terminal; a command's answer must fit.
_N_LINES = 50

#: What the second command has to name, and the third.
_EXPECTED = {
    FailureCause.MEMORY: (
        "9,980 lack memory",
        "MEMORY_MB more than its capacity 921600",
    ),
    FailureCause.DISABLED: (f"required {TRAIT}", "COMPUTE_STATUS_DISABLED"),
    FailureCause.FULL: (f"9,980 are not in zone {FULL_ZONE}, 20 lack CPUs", "VCPU"),
    FailureCause.DOWN: (
        "ComputeFilter 20 0",
        f"(last_seen_up) at most 60 s ago {DOWN_S // 10_000}",
    ),
    FailureCause.HYPERVISOR: (
        "ImagePropertiesFilter 3,330 0",
        "hypervisor_version is missing or different >= 8000000 6002001",
    ),
}

Run = Callable[..., str]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FailingCloud]:
    with failing_cloud(tmp_path_factory.mktemp("cloud"), N_HOSTS) as made:
        yield made


@pytest.fixture
def run(cloud: FailingCloud) -> Run:
    """Run the command moorage; return what it prints, which fits a screen."""

    def run(*args: str) -> str:
        result = CliRunner().invoke(cli, ["--url", cloud.url, *args])
        assert result.exit_code == 0, result.output
        assert "--json" in args or len(result.stdout.splitlines()) <= _N_LINES
        return result.stdout

    return run


@pytest.mark.parametrize("cause", FailureCause, ids=lambda cause: cause.name.lower())
def test_three_commands_lead_to_the_cause(
    cloud: FailingCloud, run: Run, cause: FailureCause
) -> None:
    explained, rejecting = _EXPECTED[cause]
    assert cause.value in run("decisions", "--failed")
    assert explained in _joined(run("explain", cause.value))
    lines = run("why-not", cloud.hosts[cause], cause.value).splitlines()
    reasons = [
        line for line in lines if line.split()[:1] in (["filter"], ["placement"])
    ]
    assert rejecting in _joined(reasons[0])
    assert len(reasons) == (2 if cause is FailureCause.DISABLED else 1)


def test_users_get_counts_and_no_names(run: Run) -> None:
    found = json.loads(run("decisions", "--failed", "--json"))["decisions"]
    messages = [each["user_message"] for each in found]
    assert len(messages) == len(FailureCause)
    assert all(f"Of {N_HOSTS:,} hosts: " in message for message in messages)
    assert not any("host0" in message for message in messages)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["hosts"], f"and {N_HOSTS - 40:,} more"),
        (["schedule", "--dry-run", "--vcpus", "1", "--ram", "512"], "selected"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_an_answer_about_all_hosts_is_bounded(
    run: Run, args: list[str], expected: str
) -> None:
    assert expected in run(*args)


def _joined(text: str) -> str:
    return " ".join(text.split())
