# SPDX-License-Identifier: Apache-2.0
"""Hosts are listed with their room, one by one, and by row and rack."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import textwrap
import time
from io import StringIO
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from rich.console import Console

from moorage.scheduler.cmd.cli.hosts import show_tree
from moorage.scheduler.cmd.cli.main import cli
from moorage.scheduler.conf import load
from moorage.scheduler.decision_store import DecisionStore
from moorage.scheduler.display import local_time
from moorage.scheduler.explain import summarize
from moorage.scheduler.sources.inventory import read_inventory
from moorage.scheduler.web import Answers, make_app, make_web_server
from moorage.testing.builders import NOW, table

from ....fixtures.clouds import request
from ....fixtures.explaining_api import INSTANCE, SELECTED, ExplainingAPI
from ....fixtures.stored_decisions import decisions_in

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


# -- on an API -------------------------------------------------------------------------


def _called(url: str, *args: str, status: int = 0) -> str:
    result = CliRunner().invoke(cli, ["--url", url, *args])
    assert result.exit_code == status, result.output
    return result.output


def test_list_has_what_fits_and_what_is_stranded(url: str) -> None:
    text = _called(url, "hosts")
    assert "fits: plain" in text
    assert "stranded" in text
    assert "Fits in all, if no other flavor comes: plain 0 on 0 host(s)." in text
    assert "of the free memory" in text
    [row] = [line for line in text.splitlines() if line.startswith(" h0 ")]
    assert row.split()[-2:] == ["0", "-"]  # it is disabled


def test_long_names_of_flavors_are_whole_in_the_line_of_the_room(
    api: ExplainingAPI, tmp_path: Path
) -> None:
    names = [letter * 200 for letter in "ab"]
    [selected] = decisions_in(api.store, request_id=SELECTED)
    store = DecisionStore(f"sqlite:///{tmp_path}/decisions.sqlite")
    for name in names:
        spec = request()
        spec.flavor.name = spec.flavor.flavorid = name
        store.add(dataclasses.replace(selected.record, request=spec))
    store.flush()
    conf = load([], config_files=[])
    conf.set_override("port", 0, group="web")
    app = make_app(Answers(api.scheduler.explainer, store))
    with make_web_server(conf, app) as server:
        text = _called(f"http://127.0.0.1:{server.port}", "hosts")
    store.stop()
    [line] = [line for line in text.splitlines() if line.startswith("Fits in all")]
    assert all(name in line for name in names)
    assert line.endswith("on hosts that are up.")


def test_room_is_sorted_filtered_and_in_csv_and_json(url: str) -> None:
    stranded = {
        host["host"]: host["stranded"]
        for host in json.loads(_called(url, "hosts", "--json"))["hosts"]
    }
    assert stranded.pop("h0") is None
    largest = max(stranded, key=lambda name: stranded[name][1])
    text = _called(url, "hosts", "--sort", "-stranded_ram", "--csv")
    [first, *_] = rows = list(csv.DictReader(io.StringIO(text)))
    assert stranded[first["host"]][1] == stranded[largest][1]
    assert float(first["stranded_ram"]) == stranded[largest][1]
    assert (rows[-1]["host"], rows[-1]["stranded_ram"]) == ("h0", "")
    assert "No host matches." in _called(url, "hosts", "--where", "fits:plain>0")
    text = _called(url, "hosts", "--where", "fits:other>0", status=2)
    assert "No host has 'fits:other'" in text
    assert "fits:plain" in text


def test_states_are_joined_and_instances_listed(api: ExplainingAPI, url: str) -> None:
    table = api.scheduler.table
    instance = decisions_in(api.store, request_id=SELECTED)[0].record.instances[0]
    [node] = table.nodes_of(instance.host)
    seen_at = time.time() - 7200
    table.change_many({node: {"last_seen_up": seen_at}})
    try:
        text = _called(
            url, "hosts", "--state", "down", "--state", "forced down", "--instances"
        )
    finally:
        table.change_many({node: {"last_seen_up": math.inf}})
    since = f"{local_time(seen_at):%Y-%m-%d %H:%M:%S}"
    assert f"down since {since}" in " ".join(text.split())
    assert "2 h ago" in text
    assert INSTANCE in text
    assert "h0" not in text


def test_one_host_is_shown_with_or_without_the_command(
    api: ExplainingAPI, url: str
) -> None:
    host = decisions_in(api.store, request_id=SELECTED)[0].record.instances[0].host
    text = _called(url, "hosts", host)
    assert text == _called(url, "hosts", "show", host)
    for part in ("MEMORY_MB", "Aggregates", INSTANCE, "pending claim", "claimed"):
        assert part in text
    assert SELECTED in text
    assert "others are unknown: the source of hosts reports none" in text
    data = json.loads(_called(url, "hosts", host, "--json"))
    assert data["host"] == host
    assert "There is no host 'h11'" in _called(url, "hosts", "h11", status=1)


def test_json_may_precede_the_host_and_other_options_may_not(url: str) -> None:
    assert json.loads(_called(url, "hosts", "--json", "h1"))["host"] == "h1"
    for args in (["--limit", "40", "h1"], ["--json", "enable", "h1"]):
        command = "enable" if "enable" in args else "show"
        assert (
            f"Error: {args[0]} is an option of the list of hosts, not of `{command}`\n"
        ) in _called(url, "hosts", *args, status=2)


def test_capacity_names_hosts_and_what_was_asked(url: str) -> None:
    text = _called(url, "capacity", "--hosts", "1", "--project", "project")
    assert "Where they would go" in text
    assert "more host(s)" in text
    assert "asked in 1 d" in text
    assert "Quotas are not counted" in text
    flavors = json.loads(_called(url, "capacity", "--json"))["flavors"]
    assert flavors[0]["demand"] == {"n_requests": 3, "n_refused": 1}


def test_filter_by_unknown_room_says_why_it_is_unknown(
    api: ExplainingAPI, tmp_path: Path
) -> None:
    conf = load([], config_files=[])
    conf.set_override("port", 0, group="web")
    app = make_app(Answers(api.scheduler.explainer, None))
    with make_web_server(conf, app) as server:
        url = f"http://127.0.0.1:{server.port}"
        text = _called(url, "hosts", "--where", "fits:plain>0", status=2)
        assert "No host has 'fits:plain'" in text
        assert "decision_store_connection is empty" in text
        table = _called(url, "hosts")
        assert "How many more instances of recent flavors fit is unknown" in table
        assert "stranded" not in table
        flavors = tmp_path / "flavors.yaml"
        flavors.write_text("- {name: small, vcpus: 1, memory_mb: 64}")
        text = _called(url, "capacity", "--flavors", str(flavors))
        assert "The requests of the last day are unknown" in text
