# SPDX-License-Identifier: Apache-2.0
"""The pid file is that of the process that runs, and of one process only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from moorage.scheduler.cmd.pid_file import pid_file
from moorage.scheduler.errors import ConfigurationError

HOLD = """
import sys
from moorage.scheduler.cmd.pid_file import pid_file
with pid_file(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "moorage-scheduler.pid"


def _other(path: Path) -> subprocess.Popen[str]:
    """Return another process that has the file."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_file_has_the_process_and_is_removed(path: Path) -> None:
    with pid_file(str(path)):
        assert path.read_text() == f"{os.getpid()}\n"
    assert not path.exists()


def test_file_is_removed_after_an_error(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), pid_file(str(path)):
        raise ZeroDivisionError
    assert not path.exists()


def test_without_the_option_there_is_no_file() -> None:
    with pid_file(None):
        pass


def test_stale_file_is_replaced(path: Path) -> None:
    # A process that lives and has nothing to do with it: numbers are used again.
    path.write_text(f"{os.getppid()} and more than that\n")
    with pid_file(str(path)):
        assert path.read_text() == f"{os.getpid()}\n"


def test_file_of_a_killed_process_is_replaced(path: Path) -> None:
    with _other(path) as other:
        assert path.read_text() == f"{other.pid}\n"
        other.kill()
    assert path.exists()
    with pid_file(str(path)):
        assert path.read_text() == f"{os.getpid()}\n"


def test_file_in_use_is_refused_and_left_alone(path: Path) -> None:
    with _other(path) as other:
        with (
            pytest.raises(ConfigurationError, match=rf"pid_file {path}: .*uses it"),
            pid_file(str(path)),
        ):
            raise AssertionError("it is in use")
        assert path.read_text() == f"{other.pid}\n"
        other.communicate("")
    assert not path.exists()


def test_file_that_cannot_be_written_is_named_with_the_cause(tmp_path: Path) -> None:
    path = tmp_path / "no" / "such" / "folder.pid"
    cause = rf"\[moorage\] pid_file {path}: it cannot be written: No such file"
    with pytest.raises(ConfigurationError, match=cause), pid_file(str(path)):
        raise AssertionError("there is no such folder")
