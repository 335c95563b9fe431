# SPDX-License-Identifier: Apache-2.0
"""Behaviour of the source nova_db while a cell's server is stopped or killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from ..fixtures.database_servers import Database, DatabaseServer, execute
from ..fixtures.nova_databases import Kind, NovaDatabases
from ..fixtures.nova_rows import fill
from .proxied_source import CELL_GRACE_S, CELL_TIMEOUT_S, ProxiedSource

N_HOSTS = 30

pytestmark = [
    pytest.mark.deep,
    pytest.mark.peer,
    pytest.mark.database,
    pytest.mark.usefixtures("quiet"),
    pytest.mark.xdist_group("nova_db"),
]


class CellServer(DatabaseServer):
    """A database server of the test's own, with one empty database for a cell."""

    def _setUp(self) -> None:
        super()._setUp()
        execute(self.url, "CREATE DATABASE cell")
        self.cell_url = f"{self.url}/cell"


@pytest.fixture(params=[Kind.MARIADB, Kind.POSTGRESQL], ids=lambda kind: kind.value)
def databases(request: pytest.FixtureRequest) -> Iterator[NovaDatabases]:
    with NovaDatabases(request.param, n_cells=2, is_whole=False) as made:
        fill(made, N_HOSTS)
        yield made


@pytest.fixture
def server(databases: NovaDatabases) -> Iterator[CellServer]:
    """Return a server with all that the first cell has."""
    with CellServer(Database[databases.kind.name]) as made:
        here = databases.engine(databases.cells[0].url)
        there = sa.create_engine(made.cell_url)
        metadata = databases.tables["services"].metadata
        metadata.create_all(there)
        with here.connect() as old, there.begin() as new:
            for table in metadata.sorted_tables:
                rows = old.execute(table.select()).mappings().all()
                if rows:
                    new.execute(table.insert(), [dict(row) for row in rows])
        there.dispose()
        yield made


def _took_s(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def test_server_of_a_cell_may_hang_die_and_return(
    databases: NovaDatabases, server: CellServer
) -> None:
    with ProxiedSource(databases) as proxied:
        databases.change_mapping(proxied.cell, database_connection=server.cell_url)
        proxied.source.start(proxied.table)
        hosts, others = proxied.hosts(), proxied.others()
        assert hosts

        server.suspend()
        proxied.until_it_is_noted()
        polls_s = [_took_s(lambda: proxied.poll(after_s=0.01)) for _ in range(20)]
        # One may have waited for the cell; not all of them.
        assert sum(polls_s) < 10 * CELL_TIMEOUT_S
        assert (proxied.hosts(), proxied.others()) == (hosts, others)
        server.resume()
        proxied.until(lambda: not proxied.source.notes())
        assert (proxied.hosts(), proxied.others()) == (hosts, others)

        server.suspend()
        proxied.until_it_is_noted()
        server.kill()
        proxied.poll(after_s=1.0)
        assert (proxied.hosts(), proxied.others()) == (hosts, others)
        proxied.poll(after_s=2 * CELL_GRACE_S)
        assert (proxied.hosts(), proxied.others()) == (set(), others)
        server.start()
        proxied.until(lambda: proxied.hosts() == hosts)
        proxied.until(lambda: not proxied.source.notes())
        assert proxied.others() == others
