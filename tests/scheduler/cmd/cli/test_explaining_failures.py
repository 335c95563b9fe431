# SPDX-License-Identifier: Apache-2.0
"""The command explain, of requests that failed because Placement did not answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from moorage.scheduler.cmd.cli.main import cli
from moorage.scheduler.conf import load
from moorage.scheduler.decision_store import DecisionStore
from moorage.scheduler.errors import PlacementUnavailable
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import build
from moorage.scheduler.sources.inventory import read_inventory
from moorage.scheduler.web import Answers, make_app, make_web_server

from ....fixtures.clouds import host, new_uuids, request, write_inventory
from ....fixtures.faulty_placement import Call, FaultKind, FaultyAdapter
from ....fixtures.placement_servers import EmbeddedPlacementFixture


def _is_claim(call: Call) -> bool:
    return call.verb in ("PUT", "POST")


@pytest.mark.parametrize("n_instances", [1, 2])
@pytest.mark.parametrize(
    ("kind", "cause", "n_writes"),
    [
        pytest.param(FaultKind.AWAY, "Unable to establish", 1, id="away"),
        pytest.param(FaultKind.UNAVAILABLE_BEFORE, "answered 503", 4, id="in doubt"),
    ],
)
def test_cause_and_claims_are_shown(
    tmp_path: Path, kind: FaultKind, cause: str, n_writes: int, n_instances: int
) -> None:
    path = write_inventory(tmp_path, host("h1"), host("h2"))
    conf = load([], config_files=[])
    conf.set_override("inventory_file", str(path), group="moorage")
    url = f"sqlite:///{tmp_path}/decisions.sqlite"
    conf.set_override("decision_store_connection", url, group="moorage")
    conf.set_override("view_share", 1.0, group="moorage")
    with EmbeddedPlacementFixture() as embedded:
        seed(embedded.client, providers(read_inventory(path)))
        adapter = FaultyAdapter(embedded.adapter)
        scheduler = build(conf, placement=adapter)
        scheduler.start()
        for _ in range(20):
            adapter.fault(kind, _is_claim)
        context: Any = {"request_id": "req-1", "project_id": "p", "user_id": "u"}
        spec, uuids = request(num_instances=n_instances), new_uuids(n_instances)
        with pytest.raises(PlacementUnavailable):
            scheduler.select_destinations(context, spec, uuids, True, True)
        scheduler.stop()
    store = DecisionStore(url, max_views=20)
    conf.set_override("port", 0, group="web")
    app = make_app(Answers(scheduler.explainer, store))
    try:
        with make_web_server(conf, app) as server:
            api = ["--url", f"http://127.0.0.1:{server.port}"]
            explained = CliRunner().invoke(cli, [*api, "explain", "req-1"])
            replayed = CliRunner().invoke(cli, [*api, "replay", "req-1"])
    finally:
        store.stop()
    assert f"{n_instances} instance(s): failed. " in explained.stdout
    assert cause in explained.stdout.split("Hosts left after each step")[0]
    claims = explained.stdout.split("Claims")[1]
    [line] = [line for line in claims.splitlines() if "failed" in line]
    assert line.split("failed")[1].split()[0] == str(n_writes)
    assert cause in claims
    assert "selected" not in replayed.stdout
