# SPDX-License-Identifier: Apache-2.0
"""When our row among nova's services is written, and what stops the start.

What nova makes of the row is in tests/interop.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler.hosts import HostTable
from moorage.scheduler.sources.nova_db import ServiceRecord, from_conf
from moorage.scheduler.sources.nova_db.service_record import SERVICES

from .databases import Nova

WAIT_S = 30.0


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    """A database that has no other table."""
    made = sa.create_engine(f"sqlite:///{tmp_path}/main.sqlite")
    SERVICES.metadata.create_all(made)
    yield made
    made.dispose()


class Counted:
    """Return an engine, and let a test wait until it was requested so often."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._changed = threading.Condition()
        self._n = 0

    def __call__(self) -> sa.Engine:
        with self._changed:
            self._n += 1
            self._changed.notify_all()
        return self._engine

    def wait_for(self, n: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._n >= n, WAIT_S)


def counts(engine: sa.Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.execute(sa.select(SERVICES.c.report_count)).scalars())


def test_heartbeats_come_until_the_end_and_the_row_stays(engine: sa.Engine) -> None:
    counted = Counted(engine)
    record = ServiceRecord(counted, "control", interval_s=0.01)
    record.start()
    counted.wait_for(3)
    record.stop()
    [count] = counts(engine)
    assert count >= 3


def test_without_an_interval_there_is_one_report(engine: sa.Engine) -> None:
    counted = Counted(engine)
    record = ServiceRecord(counted, "control", interval_s=0)
    record.start()
    counted.wait_for(1)
    record.stop()
    assert counts(engine) == [1]


def test_deleted_row_is_logged_once(
    engine: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    counted = Counted(engine)
    record = ServiceRecord(counted, "control", interval_s=0.01)
    record.report()
    with engine.begin() as connection:
        connection.execute(SERVICES.update().values(deleted=1))
    record.start()
    counted.wait_for(4)
    record.stop()
    assert caplog.text.count("The service record of control was deleted") == 1
    assert counts(engine) == [1]


@pytest.mark.parametrize(
    ("connection", "message"),
    [
        pytest.param(None, "is not set", id="missing"),
        pytest.param("nonsense", "= nonsense: Could not parse", id="no-url"),
        pytest.param("nosuch://host/db", "= nosuch://host/db: Can't", id="no-dialect"),
        pytest.param(
            "mysql+pymysql://u:secret@h:x/d",
            r"= mysql\+pymysql://u:\*\*\*@h:x/d: invalid literal",
            id="no-port",
        ),
    ],
)
def test_wrong_connection_is_named(
    conf: cfg.ConfigOpts, connection: str | None, message: str
) -> None:
    conf.set_override("connection", "sqlite://", group="api_database")
    conf.set_override("connection", connection, group="database")
    from_conf(conf).stop()
    conf.set_override("register_service", True, group="moorage")
    with pytest.raises(ConfigurationError, match=rf"\[database\] connection {message}"):
        from_conf(conf)


def test_nothing_is_written_unless_enabled(
    conf: cfg.ConfigOpts, tmp_path: Path, engine: sa.Engine
) -> None:
    with Nova(tmp_path) as nova:
        conf.set_override("connection", nova.connections["api"], group="api_database")
        url = engine.url.render_as_string()
        conf.set_override("connection", url, group="database")
        source, table = from_conf(conf), HostTable()
        source.start(table)
        source.start_polling(table)
        source.refresh_if_stale(table)
        source.stop()
    assert counts(engine) == []
