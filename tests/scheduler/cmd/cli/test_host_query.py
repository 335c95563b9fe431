# SPDX-License-Identifier: Apache-2.0
"""Which hosts a query selects, and what spreadsheets make of them."""

from __future__ import annotations

import csv
import io
from typing import Any

import click
import pytest
from click.testing import CliRunner

from moorage.scheduler.cmd.cli import host_query
from moorage.scheduler.cmd.cli.main import cli


def _host(name: str, **places: list[str]) -> dict[str, Any]:
    return {
        "host": name,
        "node": name,
        "cell_uuid": "c",
        "zone": "nova",
        "condition": "up",
        "seen_s": None,
        "n_instances": 1,
        "n_claims": 0,
        "allocation_ratios": [1.0, 1.0, 1.0],
        "vcpus": [1, 2],
        "memory_mb": [1, 2],
        "disk_gb": [0, 0],
        "places": {"rack": [], **places},
    }


HOSTS = [_host("a", rack=["r1"]), _host("b", rack=["r2", "r1"]), _host("c")]


def _chosen(where: str, sort: str | None = None) -> list[str]:
    conditions = host_query.parse_where(where) if where else []
    return [host["host"] for host in host_query.select_hosts(HOSTS, conditions, sort)]


def test_each_of_several_places_counts() -> None:
    in_r1 = host_query.select_hosts(HOSTS, [host_query.in_place("rack=r1")], None)
    assert [host["host"] for host in in_r1] == ["a", "b"]
    assert _chosen("rack=r*") == ["a", "b"]
    assert _chosen("rack!=r1") == ["c"]
    assert _chosen("rack=") == ["c"]
    assert _chosen("", "-rack") == ["b", "a", "c"]


def test_conditions_are_joined_by_and_in_any_case_but_not_in_quotes() -> None:
    assert _chosen("rack=r1 AND host=a") == ["a"]
    assert _chosen("host!=a  and  rack=r1 And vcpu>=50%") == ["b"]
    hosts = [_host("x", rack=["rock and roll"]), _host("it's", rack=["r"])]
    for where, expected in (
        ("rack='rock and roll' and host=x", ["x"]),
        ('rack = "rock AND roll"', []),
        ("host=it's and rack=r", ["it's"]),
    ):
        chosen = host_query.select_hosts(hosts, host_query.parse_where(where), None)
        assert [host["host"] for host in chosen] == expected


@pytest.mark.parametrize("text", ["", " ", "and", "host=a and", "and host=a", "host"])
def test_what_is_no_comparison_is_refused(text: str) -> None:
    if text == "host=a and":  # a host of that name
        assert _chosen(text) == []
        return
    with pytest.raises(click.BadParameter, match="is no comparison such as"):
        host_query.parse_where(text)


@pytest.mark.parametrize("text", ["", "rack", "rack=", "=r1"])
def test_what_names_no_place_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not LEVEL=NAME, such as rack=r1"):
        host_query.in_place(text)


@pytest.mark.parametrize("level", ["zone", "vcpu", "uuids"])
def test_a_level_may_have_the_name_of_another_value(level: str) -> None:
    place = host_query.in_place(f"{level}=east")
    with pytest.raises(click.BadParameter, match=f"No host has 'place:{level}'"):
        host_query.select_hosts(HOSTS, [place], None)
    hosts = [_host("a", **{level: ["east"]}), _host("b", **{level: ["west"]})]
    [where] = host_query.parse_where(f"place:{level}=e*")
    for condition in (place, where):
        selected = host_query.select_hosts(hosts, [condition], None)
        assert [host["host"] for host in selected] == ["a"]
    [first, _] = csv.DictReader(io.StringIO(host_query.hosts_csv(hosts)))
    assert first[f"place:{level}"] == "east"


def test_the_command_refuses_what_names_no_place_or_two_formats() -> None:
    for args, expected in (
        (["--place", "rack"], "'rack' is not LEVEL=NAME"),
        (["--csv", "--tree"], "Pass --tree or --csv, not both"),
        (["--csv", "--json"], "Pass --csv or --json, not both"),
    ):
        result = CliRunner().invoke(cli, ["--url", "http://h", "hosts", *args])
        assert result.exit_code == 2
        assert expected in result.stderr


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)"])
def test_a_name_is_no_formula_of_a_spreadsheet(name: str) -> None:
    [row] = csv.DictReader(
        io.StringIO(host_query.hosts_csv([_host(name, rack=[name])]))
    )
    assert row["host"] == row["rack"] == f"'{name}"
    assert row["vcpu"] == "50.0"
    assert row["disk"] == row["seen"] == ""


def test_csv_has_no_control_characters() -> None:
    text = host_query.hosts_csv([_host("a\x1b[2J\nb", rack=["r1", "r2"])])
    [row] = csv.DictReader(io.StringIO(text))
    assert row["host"] == r"a\x1b[2J\nb"
    assert row["rack"] == "r1, r2"
