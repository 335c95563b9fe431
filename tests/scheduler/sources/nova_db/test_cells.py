# SPDX-License-Identifier: Apache-2.0
"""A cell that is away costs a request nothing, and the other cells nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from moorage.scheduler.hosts import HostTable
from moorage.scheduler.sources.nova_db import NovaDBSource, schema

from ....conftest import instance_uuid, node_uuid
from ....fixtures.database_servers import Database
from ....fixtures.ports import refusing_url
from ....fixtures.waiting import wait_until
from .databases import Nova, cell_uuid, us
from .servers import NoDatabase

MAPPINGS = schema.cell_mappings
WAIT_S = 30.0


@pytest.fixture
def nova(tmp_path: Path, conf: cfg.ConfigOpts) -> Iterator[Nova]:
    conf.set_override("cell_timeout", 0.3, group="moorage")
    with Nova(tmp_path, "cell1", "cell2") as nova:
        nova.host("a")
        nova.host("b", "cell2")
        yield nova


@pytest.fixture
def table() -> HostTable:
    return HostTable()


def _nodes(table: HostTable) -> list[str]:
    return sorted(state.nodename for state in table.batch())


def _map(nova: Nova, cell: str, **columns: object) -> None:
    nova.update(nova.api, MAPPINGS, MAPPINGS.c.uuid == cell_uuid(cell), **columns)


def _point(nova: Nova, cell: str, connection: str) -> None:
    _map(nova, cell, database_connection=connection)


def _status(source: NovaDBSource) -> dict[str, tuple[bool, int]]:
    return {cell.name: (cell.is_up, cell.n_hosts) for cell in source.cells}


class Lost:
    """A cell whose file is not where it was."""

    def __init__(self, nova: Nova, folder: Path, name: str = "cell2") -> None:
        self._engine, self._path = nova.cells[name], folder / f"{name}.sqlite"

    def lose(self) -> None:
        self._engine.dispose()
        self._path.rename(self._path.with_suffix(".lost"))

    def find(self) -> None:
        self._engine.dispose()
        self._path.with_suffix(".lost").rename(self._path)


def test_cells_are_named_with_their_hosts(
    nova: Nova, conf: cfg.ConfigOpts, table: HostTable
) -> None:
    source = nova.source(conf)
    source.start(table)
    assert _nodes(table) == ["a", "b"]
    assert [(c.name, c.uuid, c.n_hosts, c.is_up) for c in source.cells] == [
        ("cell1", cell_uuid("cell1"), 1, True),
        ("cell2", cell_uuid("cell2"), 1, True),
    ]
    assert source.notes() == ()
    names = {cell_uuid(name): name for name in ("cell1", "cell2")}
    assert table.cell_names == names
    _map(nova, "cell2", name="north")
    source.refresh(table)
    assert table.cell_names == {**names, cell_uuid("cell2"): "north"}


def test_dead_cell_at_the_start_is_read_once_it_answers(
    nova: Nova, conf: cfg.ConfigOpts, table: HostTable, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"mysql+pymysql://nova:secret@{refusing_url().removeprefix('http://')}/nova"
    _point(nova, "cell2", url)
    source = nova.source(conf)
    source.start(table)
    assert (_nodes(table), _status(source)["cell2"]) == (["a"], (False, 0))
    assert "cell2" in caplog.text
    (note,) = source.notes()
    assert "cell2" in note
    assert "2023-11-14T22:13:20Z" in note
    assert "secret" not in caplog.text + note
    _point(nova, "cell2", nova.connections["cell2"])
    source.refresh_if_stale(table)
    assert _nodes(table) == ["a", "b"]
    assert source.notes() == ()


@pytest.mark.parametrize("driver", ["mysql+pymysql", "postgresql+psycopg2"])
@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_no_poll_waits_for_a_cell_that_is_away(
    nova: Nova, conf: cfg.ConfigOpts, table: HostTable, driver: str, answer: bytes
) -> None:
    with NoDatabase(answer) as server:
        _point(nova, "cell2", server.url(driver))
        source = nova.source(conf)
        source.start(table)
        assert _nodes(table) == ["a"]
        # The start has not waited for the thread that connects, either.
        wait_until(lambda: server.n_connections)
        n_before = server.n_connections
        nova.host("c")
        for _ in range(5):
            source.refresh_if_stale(table)
        assert _nodes(table) == ["a", "c"]
        assert server.n_connections == n_before
        nova.clock.now += 3600
        source.refresh_if_stale(table)  # queries it again, and does not wait
        wait_until(lambda: server.n_connections > n_before)
        assert not _status(source)["cell2"][0]


def test_hosts_of_a_lost_cell_stay_for_a_while(
    nova: Nova, conf: cfg.ConfigOpts, table: HostTable, tmp_path: Path
) -> None:
    source, cell = nova.source(conf), Lost(nova, tmp_path)
    source.start(table)
    cell.lose()
    source.refresh_if_stale(table)
    assert _status(source)["cell2"] == (False, 1)
    nova.clock.now += conf.moorage.cell_grace - 1
    source.refresh_if_stale(table)
    assert _nodes(table) == ["a", "b"]
    nova.clock.now += 2
    source.refresh_if_stale(table)
    assert _nodes(table) == ["a"]
    cell.find()
    nova.node("new", "cell2", updated_at=us(-9000))
    nova.service("new", "cell2")
    nova.clock.now += 60
    source.refresh_if_stale(table)
    assert _nodes(table) == ["a", "b", "new"]
    assert source.notes() == ()


def test_view_is_as_old_as_its_oldest_part(
    nova: Nova, conf: cfg.ConfigOpts, table: HostTable, tmp_path: Path
) -> None:
    source, cell = nova.source(conf), Lost(nova, tmp_path)
    source.start(table)
    began = nova.clock.now
    assert source.seen_at() is None  # each decision polls
    cell.lose()
    nova.clock.now += 10
    source.refresh_if_stale(table)
    assert source.seen_at() == began
    nova.clock.now += conf.moorage.cell_grace
    source.refresh_if_stale(table)
    assert source.seen_at() is None  # its hosts are not in the table any more


def test_cells_come_go_and_change_without_a_signal(
    nova: Nova, conf: cfg.ConfigOpts, table: HostTable
) -> None:
    source = nova.source(conf)
    source.start(table)
    _map(nova, "cell2", disabled=True)
    source.refresh_if_stale(table)
    assert _nodes(table) == ["a"]
    _map(nova, "cell2", disabled=False)
    nova.add_cell("cell3")
    nova.host("c", "cell3")
    source.refresh_if_stale(table)
    assert _nodes(table) == ["a", "b", "c"]
    _point(nova, "cell2", nova.connections["cell3"])
    nova.delete(nova.api, MAPPINGS, MAPPINGS.c.name == "cell3")
    source.refresh_if_stale(table)
    assert _nodes(table) == ["a", "c"]
    assert table.nodes_of("c", cell=cell_uuid("cell2")) == (node_uuid("c"),)


@pytest.mark.database
@pytest.mark.parametrize("kind", list(Database))
@pytest.mark.parametrize(
    ("moves", "begins_late"),
    [(False, False), (True, False), (False, True)],
    ids=["gone", "elsewhere", "gone while it is begun"],
)
def test_no_poll_waits_for_a_cell_that_is_removed_or_moved(
    tmp_path: Path,
    conf: cfg.ConfigOpts,
    table: HostTable,
    kind: Database,
    moves: bool,
    begins_late: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    conf.set_override("cell_timeout", 10 * WAIT_S, group="moorage")
    with Nova(tmp_path, "cell1", "cell2", "other", kind=kind) as nova:
        _map(nova, "other", disabled=True)
        for host, cell in (("a", "cell1"), ("b", "cell2"), ("c", "other")):
            nova.host(host, cell)
        source, hangs = nova.source(conf), threading.Event()
        source.start(table)
        nova.addCleanup(hangs.set)

        @sa.event.listens_for(nova.cells["cell2"], "before_cursor_execute")
        def hang(*_: object) -> None:
            hangs.wait()

        if moves:
            _point(nova, "cell2", nova.connections["other"])
        else:
            _map(nova, "cell2", disabled=True)
        if begins_late:  # the API database answers while cell2's thread is started
            begins, start = threading.Event(), threading.Thread.start

            def start_late(thread: threading.Thread) -> None:
                if "cell2" in thread.name:
                    begins.set()
                    wait_until(lambda: "cell2" not in _status(source))
                start(thread)

            monkeypatch.setattr(threading.Thread, "start", start_late)
            sa.event.listen(
                nova.api, "before_cursor_execute", lambda *_: begins.wait(WAIT_S)
            )
        looking = threading.Thread(
            target=source.refresh_if_stale, args=(table,), daemon=True
        )
        looking.start()
        looking.join(WAIT_S)
        assert not looking.is_alive()
        assert _nodes(table) == (["a", "c"] if moves else ["a"])


def test_removed_cell_is_not_queried_any_more(
    nova: Nova,
    conf: cfg.ConfigOpts,
    table: HostTable,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = nova.source(conf)
    source.start(table)
    Lost(nova, tmp_path).lose()
    _map(nova, "cell2", disabled=True)
    source.refresh_if_stale(table)
    assert _nodes(table) == ["a"]
    assert not (tmp_path / "cell2.sqlite").exists()
    assert "cannot be read" not in caplog.text


def test_templates_are_filled_and_other_texts_left_alone(
    nova: Nova, conf: cfg.ConfigOpts, table: HostTable, tmp_path: Path
) -> None:
    conf.set_override("connection", f"sqlite:///{tmp_path}/main", group="database")
    _point(nova, "cell1", f"{{scheme}}:///{tmp_path}/cell1.sqlite")
    _point(nova, "cell2", "5f1c0bd1-opaque")
    nova.engines["5f1c0bd1-opaque"] = nova.cells["cell2"]
    nova.source(conf).start(table)
    assert _nodes(table) == ["a", "b"]


def test_sqlite_is_read_in_the_callers_thread(
    nova: Nova, conf: cfg.ConfigOpts, table: HostTable
) -> None:
    before = threading.enumerate()
    source = nova.source(conf)
    source.start(table)
    source.start_polling(table)
    source.refresh_if_stale(table)
    assert {*threading.enumerate()} <= {*before}, "others may end meanwhile"


def test_table_is_kept_fresh_in_the_background(
    nova: Nova, conf: cfg.ConfigOpts, table: HostTable
) -> None:
    with NoDatabase() as server:
        nova.insert(
            nova.api,
            MAPPINGS,
            uuid=cell_uuid("hung"),
            name="hung",
            database_connection=server.url(),
            disabled=False,
        )
        source = nova.source(conf, refresh_interval=0.02, clock=time.time)
        source.start(table)
        source.start_polling(table)
        nova.host("c", "cell2")
        nova.instance(instance_uuid(1), "c", cell="cell2")
        wait_until(lambda: _nodes(table) == ["a", "b", "c"])
        seen_at = source.seen_at()
        assert seen_at is not None
        wait_until(lambda: (source.seen_at() or 0) > seen_at)
        nova.host("d")
        source.refresh_if_stale(table, [node_uuid("d")])
        assert "d" in _nodes(table)
        assert _status(source)["hung"] == (False, 0)
        source.stop()


def test_refresh_also_queries_a_cell_that_is_away(
    nova: Nova, conf: cfg.ConfigOpts, table: HostTable, tmp_path: Path
) -> None:
    source, cell = nova.source(conf), Lost(nova, tmp_path)
    cell.lose()
    source.start(table)
    assert _nodes(table) == ["a"]
    cell.find()
    source.refresh(table)
    assert _nodes(table) == ["a", "b"]
