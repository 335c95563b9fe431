# SPDX-License-Identifier: Apache-2.0
"""The command replay on views of each source of hosts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from moorage.scheduler.cmd.cli.main import cli
from moorage.scheduler.conf import load
from moorage.scheduler.decision_store import DecisionStore
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.service import Scheduler
from moorage.scheduler.web import Answers, make_app, make_web_server

from ....fixtures.clouds import new_uuids, request
from ....fixtures.placed_clouds import CloudKind, placed_processes


@contextlib.contextmanager
def _api(api: Scheduler, store: DecisionStore) -> Iterator[str]:
    conf = load([], config_files=[])
    conf.set_override("port", 0, group="web")
    app = make_app(Answers(api.explainer, store))
    with make_web_server(conf, app) as server:
        yield f"http://127.0.0.1:{server.port}"


def _replayed(url: str, request_id: str) -> str:
    result = CliRunner().invoke(cli, ["--url", url, "replay", request_id])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("source", ["push", "file", "nova_db"])
def test_zone_that_no_aggregate_has_is_as_unknown_as_it_was(
    source: str, tmp_path: Path
) -> None:
    """Some sources leave it to nova's API to check zones, and others do not."""
    url = f"sqlite:///{tmp_path}/decisions.sqlite"
    kind = CloudKind("filter_scheduler", "memory", "aggregates", False, source)
    with placed_processes(kind, tmp_path) as start:
        scheduler = start(moorage={"decision_store_connection": url, "view_share": 1.0})
        context: Any = {"request_id": "req-zone", "project_id": "project"}
        with contextlib.suppress(NoValidHost):
            spec = request(availability_zone="nowhere")
            scheduler.select_destinations(context, spec, new_uuids(), True, True)
        scheduler.stop()  # which writes the store
        store = DecisionStore(url, max_views=20)
        try:
            with _api(start(), store) as api:
                text = _replayed(api, "req-zone")
        finally:
            store.stop()
    assert "Identical to the last bit" in text
    is_refused = source == "push"
    assert ("no valid host" in text) is is_refused
