# SPDX-License-Identifier: Apache-2.0
"""`moorage decisions --group`, also with a server of an earlier release."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from flask import Flask

from moorage.scheduler.cmd.cli.main import cli
from moorage.scheduler.conf import load
from moorage.scheduler.web import make_web_server

#: What a server answered before it named causes and flavors.
_DECISION = {
    "id": "1",
    "request_id": "req-1",
    "decided_at": 1e9,
    "project_id": "p",
    "outcome": "no valid host",
    "reason": "",
    "user_message": "No valid host was found. Of 3 hosts: 3 lack CPUs.",
    "instance_uuids": [],
    "n_instances": 1,
    "hosts": [],
    "n_hosts": 3,
    "total_ms": 1.0,
}


@pytest.fixture
def old_url() -> Iterator[str]:
    app = Flask("earlier")
    app.add_url_rule(
        "/v1/decisions", view_func=lambda: {"decisions": [_DECISION], "next": None}
    )
    conf = load([], config_files=[])
    conf.set_override("port", 0, group="web")
    with make_web_server(conf, app) as server:
        yield f"http://127.0.0.1:{server.port}"


def test_decisions_of_an_earlier_server_are_grouped_by_their_reason(
    old_url: str,
) -> None:
    args = ["--url", old_url, "decisions", "--group"]
    [group] = json.loads(CliRunner().invoke(cli, [*args, "--json"]).stdout)["groups"]
    assert group["cause"] == "Of 3 hosts: 3 lack CPUs."
    assert group["flavor"] == ""
    assert "3 lack CPUs" in CliRunner().invoke(cli, args).stdout


def test_selected_decisions_have_no_groups() -> None:
    args = ["--url", "http://h", "decisions", "--group", "--selected"]
    result = CliRunner().invoke(cli, args)
    assert result.exit_code == 2
    assert "Pass --group or --selected, not both" in result.stderr
