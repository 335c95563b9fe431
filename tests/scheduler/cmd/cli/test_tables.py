# SPDX-License-Identifier: Apache-2.0
"""Tables at the widths of terminals, and with more rows than a screen has."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from moorage.scheduler.cmd.cli.tables import (
    claims_table,
    decisions_table,
    hosts_table,
    placed_table,
)

REQUEST_ID = "req-2c1b02b5-29fb-4d29-aa51-2b5a08a47cd4"
INSTANCE = "11111111-1111-4111-8111-111111111111"


def _printed(table: Any, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined] # StringIO


@pytest.mark.parametrize("width", [80, 120, 200])
def test_ids_are_whole_at_any_width(width: int) -> None:
    decision = {
        "decided_at": 0.0,
        "request_id": REQUEST_ID,
        "instance_uuids": [INSTANCE],
        "n_instances": 3,
        "outcome": "no valid host",
        "hosts": [],
        "user_message": "No valid host was found. Of 10,000 hosts: 9,000 lack memory.",
        "reason": "",
    }
    printed = _printed(decisions_table([decision]), width)
    assert REQUEST_ID in printed
    assert f"{INSTANCE} and 2 more" in printed
    assert len(printed.splitlines()) <= 12


def test_a_hundred_instances_are_not_all_listed() -> None:
    placed = [
        {"instance_uuid": INSTANCE, "host": f"h{i}", "weight": 1.0, "alternates": []}
        for i in range(100)
    ]
    printed = _printed(placed_table({"instances": placed}), 120)
    assert "h19 " in printed
    assert "h20 " not in printed
    assert "and 80 more" in printed


def _host(name: str, node: str | None = None) -> dict[str, Any]:
    return {
        "host": name,
        "node": node or name,
        "zone": "zone1",
        "condition": "disabled",
        "seen_s": 12.0,
        "vcpus": [12, 80],
        "memory_mb": [12288, 262144],
        "disk_gb": [10, 1000],
        "allocation_ratios": [4.0, 1.0, 1.0],
        "n_instances": 12,
        "n_claims": 0,
    }


def test_hosts_keep_their_names_on_a_narrow_terminal() -> None:
    printed = _printed(hosts_table([_host("dense-1-01")]), 80)
    assert max(map(len, printed.splitlines())) <= 80
    for word in ("host", "zone", "state", "seen", "claims", "dense-1-01", "zone1"):
        assert f" {word} " in printed


def test_use_is_the_share_of_the_total_with_the_allocation_ratio() -> None:
    full = {**_host("h1"), "vcpus": [160, 80], "allocation_ratios": [4.0, 1.5, 1.0]}
    printed = _printed(hosts_table([full]), 200)
    assert "50% of 320 " in printed
    assert "3% of 384 GiB" in printed


def test_reason_of_a_disabled_host_is_shown() -> None:
    printed = _printed(hosts_table([{**_host("h1"), "disabled_reason": "fan"}]), 200)
    assert "disabled: fan" in printed


def test_nodes_are_shown_where_their_names_are_others() -> None:
    assert "node" not in _printed(hosts_table([_host("h1")]), 120)
    printed = _printed(hosts_table([_host("h1"), _host("ironic", "node-7")]), 120)
    assert "node-7" in printed


def test_brackets_in_names_of_alternates_and_claimed_hosts_are_text() -> None:
    placed = {"instance_uuid": "u", "host": "h", "weight": 1.0, "alternates": ["a[/b]"]}
    assert "a[/b]" in _printed(placed_table({"instances": [placed]}), 100)
    claim = {
        "hosts": ["x[/y]", "[red]z"],
        "instance_uuids": [],
        "result": "granted",
        "n_attempts": 1,
        "detail": "",
    }
    assert "x[/y], [red]z" in _printed(claims_table([claim]), 100)
