# SPDX-License-Identifier: Apache-2.0
"""doc/tutorials/plugin.rst: examples/plugin is installed, tested and used."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from ..fixtures.installed_examples import ROOT, install_example, select_with

TUTORIAL = ROOT / "doc/tutorials/plugin.rst"
INVENTORY = """
cells: [{name: cell1}]
aggregates:
- {name: quarantine, metadata: {quarantine: "true"}, hosts: [fullest]}
hosts:
- {host: fullest, cell: cell1, vcpus: 8, memory_mb: 8192, local_gb: 99,
   memory_mb_used: 6144}
- {host: half-full, cell: cell1, vcpus: 8, memory_mb: 8192, local_gb: 99,
   memory_mb_used: 4096, power_watts: 90.5}
- {host: empty, cell: cell1, vcpus: 8, memory_mb: 8192, local_gb: 99, power_watts: 250}
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the plugin and our own packages."""
    return install_example("plugin", tmp_path_factory.mktemp("plugin"))


@pytest.fixture(scope="module")
def record(python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The decision record of one selection, with the configuration of the tutorial."""
    folder = tmp_path_factory.mktemp("inventory")
    inventory, config = folder / "inventory.yaml", folder / "moorage.conf"
    inventory.write_text(INVENTORY)
    blocks = re.findall(
        r"code-block:: ini\n\n((?: {3}.*\n)+)", TUTORIAL.read_text("utf-8")
    )
    config.write_text(textwrap.dedent(blocks[0]))
    return select_with(python, inventory, config)


def test_filter_of_the_plugin_rejects_the_quarantined_host(
    record: dict[str, Any],
) -> None:
    [step] = [s for s in record["steps"] if s["name"] == "QuarantineFilter"]
    assert (step["n_in"], step["n_out"]) == (3, 2)
    assert step["reason"] == "host is in quarantine"


def test_weighers_of_the_plugin_decide(record: dict[str, Any]) -> None:
    [instance] = record["instances"]
    assert instance["host"] == "half-full"
    weighed = {h["host"]: h["parts"] for h in instance["top_hosts"]}
    fill, power = ({n: p[i]["raw"] for n, p in weighed.items()} for i in (0, 1))
    assert [p["name"] for p in weighed["empty"]] == ["FillWeigher", "PowerWeigher"]
    assert fill == pytest.approx({"half-full": 0.5, "empty": 0.0})
    assert power == {"half-full": -90.5, "empty": -250.0}, "the file's column"


@pytest.mark.deep
def test_own_tests_of_the_plugin_pass(python: Path, tmp_path: Path) -> None:
    tests = ROOT / "examples" / "plugin" / "tests"
    command: list[str | Path] = [python, "-W", "ignore", "-m", "pytest", "-q"]
    command += ["-p", "no:cacheprovider"]
    answer = subprocess.run(
        [*command, "-c", "/dev/null", "--rootdir", tmp_path, tests],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        text=True,
        timeout=240,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.deep
def test_unknown_filter_stops_the_start_with_the_names_that_exist(
    tmp_path: Path,
) -> None:
    config = tmp_path / "moorage.conf"
    config.write_text("[filter_scheduler]\nenabled_filters = ComputeFilter,NoFilter\n")
    command = [sys.executable, "-W", "ignore", "-m", "moorage.scheduler.cmd.scheduler"]
    answer = subprocess.run(
        [*command, "--config-file", config],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert answer.returncode == 1
    assert "there is no filter 'NoFilter'" in answer.stderr
    assert "ComputeFilter, DifferentHostFilter" in answer.stderr
    assert "Traceback" not in answer.stderr
