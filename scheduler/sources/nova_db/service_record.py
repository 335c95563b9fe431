# SPDX-License-Identifier: Apache-2.0
"""The row of ``services`` that registers this scheduler in nova."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from typing import Final

import sqlalchemy as sa
from oslo_config import cfg
from oslo_db.exception import DBDuplicateEntry

from ...errors import ConfigurationError
from ...failures import Failure, cause_of
from ...periodic import Outage, Periodic
from ...polling.times import UtcMicroseconds
from .engines import Engines
from .heartbeats import BaseHeartbeats

LOG = logging.getLogger(__name__)

BINARY: Final = "nova-scheduler"
TOPIC: Final = "scheduler"
#: nova 34's SERVICE_VERSION (nova/objects/service.py), whose scheduler this replaces.
SERVICE_VERSION: Final = 74

#: Seconds between attempts to register, if no heartbeats are written.
_RETRY_S: Final = 10.0
#: Seconds that `stop` waits for a heartbeat that is being written.
_STOP_S: Final = 5.0

_DELETED: Final = (
    "was deleted: stop this scheduler if that was on purpose, or restart it to create "
    "the record again"
)

#: The columns that are written; the whole table is in nova/db/main/models.py.
SERVICES: Final = sa.Table(
    "services",
    sa.MetaData(),
    sa.Column("created_at", UtcMicroseconds),
    sa.Column("updated_at", UtcMicroseconds),
    sa.Column("deleted", sa.Integer),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("uuid", sa.String(36)),
    sa.Column("host", sa.String(255)),
    sa.Column("binary", sa.String(255)),
    sa.Column("topic", sa.String(255)),
    sa.Column("report_count", sa.Integer),
    sa.Column("disabled", sa.Boolean),
    sa.Column("last_seen_up", UtcMicroseconds),
    sa.Column("forced_down", sa.Boolean),
    sa.Column("version", sa.Integer),
)
_C: Final = SERVICES.c


class ServiceRecord:
    """Maintain a scheduler's row as nova's service and its service group driver do.

    All processes of a host share one row, and each of them writes its heartbeats. An
    existing row, even of nova-scheduler itself, is reused: its version is updated, and
    ``disabled`` stays. The row is not removed on stop. A row that is deleted while the
    scheduler runs is created again at the next start only. Unlike nova, no notification
    ``service.create`` is sent.

    Parameters
    ----------
    connect : callable
        Returns the engine of the database of ``[database] connection``.
    host : str
        ``[DEFAULT] host``.
    interval_s : float
        Seconds between heartbeats; 0 or less: none, as in nova.
    clock : callable
        Seconds since the epoch.
    engines : Engines, optional
        The engines whose connections `stop` closes.
    heartbeats : BaseHeartbeats, optional
        Where nova reads heartbeats, if not in the row; they are written to both.
    """

    def __init__(
        self,
        connect: Callable[[], sa.Engine],
        host: str,
        *,
        interval_s: float = 10.0,
        clock: Callable[[], float] = time.time,
        engines: Engines | None = None,
        heartbeats: BaseHeartbeats | None = None,
    ) -> None:
        self._connect = connect
        self._host = host
        self._interval_s = interval_s
        self._clock = clock
        self._engines = engines
        self._heartbeats = heartbeats
        self._id: int | None = None
        self._outage = Outage(LOG)
        self._writing = Periodic(
            self._write,
            interval_s if interval_s > 0 else _RETRY_S,
            log=LOG,
            what="Writing the service record",
            name="moorage service record",
            is_immediate=True,
        )

    def start(self) -> None:
        """Start a thread that registers the scheduler and writes heartbeats.

        This method never fails: an unavailable database is retried at the next
        heartbeat.
        """
        self._writing.start()

    def stop(self) -> None:
        """Stop writing, and close the connections of `engines`; the row stays."""
        self._writing.stop(_STOP_S)
        if self._engines is not None:
            self._engines.dispose()

    def report(self) -> bool:
        """Register the scheduler if not yet done, and write one heartbeat.

        Returns
        -------
        bool
            Whether the row exists; False: it was deleted.
        """
        engine = self._connect()
        if self._id is None:
            self._id = self._register(engine)
        now = self._clock()
        if self._heartbeats is not None:
            self._heartbeats.write(TOPIC, self._host, now)
        now_us = int(now * 1e6)
        update = SERVICES.update().where(_C.id == self._id, _C.deleted == 0)
        values = {
            "report_count": _C.report_count + 1,
            "last_seen_up": now_us,
            "updated_at": now_us,
            "version": SERVICE_VERSION,
        }
        with engine.begin() as connection:
            return connection.execute(update.values(values)).rowcount > 0

    def _register(self, engine: sa.Engine) -> int | None:
        """Return the row's id; create the row if there is none."""
        record_id = self._find(engine)
        if record_id is None:
            self._insert(engine)
            record_id = self._find(engine)
        return record_id

    def _insert(self, engine: sa.Engine) -> None:
        row = {
            "created_at": int(self._clock() * 1e6),
            "deleted": 0,
            "uuid": str(uuid.uuid4()),
            "host": self._host,
            "binary": BINARY,
            "topic": TOPIC,
            "report_count": 0,
            "disabled": False,
            "forced_down": False,
            "version": SERVICE_VERSION,
        }
        try:
            with engine.begin() as connection:
                connection.execute(SERVICES.insert().values(row))
        except (sa.exc.IntegrityError, DBDuplicateEntry) as e:
            LOG.debug("Another process has created the service record: %s", cause_of(e))

    def _find(self, engine: sa.Engine) -> int | None:
        conditions = _C.host == self._host, _C.binary == BINARY, _C.deleted == 0
        with engine.connect() as connection:
            return connection.execute(sa.select(_C.id).where(*conditions)).scalar()

    # -- in the background -------------------------------------------------------------

    def _write(self) -> None:
        level = logging.WARNING
        try:
            failure = ""
            if not self.report():
                level, failure = logging.ERROR, _DELETED
        except Exception as e:  # whatever a driver raises; it is retried
            failure = f"cannot be written; retrying: {cause_of(e)}"
        if failure:
            text = "The service record of %s %s"
            self._outage.fail(failure, text, self._host, failure, level=level)
        else:
            self._outage.end("The service record of %s is written again", self._host)
        if self._interval_s <= 0 and self._id is not None:
            self._writing.end()


def record_of(
    conf: cfg.ConfigOpts, heartbeats: BaseHeartbeats | None = None
) -> ServiceRecord | None:
    """Return the record if ``[moorage] register_service`` is set.

    Raises
    ------
    ConfigurationError
        ``[database] connection`` is not set, or not a database URL.
    """
    if not conf.moorage.register_service:
        return None
    connection = conf.database.connection
    if not connection:
        raise ConfigurationError(
            "[database] connection is not set; [moorage] register_service needs the "
            "URL that nova-scheduler has there, such as "
            "mysql+pymysql://nova:…@db/nova_cell0"
        )
    engines = Engines(conf)
    try:
        engines.cell(connection)
    except (sa.exc.ArgumentError, ImportError, ValueError) as e:
        failure = Failure.of("[database] connection", connection, e)
        raise ConfigurationError(f"{failure}") from None
    return ServiceRecord(
        lambda: engines.cell(connection),
        conf.host,
        interval_s=conf.report_interval,
        engines=engines,
        heartbeats=heartbeats,
    )
