# SPDX-License-Identifier: Apache-2.0
"""What cannot be read or written is an error of one line."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner
from flask import Flask

from moorage.scheduler.cmd.cli.main import cli
from moorage.scheduler.conf import load
from moorage.scheduler.decision_store import DecisionStore
from moorage.scheduler.web import Answers, make_app, make_web_server

from ....fixtures.explained_clouds import NAMES
from ....fixtures.explaining_api import SELECTED, ExplainingAPI
from ....fixtures.stored_decisions import decisions_in

MALFORMED = "req-malformed"
CAUSE = "The stored request cannot be read: "


class _MalformedRequest:
    """A request whose wire form is that of no object."""

    def obj_to_primitive(self) -> dict[str, Any]:
        return {
            "nova_object.name": "RequestSpec",
            "nova_object.namespace": "nova",
            "nova_object.version": "1.14",
            "nova_object.data": {"flavor": 7},
            "nova_object.changes": [],
        }


@pytest.fixture(scope="module")
def malformed(
    api: ExplainingAPI, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The URL of an API whose only stored decision has a malformed request."""
    store = DecisionStore(f"sqlite:///{tmp_path_factory.mktemp('m')}/decisions.sqlite")
    [selected] = decisions_in(api.store, request_id=SELECTED)
    request: Any = _MalformedRequest()
    store.add(
        dataclasses.replace(selected.record, request_id=MALFORMED, request=request)
    )
    store.flush()
    yield from _served(make_app(Answers(api.scheduler.explainer, store)))
    store.stop()


@pytest.fixture(scope="module")
def mixed(
    api: ExplainingAPI, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The URL of an API with decisions of two releases, one of them unreadable here."""
    store = DecisionStore(f"sqlite:///{tmp_path_factory.mktemp('x')}/decisions.sqlite")
    [selected] = decisions_in(api.store, request_id=SELECTED)
    store.add(dataclasses.replace(selected.record, request=selected.request))
    request: Any = _MalformedRequest()
    store.add(
        dataclasses.replace(selected.record, request_id=MALFORMED, request=request)
    )
    store.flush()
    yield from _served(make_app(Answers(api.scheduler.explainer, store)))
    store.stop()


def _served(app: Any) -> Iterator[str]:
    conf = load([], config_files=[])
    conf.set_override("port", 0, group="web")
    with make_web_server(conf, app) as server:
        yield f"http://127.0.0.1:{server.port}"


def _error(*args: str) -> str:
    result = CliRunner().invoke(cli, args)
    assert result.exit_code == 1, result.output
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def test_a_malformed_request_is_a_bad_request(malformed: str) -> None:
    body = {"host": NAMES[0], "stored": MALFORMED}
    answer = requests.post(f"{malformed}/v1/why-not", json=body, timeout=30)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(CAUSE)


def test_a_malformed_request_is_not_replayed(malformed: str) -> None:
    assert _error("--url", malformed, "replay", MALFORMED).startswith(f"Error: {CAUSE}")


def test_a_malformed_request_is_counted_as_failed(malformed: str) -> None:
    args = ["--url", malformed, "replay", "--since", "1h", "--json"]
    answer = json.loads(CliRunner().invoke(cli, args).stdout)
    assert (answer["replayed"], answer["failed"]) == (1, 1)


@pytest.mark.parametrize("path", ["", f"/{NAMES[0]}"])
def test_a_malformed_request_hides_no_host(mixed: str, path: str) -> None:
    answer = requests.get(f"{mixed}/v1/hosts{path}", timeout=30)
    assert answer.status_code == 200, answer.text
    host = answer.json()["nodes"][0]["state"] if path else answer.json()["hosts"][0]
    assert "plain" in host["fits"]  # the flavor of the other request


def test_a_malformed_request_is_no_flavor(mixed: str) -> None:
    args = ["--url", mixed, "capacity", "--json"]
    answer = json.loads(CliRunner().invoke(cli, args).stdout)
    assert [flavor["flavor"] for flavor in answer["flavors"]] == ["plain"]


def test_a_malformed_request_is_left_out_of_a_simulation(mixed: str) -> None:
    args = ["--url", mixed, "simulate", "--history", "3650d", "--hosts", "1"]
    result = CliRunner().invoke(cli, args)
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert f"left out 1 ({MALFORMED}) whose request cannot be read" in text
    assert "1 instances on 1 hosts" in text


def test_a_page_that_cannot_be_written_is_named(url: str, tmp_path: Path) -> None:
    path = tmp_path / "missing" / "page.html"
    error = _error("--url", url, "explain", SELECTED, "--html", str(path))
    assert error == f"Error: --html {path}: No such file or directory\n"


def test_a_device_that_takes_no_page_is_named(url: str) -> None:
    error = _error("--url", url, "explain", SELECTED, "--html", "/dev/full")
    assert error == "Error: --html /dev/full: No space left on device\n"


def test_a_snapshot_of_records_of_another_version_is_refused(tmp_path: Path) -> None:
    app = Flask(__name__)
    data = base64.b64encode(b"\xff of another version").decode()

    @app.get("/v1/views/now")
    def view() -> dict[str, Any]:
        return {"data": data}

    @app.get("/v1/records")
    def records() -> dict[str, Any]:
        return {"records": [{"id": "1", "data": data}], "next": None}

    for url in _served(app):
        error = _error("--url", url, "snapshot", str(tmp_path / "cloud.snapshot"))
    assert error.startswith("Error: A stored decision cannot be read: it has the form")
