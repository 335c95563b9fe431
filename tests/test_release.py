# SPDX-License-Identifier: Apache-2.0
"""`make release` refuses what would not be the release of a commit."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from moorage import __version__

ROOT = Path(__file__).parents[1]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a commit of the files that are read before a build."""
    for name in ("__init__.py", "CHANGELOG.md", ".ci/release"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return tmp_path


def git(repository: Path, *arguments: str) -> None:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    command = ["git", *who, "-c", "commit.gpgsign=false", *arguments]
    subprocess.run(command, cwd=repository, check=True)


def release(repository: Path) -> tuple[int, str]:
    # Its environment of tools is missing, so that an accepted release builds nothing.
    command = [str(repository / ".ci/release"), "missing"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return run.returncode, run.stderr


def test_uncommitted_change_is_refused(repository: Path) -> None:
    (repository / "new.py").touch()
    status, errors = release(repository)
    assert status == 1
    assert "changes that are not committed:\n?? new.py" in errors


def test_tag_of_another_version_is_refused(repository: Path) -> None:
    git(repository, "tag", "99.0")
    assert release(repository) == (
        1,
        "make release: tag 99.0 at HEAD, but __init__.py has "
        f'__version__ = "{__version__}"\n',
    )


def test_version_without_notes_is_refused(repository: Path) -> None:
    (repository / "CHANGELOG.md").write_text("# Changes\n\n## 99.0\n\nMore.\n")
    git(repository, "commit", "--quiet", "--all", "--message", "second")
    status, errors = release(repository)
    assert status == 1
    assert f'CHANGELOG.md has no section "## {__version__}"' in errors


def test_commit_with_notes_and_its_own_tag_is_built(repository: Path) -> None:
    git(repository, "tag", f"v{__version__}")
    git(repository, "tag", "not-a-version")
    _, errors = release(repository)
    assert "make release:" not in errors
    assert "missing/bin/python: No such file or directory" in errors
