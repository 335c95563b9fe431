# SPDX-License-Identifier: Apache-2.0
"""Decisions are written in the background, whatever the database does."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from moorage.scheduler.database import IncompatibleSchema, StoreUnavailable
from moorage.scheduler.decision_store import DecisionStore, writer
from moorage.scheduler.decision_store.schema import METADATA, Ids
from moorage.scheduler.sources.push.store import HostStore
from moorage.testing.builders import NOW

from ...fixtures.database_servers import Database, store_database
from ...fixtures.stored_decisions import decisions_in
from ...fixtures.tcp_proxy import TcpProxy, Wrong
from ...fixtures.waiting import wait_until
from .conftest import make_record

#: Writes decisions until it is killed; prints how many it knows to be stored. Several
#: writers are forked once all is imported, which takes longer than all else.
WRITER = """
import os
import sys
from moorage.scheduler.decision_store import DecisionStore
from tests.scheduler.decision_store.conftest import make_record
url, n_writers, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
number = 1
while number < n_writers and not os.fork():
    number += 1
store = DecisionStore(url)
store.prepare()
store.start()
for each in range(count):
    store.add(make_record(each, request_id=f"req-{number}-{each}"))
    if not each % 100:
        store.flush()
        os.write(1, f"{each}\\n".encode())  # print() could mix lines of processes
if count < 10_000:
    store.stop()
    os.write(1, f"{store.n_written} {store.n_dropped}\\n".encode())
for _ in range(number < n_writers):
    assert os.wait()[1] == 0
"""
ROOT = Path(__file__).parents[3]


def statement(url: str, text: str) -> Any:
    engine = sa.create_engine(url)
    try:
        with engine.begin() as connection:
            answer = connection.execute(sa.text(text))
            return answer.all() if answer.returns_rows else None
    finally:
        engine.dispose()


def writing(url: str, n_writers: int, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", "-c", WRITER, url]
    return subprocess.Popen(
        [*command, str(n_writers), str(count)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def count_of(url: str) -> int:
    [(count,)] = statement(url, "SELECT count(*) FROM decisions")
    return int(count)


def test_decisions_are_written_in_the_background(store: DecisionStore) -> None:
    store.start()
    store.add(make_record())
    assert wait_until(lambda: decisions_in(store, request_id="req-1"))


def test_stop_writes_what_is_queued(database: str) -> None:
    store = DecisionStore(database)
    store.prepare()
    store.start()
    for number in range(50):
        store.add(make_record(number))
    store.stop()
    assert (store.n_written, store.n_dropped, count_of(database)) == (50, 0, 50)


def test_store_that_is_away_costs_no_decision_and_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "store"
    folder.write_text("in the way")
    store = DecisionStore(f"sqlite:///{folder}/decisions.sqlite")
    with caplog.at_level(logging.WARNING):
        store.prepare()
        for number in range(3):
            store.add(make_record(number))
            store.flush()
        assert store.failure
        with pytest.raises(StoreUnavailable):
            decisions_in(store, request_id="req-1")
        folder.unlink()
        store.flush()
    assert [each.request_id for each in decisions_in(store)] == [
        "req-2",
        "req-1",
        "req-0",
    ]
    assert (store.failure, store.n_dropped) == ("", 0)
    away, back = (record.message for record in caplog.records)
    assert away.startswith("The store of decisions cannot be used: ")
    assert back == ("The store of decisions answers again; 0 decisions were not stored")


def test_queue_is_bounded_and_drops_the_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_MAX_QUEUED", 5)
    store = DecisionStore(f"sqlite:///{tmp_path}/decisions.sqlite")
    for number in range(8):
        store.add(make_record(number))
    store.flush()
    found = [each.request_id for each in decisions_in(store)]
    assert found == ["req-7", "req-6", "req-5", "req-4", "req-3"]
    assert (store.n_written, store.n_dropped) == (5, 3)
    store.stop()


def test_encoded_decisions_of_an_unavailable_store_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_MAX_PENDING", 5)
    folder = tmp_path / "store"
    folder.write_text("in the way")
    store = DecisionStore(f"sqlite:///{folder}/decisions.sqlite")
    for number in range(8):
        store.add(make_record(number))
        store.flush()
    assert store.n_dropped == 3
    store.stop()
    assert (store.n_written, store.n_dropped) == (0, 8)


def test_decision_whose_commit_has_no_answer_is_stored_once(
    store: DecisionStore, database: str
) -> None:
    def lose_answer(connection: sa.Connection) -> None:
        if connection.engine.url == sa.make_url(database):
            connection.connection.dbapi_connection.commit()  # type: ignore[union-attr]
            raise sa.exc.OperationalError("COMMIT", {}, OSError("the answer is lost"))

    store.add(make_record(1))
    sa.event.listen(sa.Engine, "commit", lose_answer)
    try:
        store.flush()
    finally:
        sa.event.remove(sa.Engine, "commit", lose_answer)
    assert "the answer is lost" in store.failure
    store.add(make_record(2))
    store.flush()
    assert (store.failure, store.n_written, store.n_dropped) == ("", 2, 0)
    assert count_of(database) == 2


def test_decision_whose_id_is_used_gets_another(
    store: DecisionStore, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = iter([1, 1, 2])
    monkeypatch.setattr(Ids, "next", lambda *_: next(ids))
    for number in (1, 2):
        store.add(make_record(number))
        store.flush()
    assert (store.failure, count_of(database)) == ("", 2)


@pytest.mark.deep
@pytest.mark.database
@pytest.mark.parametrize("kind", list(Database), ids=lambda kind: kind.name.lower())
@pytest.mark.parametrize("wrong", [Wrong.STOP, Wrong.CUT, Wrong.GARBAGE])
def test_server_that_is_away_is_used_again_once_it_is_back(
    kind: Database, wrong: Wrong, tmp_path: Path
) -> None:
    with store_database(kind, tmp_path) as url:
        real = sa.make_url(url)
        assert real.port is not None
        with TcpProxy(real.port) as proxy:
            store = DecisionStore(
                real.set(port=proxy.port).render_as_string(hide_password=False)
            )
            store.prepare()
            store.start()
            store.add(make_record(1))
            wait_until(lambda: count_of(url) == 1)
            proxy.do(wrong)
            store.add(make_record(2))
            wait_until(lambda: store.failure)
            store.add(make_record(3))
            proxy.do(Wrong.NOTHING)
            wait_until(lambda: count_of(url) == 3)
            wait_until(lambda: not store.failure)
            store.stop()
        assert store.n_dropped == 0


def test_full_queue_is_a_failure_until_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A database that hangs reports no error."""
    monkeypatch.setattr(writer, "_MAX_QUEUED", 5)
    store = DecisionStore(f"sqlite:///{tmp_path}/decisions.sqlite")
    with caplog.at_level(logging.WARNING):
        for number in range(8):
            store.add(make_record(number))
        assert "the queue is full" in store.failure
        store.flush()
    assert store.failure == ""
    assert len(caplog.records) == 2
    store.stop()


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"max_age_s": 5.0}, [6, 5, 4, 3, 2, 1, 0]),
        ({"max_age_s": 2.0}, [6, 5, 4, 3]),
        ({"max_decisions": 4}, [6, 5, 4, 3]),
        ({"max_decisions": 2, "max_age_s": 2.0}, [6, 5]),
        ({}, [6, 5, 4, 3, 2, 1, 0]),
    ],
)
def test_old_decisions_are_removed(
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, Any],
    left: list[int],
) -> None:
    monkeypatch.setattr(writer, "_MAX_REMOVED", 2)
    store = DecisionStore(database, clock=lambda: NOW + 5, **limits)
    for number in range(7):
        store.add(make_record(number))
    store.flush()
    found = [each.request_id for each in decisions_in(store)]
    assert found == [f"req-{number}" for number in left]
    [(n_keys,)] = statement(database, "SELECT count(*) FROM decision_keys")
    assert n_keys == 5 * len(left), "request, project, instance, host and flavor"
    store.stop()


def test_newer_schema_stops_the_start_in_one_line(
    store: DecisionStore, database: str
) -> None:
    assert decisions_in(store, request_id="req-1") == []
    statement(database, "UPDATE moorage_decisions_version SET version_num = '999'")
    later = DecisionStore(database)
    newer = r"newer Moorage \(revision 999\)"
    with pytest.raises(IncompatibleSchema, match=newer) as raised:
        later.prepare()
    assert "\n" not in str(raised.value)


def test_tables_of_the_migrations_are_those_that_are_used(
    store: DecisionStore, database: str
) -> None:
    assert decisions_in(store, request_id="req-1") == []
    engine = sa.create_engine(database)
    inspector = sa.inspect(engine)
    for table in METADATA.tables.values():
        columns = {column["name"] for column in inspector.get_columns(table.name)}
        assert columns == set(table.columns.keys())
        indexes = {index["name"] for index in inspector.get_indexes(table.name)}
        assert indexes == {index.name for index in table.indexes}
    engine.dispose()


def test_two_stores_share_a_database(store: DecisionStore, database: str) -> None:
    hosts = HostStore(database)
    hosts.upgrade()
    assert hosts.load() == []
    hosts.close()
    store.prepare()
    assert decisions_in(store, request_id="req-1") == []


@pytest.mark.deep
def test_four_processes_write_to_one_store(database: str) -> None:
    process = writing(database, 4, 120)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert output.splitlines().count("120 0") == 4
    assert count_of(database) == 480
    store = DecisionStore(database)
    assert len(decisions_in(store, limit=400)) == 400
    assert [
        len(decisions_in(store, request_id=f"req-{number}-119"))
        for number in range(1, 5)
    ] == [1] * 4
    store.stop()


@pytest.mark.deep
def test_killed_writer_loses_at_most_its_queue(database: str) -> None:
    process = writing(database, 1, 1_000_000)
    assert process.stdout is not None
    known = [int(process.stdout.readline()) for _ in range(5)]
    process.kill()
    last = known[-1]
    rest, _ = process.communicate(timeout=30)
    last = max([last, *map(int, rest.split())])
    store = DecisionStore(database)
    store.prepare()
    assert count_of(database) >= last + 1
    for number in range(0, last + 1, 50):
        [decision] = decisions_in(store, request_id=f"req-1-{number}")
        assert decision.request is not None
    store.add(make_record(7))
    store.flush()
    assert len(decisions_in(store, request_id="req-7")) == 1
    store.stop()
