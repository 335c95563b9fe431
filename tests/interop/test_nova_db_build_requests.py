# SPDX-License-Identifier: Apache-2.0
"""Boot volumes are read from the build requests that nova 34 writes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from oslo_config import cfg

from moorage.scheduler.sources.nova_db import NovaDBSource

from ..conftest import instance_uuid
from ..fixtures.nova_databases import Kind, NovaDatabases
from ..fixtures.nova_peer import Peer

INSTANCE, ROOT, DATA = map(instance_uuid, ("instance", "root", "data"))

pytestmark = [
    pytest.mark.database,
    pytest.mark.deep,
    pytest.mark.peer,
    pytest.mark.xdist_group("nova_db"),
]


@pytest.fixture(
    params=[Kind.MARIADB, Kind.POSTGRESQL],
    ids=lambda kind: kind.value,
)
def databases(request: pytest.FixtureRequest) -> Iterator[NovaDatabases]:
    with NovaDatabases(request.param, n_cells=0, is_whole=False) as made:
        yield made


def test_boot_volume_is_that_of_novas_build_request(
    peer: Peer, databases: NovaDatabases, conf: cfg.ConfigOpts
) -> None:
    source = NovaDBSource(databases.api, databases.engine, conf=conf)
    assert source.boot_volumes(INSTANCE) == ()
    data = {"source_type": "volume", "boot_index": None, "volume_id": DATA}
    root = {"source_type": "volume", "boot_index": 0, "volume_id": ROOT}
    peer.ask(
        "open_databases", api_database=databases.api_url, database=databases.main_url
    )
    try:
        peer.ask("create_build_request", instance=INSTANCE, devices=[data, root])
    finally:
        peer.ask("close_databases")
    assert source.boot_volumes(INSTANCE) == (ROOT,)
