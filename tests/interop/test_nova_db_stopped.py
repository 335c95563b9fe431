# SPDX-License-Identifier: Apache-2.0
"""What the source nova_db does while a cell's database server is stopped or killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import fixtures
import pytest
import sqlalchemy as sa

from ..fixtures.database_servers import (
    await_server,
    execute,
    run_as,
    server_binary,
    server_folder,
)
from ..fixtures.nova_databases import Kind, NovaDatabases
from ..fixtures.nova_rows import fill
from ..fixtures.ports import free_port
from .spoilt import CELL_GRACE_S, CELL_TIMEOUT_S, Spoilt

N_HOSTS = 30
_STOP_S = 30.0

pytestmark = [
    pytest.mark.deep,
    pytest.mark.peer,
    pytest.mark.database,
    pytest.mark.usefixtures("quiet"),
    pytest.mark.xdist_group("nova_db_stopped"),
]


class OwnServer(fixtures.Fixture):
    """A database server of the test's own, in a folder of its own.

    It ends with this process, however that ends, where `setpriv` is installed.

    Parameters
    ----------
    kind : Kind
        MARIADB or POSTGRESQL.

    Attributes
    ----------
    url : str
        Of its only database, which is empty.
    """

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self._make, scheme = {
            Kind.MARIADB: (self._make_mariadb, "mysql+pymysql://root"),
            Kind.POSTGRESQL: (self._make_postgresql, "postgresql+psycopg2://postgres"),
        }[kind]
        self._service_user = "mysql" if kind is Kind.MARIADB else "postgres"
        self._port = free_port()
        self._server_url = f"{scheme}@127.0.0.1:{self._port}"
        self.url = f"{self._server_url}/cell"

    def _setUp(self) -> None:
        self._folder, self._user = server_folder(self._service_user)
        self.addCleanup(shutil.rmtree, self._folder, ignore_errors=True)
        self._command = self._make()
        self.addCleanup(self.kill)
        self.start()
        execute(self._server_url, "CREATE DATABASE cell")

    def _make_mariadb(self) -> Sequence[str]:
        data = f"--datadir={self._folder}/data"
        install = [server_binary("mariadb-install-db"), "--no-defaults", data]
        install += ["--auth-root-authentication-method=normal", "--skip-test-db"]
        run_as(self._user, install)
        return [
            server_binary("mariadbd"), "--no-defaults", data, f"--port={self._port}",
            "--bind-address=127.0.0.1", f"--socket={self._folder}/socket",
            f"--pid-file={self._folder}/pid",
        ]  # fmt: skip

    def _make_postgresql(self) -> Sequence[str]:
        data = ["-D", f"{self._folder}/data"]
        run_as(
            self._user,
            [
                server_binary("initdb"),
                *data,
                "-U",
                "postgres",
                "-A",
                "trust",
                "--no-sync",
            ],
        )
        options = ["-p", str(self._port), "-k", self._folder]
        options += ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
        return [server_binary("postgres"), *data, *options]

    def start(self) -> None:
        """Start it, on the data that it left; return once it answers."""
        quiet = subprocess.DEVNULL
        dies_with_us = ["setpriv", "--pdeathsig", "KILL"]
        self._process = subprocess.Popen(
            [*(dies_with_us if shutil.which("setpriv") else []), *self._command],
            stdin=quiet,
            stdout=quiet,
            stderr=quiet,
            cwd="/",
            user=self._user,
            group=self._user,
        )
        await_server(self._server_url)

    def stop(self) -> None:
        """Let none of its processes run; connections stay open."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let them run again."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it with SIGKILL, whatever it is at; a second time does nothing."""
        if self._process.poll() is None:
            self._signal(signal.SIGKILL)
        self._process.wait(_STOP_S)

    def _signal(self, number: signal.Signals) -> None:
        """Signal it and its children: PostgreSQL has one for each connection."""
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(pid, number)
        for child in map(int, children):
            with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
                os.kill(child, number)


@pytest.fixture(params=[Kind.MARIADB, Kind.POSTGRESQL], ids=lambda kind: kind.value)
def databases(request: pytest.FixtureRequest) -> Iterator[NovaDatabases]:
    with NovaDatabases(request.param, n_cells=2, is_whole=False) as made:
        fill(made, N_HOSTS)
        yield made


@pytest.fixture
def server(databases: NovaDatabases) -> Iterator[OwnServer]:
    """Return a server with all that the first cell has."""
    with OwnServer(databases.kind) as made:
        here = databases.engine(databases.cells[0].url)
        there = sa.create_engine(made.url)
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
    databases: NovaDatabases, server: OwnServer
) -> None:
    with Spoilt(databases) as spoilt:
        databases.change_mapping(spoilt.cell, database_connection=server.url)
        spoilt.source.start(spoilt.table)
        hosts, others = spoilt.hosts(), spoilt.others()
        assert hosts

        server.stop()
        spoilt.until_it_is_noted()
        looks_s = [_took_s(lambda: spoilt.look(after_s=0.01)) for _ in range(20)]
        # One may have waited for the cell; not all of them.
        assert sum(looks_s) < 10 * CELL_TIMEOUT_S
        assert (spoilt.hosts(), spoilt.others()) == (hosts, others)
        server.go_on()
        spoilt.until(lambda: not spoilt.source.notes())
        assert (spoilt.hosts(), spoilt.others()) == (hosts, others)

        server.stop()
        spoilt.until_it_is_noted()
        server.kill()
        spoilt.look(after_s=1.0)
        assert (spoilt.hosts(), spoilt.others()) == (hosts, others)
        spoilt.look(after_s=2 * CELL_GRACE_S)
        assert (spoilt.hosts(), spoilt.others()) == (set(), others)
        server.start()
        spoilt.until(lambda: spoilt.hosts() == hosts)
        spoilt.until(lambda: not spoilt.source.notes())
        assert spoilt.others() == others
