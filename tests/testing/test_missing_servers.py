# SPDX-License-Identifier: Apache-2.0
"""A run without a server ends with a line that names it, and fails where it must."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Two tests of memcached, and one that nova 34 is needed for.
TESTS = """
import pytest
from tests.fixtures.markers import Server, skip_without

@pytest.mark.parametrize("number", [1, 2])
def test_memcached(number):
    skip_without(Server.MEMCACHED, "it is not on the PATH")

@pytest.fixture
def peer():
    skip_without(Server.NOVA, "python is missing")

def test_nova(peer):
    pass

@pytest.mark.skip(reason="no memcached is needed")
def test_other():
    pass
"""


def _run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    file = folder / "test_servers.py"
    file.write_text(TESTS)
    without = {k: v for k, v in os.environ.items() if k != "MOORAGE_REQUIRE_ALL"}
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "tests.conftest"),
            *("-p", "no:schemathesis", "-c", str(ROOT / "pyproject.toml"), str(file)),
        ],
        capture_output=True,
        check=False,
        cwd=ROOT,
        env=without | environment,
        text=True,
        timeout=120,
    )


@pytest.mark.deep
def test_each_missing_server_is_named_once_with_the_number_of_its_tests(
    tmp_path: Path,
) -> None:
    run = _run(tmp_path)

    lines = [line for line in run.stdout.splitlines() if "skipped: no" in line]
    assert lines == [
        "2 tests skipped: no memcached (apt-get install memcached)",
        "1 test skipped: no nova 34 (make peer)",
    ], run.stdout
    assert run.returncode == 0


@pytest.mark.deep
def test_missing_server_fails_its_tests_where_all_are_required(tmp_path: Path) -> None:
    run = _run(tmp_path, MOORAGE_REQUIRE_ALL="1")

    assert "2 failed, 1 skipped, 1 error" in run.stdout
    assert "no memcached (apt-get install memcached): it is not on the" in run.stdout
    assert run.returncode == 1
