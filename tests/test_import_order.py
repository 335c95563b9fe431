# SPDX-License-Identifier: Apache-2.0
"""Imports follow the order of the packages, whatever the checkout's name is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"
SOURCES = (
    "__init__.py",
    "objects",
    "agent",
    "conductor",
    "filters",
    "weighers",
    "scheduler",
    "simulator",
    "testing",
)


def _lint(
    package: Path, config: Path, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Lint the package of a folder, under the name moorage."""
    as_moorage = folder / "as_moorage"
    as_moorage.mkdir(exist_ok=True)
    (as_moorage / "moorage").symlink_to(package, target_is_directory=True)
    first = f"import sys; sys.path.insert(0, {str(as_moorage)!r}); "
    return subprocess.run(
        [sys.executable, "-c", first + LINT, "--config", str(config), "--no-cache"],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )


def test_imports_are_in_order(tmp_path: Path) -> None:
    answer = _lint(ROOT, ROOT / ".importlinter", tmp_path)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "0 broken" in answer.stdout


def test_import_that_points_up_is_found(tmp_path: Path) -> None:
    copy = tmp_path / "some-other name"
    copy.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name)
        else:
            shutil.copy(source, copy / name)
    (copy / "scheduler/hosts/wrong.py").write_text("from ..drivers import record\n")
    answer = _lint(copy, ROOT / ".importlinter", tmp_path)
    assert answer.returncode == 1
    assert "moorage.scheduler.hosts.wrong -> moorage.scheduler.drivers" in answer.stdout
