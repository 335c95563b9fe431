# SPDX-License-Identifier: Apache-2.0
"""Engines of nova's databases: what connecting to many cells costs."""

from __future__ import annotations

import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import certifi
import pytest
import sqlalchemy as sa
from oslo_config import cfg

from moorage.scheduler.sources.nova_db.engines import Engines

from ....fixtures.database_servers import Database, database_server

pytestmark = pytest.mark.database

N_CELLS = 8


@pytest.fixture
def url() -> sa.URL:
    return sa.make_url(database_server(Database.MARIADB))


@pytest.fixture
def times_read(
    url: sa.URL,  # noqa: ARG001 - its server is started before
    monkeypatch: pytest.MonkeyPatch,
) -> list[object]:
    """Grow by one whenever the certificates that the machine trusts are read."""
    found: list[object] = []
    make = ssl.create_default_context

    def counted(**options: Any) -> ssl.SSLContext:
        found.append(options)
        return make(**options)

    monkeypatch.setattr(ssl, "create_default_context", counted)
    return found


def asked(engine: sa.Engine) -> object:
    with engine.connect() as connection:
        return connection.execute(sa.text("SELECT 7")).scalar()


def test_cells_share_what_is_read_for_a_connection(
    conf: cfg.ConfigOpts, url: sa.URL, times_read: list[object]
) -> None:
    engines = Engines(conf)
    urls = [url.update_query_dict({"program_name": str(i)}) for i in range(N_CELLS)]
    of_cells = [engines.cell(str(each)) for each in urls]
    with ThreadPoolExecutor(N_CELLS) as pool:
        assert list(pool.map(asked, of_cells)) == [7] * N_CELLS
    engines.dispose()
    assert len(times_read) <= 1  # it may have been read before


def test_certificates_that_are_named_are_read(
    conf: cfg.ConfigOpts, url: sa.URL, times_read: list[object]
) -> None:
    engines = Engines(conf)
    trusted = certifi.where()
    url = url.update_query_dict({"ssl_ca": trusted})
    with pytest.raises(sa.exc.OperationalError, match="SSL"):  # the server has no TLS
        asked(engines.cell(str(url)))
    assert times_read == [{"cafile": trusted, "capath": None}]
