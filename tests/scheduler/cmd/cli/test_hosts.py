# SPDX-License-Identifier: Apache-2.0
"""Hosts are shown by row and rack, with what conflicts."""

from __future__ import annotations

import dataclasses
import textwrap
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from moorage.scheduler.cmd.cli.hosts import show_tree
from moorage.scheduler.conf import load
from moorage.scheduler.explain import summarize
from moorage.scheduler.sources.inventory import read_inventory
from moorage.testing.builders import NOW, table

DOC = Path(__file__).parents[4] / "doc"


def _host(name: str, **places: list[str]) -> dict[str, Any]:
    return {"node": name, "places": {"rack": [], "row": [], **places}}


def _shown(*hosts: dict[str, Any]) -> str:
    console = Console(width=100, file=StringIO(), record=True)
    show_tree(console, {"hosts": hosts})
    return "\n".join(line.rstrip() for line in console.export_text().splitlines())


def test_tree_begins_with_the_largest_level() -> None:
    hosts = (
        _host("n2", rack=["r1"], row=["a"]),
        _host("n1", rack=["r1"], row=["a"]),
        _host("n3", rack=["r2"], row=["a"]),
        _host("n4"),
    )
    assert _shown(*hosts) == (
        "4 hosts\n"
        "├── no row (1)\n"
        "│   └── no rack (1)\n"
        "│       └── n4\n"
        "└── row a (3)\n"
        "    ├── rack r1 (2)\n"
        "    │   └── n1, n2\n"
        "    └── rack r2 (1)\n"
        "        └── n3"
    )


def test_tree_of_the_docs_is_that_of_their_inventory() -> None:
    hosts = table()
    inventory = read_inventory(DOC / "examples/racks.yaml")
    for each in inventory.aggregates:
        hosts.put_aggregate(each)
    for one in inventory.hosts:
        hosts.put(one.record)
    conf = load([], config_files=[])
    conf.set_override("levels", ["rack", "row"], group="locality")
    found = [dataclasses.asdict(h) for h in summarize(hosts, conf, NOW).hosts]
    page = (DOC / "how-to/locality.rst").read_text()
    assert textwrap.indent(_shown(*found), "   ") in page


def test_conflicts_are_noted() -> None:
    text = _shown(_host("n1", rack=["r1", "r2"]))
    assert "rack r1 and r2 (1)" in text
    assert "Note: host n1 has 2 places of level rack, r1, r2" in text


def test_no_level_is_said() -> None:
    text = _shown({"node": "n1", "places": {}})
    assert text.strip() == "No level is configured: see [locality] levels."


def test_no_host_is_said() -> None:
    assert _shown().strip() == "No host matches."
