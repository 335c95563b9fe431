# SPDX-License-Identifier: Apache-2.0
"""examples/driver is a package that is installed, and whose driver selects."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest

from ..fixtures.clouds import host, inventory
from ..fixtures.installed_examples import ROOT, install_example, select_with

# It creates an environment and builds a wheel.
pytestmark = pytest.mark.deep

PAGE = ROOT / "doc/how-to/choose-a-driver.rst"


def test_installed_driver_selects_the_better_of_two_hosts(tmp_path: Path) -> None:
    python = install_example("driver", tmp_path)
    hosts = [host(f"h{i}", memory_mb=16384 * (i + 1)) for i in range(3)]
    (tmp_path / "hosts.yaml").write_text(json.dumps(inventory(*hosts)))
    [block] = re.findall(
        r"code-block:: ini\n\n((?: {3}.*\n)*? {3}driver = TwoChoices\n)",
        PAGE.read_text("utf-8"),
    )
    config = tmp_path / "moorage.conf"
    config.write_text(textwrap.dedent(block))
    record = select_with(python, tmp_path / "hosts.yaml", config)
    [instance] = record["instances"]
    weights = {top["host"]: top["weight"] for top in instance["top_hosts"]}
    assert set(weights) == {"h0", "h1", "h2"}
    assert instance["host"] == max(weights, key=weights.__getitem__)
    assert instance["host"] != "h0", "the lower weight of any two"
    assert [claim["result"] for claim in record["claims"]] == ["claimed"]


def test_package_has_sixty_lines() -> None:
    files = (path for path in (ROOT / "examples/driver").glob("*.*"))
    n_lines = sum(len(path.read_text().splitlines()) for path in files)
    assert n_lines <= 60
