# SPDX-License-Identifier: Apache-2.0
"""The source "nova_db": host state from nova's databases."""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

import sqlalchemy as sa
from oslo_config import cfg

from ...clock import now_s
from ...errors import ConfigurationError
from ...failures import Failure
from ...hosts import HostTable
from ...periodic import Periodic
from ...polling.polled_database import SharedRefresh
from ..base import ServiceHost, ServiceState
from .database_lookups import DatabaseLookups
from .discovery import PeriodicDiscovery
from .engines import Engines
from .heartbeats import BaseHeartbeats, heartbeats_of
from .old_computes import ADVICE, OldCompute, describe_old_computes
from .polled_databases import API_OPTION, CellStatus, PolledDatabases
from .service_record import ServiceRecord, record_of

LOG = logging.getLogger(__name__)

#: Seconds that a decision waits for a poll, where the table is refreshed in the
#: background.
_MAX_WAIT_S: Final = 1.0
#: Seconds in which the same missing compute nodes are polled for only once.
_SAME_MISSING_S: Final = 1.0
_MAX_LISTED: Final = 5
_AS_URL: Final = "It has to be such as mysql+pymysql://nova:PASSWORD@HOST/nova_api"
#: Seconds that `stop` waits for the polling thread.
_STOP_S: Final = 5.0


class NovaDBSource(DatabaseLookups):
    """Fill the host table from nova's databases, and poll them for changes.

    Parameters
    ----------
    api_engine : sqlalchemy.Engine
        Of the API database.
    cell_engine : callable
        Returns the engine for a cell mapping's ``database_connection``, whose template
        is filled already. It is called also with text that is not a URL.
    conf : oslo_config.cfg.ConfigOpts, optional
        Defaults to the options of the scheduler that uses the source.
    refresh_interval : float, optional
        Seconds between the polls that a thread makes from `start_polling` on. 0, the
        default: there is no thread; each decision polls first.
    clock : callable
        Seconds since the epoch.
    engines : Engines, optional
        The engines whose connections `start` and `stop` close; other engines stay.
    record : ServiceRecord, optional
        The scheduler's own row in nova's database, written from `start_polling` on.
    heartbeats : BaseHeartbeats, optional
        Reads the heartbeats of computes where they are not in the rows of ``services``.
    """

    def __init__(  # noqa: PLR0913 - keyword arguments that tests pass in
        self,
        api_engine: sa.Engine,
        cell_engine: Callable[[str], sa.Engine],
        *,
        conf: cfg.ConfigOpts | None = None,
        refresh_interval: float | None = None,
        clock: Callable[[], float] = now_s,
        engines: Engines | None = None,
        record: ServiceRecord | None = None,
        heartbeats: BaseHeartbeats | None = None,
    ) -> None:
        databases = PolledDatabases(
            lambda: self.conf, api_engine, cell_engine, clock, heartbeats
        )
        super().__init__(conf, databases, clock)
        self._interval_s = refresh_interval or 0.0
        self._clock = clock
        self._engines = engines
        self._record = record
        self._heartbeats = heartbeats
        self._lock = databases.lock
        self._discovery = PeriodicDiscovery(self._api, databases.cells, clock)
        self._shared = SharedRefresh()
        self._missing: dict[str, float] = {}
        self._poller: Periodic | None = None

    # -- called by the scheduler -------------------------------------------------------

    def start(self, table: HostTable) -> None:
        """Read everything, all cells in parallel.

        If a cell does not answer within ``[moorage] cell_timeout``, a warning is logged
        and the cell is read later.

        Raises
        ------
        ConfigurationError
            The API database cannot be read.
        """
        try:
            with _without_gc():
                self._databases.read_all(table)
        finally:
            for database in self._databases.all():
                database.abandon()  # a late attempt must not write after a fork
            if self._engines is not None:
                self._engines.dispose()
            if self._heartbeats is not None:
                self._heartbeats.disconnect()
        rows = ", ".join(f"{cell.n_hosts} of {cell.name}" for cell in self.cells)
        LOG.info("%d hosts read from nova's databases: %s", len(table), rows or "none")

    def check(self) -> None:
        """Refuse to serve while a compute is too old, as nova's services do.

        With ``[workarounds] disable_compute_service_check_for_ffu`` a warning is logged
        instead. Cells that are disabled, or have not answered yet, do not count.

        Raises
        ------
        ConfigurationError
            A nova-compute is older than nova 34 supports; the message names the hosts.
        """
        cells = self._databases.cells()
        old_computes: list[OldCompute] = [
            compute for cell in cells for compute in cell.old_computes or ()
        ]
        if not old_computes:
            return
        text = describe_old_computes(
            sorted(old_computes, key=lambda compute: (compute.version, compute.host))
        )
        if not self.conf.workarounds.disable_compute_service_check_for_ffu:
            raise ConfigurationError(f"{text}. {ADVICE}")
        LOG.warning("%s", text)

    def refresh(self, table: HostTable) -> None:
        """Read everything again, including unavailable cells."""
        self._databases.read_all(table)

    def start_polling(self, table: HostTable) -> None:
        """Poll every `refresh_interval` seconds from now on, unless it is 0."""
        if self._record is not None:
            self._record.start()
        if self._interval_s <= 0:
            return
        self._poller = Periodic(
            lambda: self._start_polls(table),
            self._interval_s,
            log=LOG,
            what="Polling nova's databases",
            name="moorage nova_db",
        )
        self._poller.start()

    def refresh_if_stale(self, table: HostTable, missing: Collection[str] = ()) -> None:
        """Poll now, unless a thread polls in the background and no node is missing.

        Concurrent callers share one poll that begins after their calls. The poll does
        not wait for a cell that is known to be unavailable. The same missing nodes are
        polled for once a second.
        """
        if missing and not self._note_missing(missing):
            return
        timeout_s = self.conf.moorage.cell_timeout
        if self._poller is None:
            self._shared.run(lambda: self._refresh(table, timeout_s))
        elif missing:
            self.poll(table)
        elif any(database.is_in_memory for database in self._databases.all()):
            self._shared.run(lambda: self._refresh(table, 0.0, only_in_memory=True))

    def poll(self, table: HostTable) -> bool:
        """Read what has changed, unless each decision polls first anyway.

        A caller waits a second at most; concurrent callers share one poll that begins
        after their calls.
        """
        if self._poller is None:
            return False
        timeout_s = min(_MAX_WAIT_S, self.conf.moorage.cell_timeout)
        self._shared.run(lambda: self._refresh(table, timeout_s))
        return True

    def service_states(
        self, hosts: Collection[ServiceHost]
    ) -> Mapping[ServiceHost, ServiceState]:
        """Read the rows of these services if a thread polls in the background.

        A database that is unavailable, or slow to answer a poll, is not queried.
        """
        return super().service_states(hosts if self._poller is not None else ())

    def is_gone(self, node_uuid: str, cell_uuid: str) -> bool:  # noqa: ARG002 - the base class's
        """Return whether the node's cell was read, or does not exist."""
        with self._lock:
            cell = self._databases.cell(cell_uuid)
            return cell is None or (cell.is_up and cell.seen_at is not None)

    def seen_at(self) -> float | None:
        """Return when the database that was read longest ago was read.

        Databases that are read before each decision count only while unavailable.
        """
        with self._lock:
            cells = filter(self._databases.n_hosts, self._databases.cells())
            times = [
                database.seen_at
                for database in (self._api, *cells)
                if self._poller is not None or not database.is_up
            ]
            return min((time for time in times if time is not None), default=None)

    def troubles(self) -> Sequence[str]:
        """Return why the API database, or all cells, cannot be read."""
        with self._lock:
            if not self._api.is_up:
                return (self._api.describe(),)
            cells = self._databases.cells()
            if cells and not any(cell.is_up for cell in cells):
                return ("No cell's database answers.",)
            return ()

    def notes(self) -> Sequence[str]:
        """Return which databases do not answer, and which rows are invalid."""
        with self._lock:
            return tuple(self._notes())

    @property
    def cells(self) -> tuple[CellStatus, ...]:
        """The enabled cells, as the API database lists them."""
        with self._lock:
            return tuple(
                CellStatus(
                    uuid=cell.mapping.uuid,
                    name=cell.mapping.name,
                    n_hosts=self._databases.n_hosts(cell),
                    seen_at=cell.seen_at,
                    is_up=cell.is_up,
                )
                for cell in self._databases.cells()
            )

    def cell_names(self) -> Mapping[str, str]:
        """Return the names that the API database has; a cell needs none."""
        return {cell.uuid: cell.name for cell in self.cells if cell.name}

    def stop(self) -> None:
        """Stop the polling thread, and close the connections of `engines`."""
        if self._poller is not None:
            self._poller.stop(_STOP_S)
        for database in self._databases.all():
            database.abandon()
        if self._record is not None:
            self._record.stop()
        if self._engines is not None:
            self._engines.dispose()

    # -- notes for operators -----------------------------------------------------------

    def _notes(self) -> list[str]:
        notes = [] if self._api.is_up else [self._api.describe()]
        for cell in self._databases.cells():
            n_rows = self._databases.n_hosts(cell)
            if not cell.is_up:
                consequence = (
                    f"its {n_rows} hosts keep their last state"
                    if n_rows
                    else "it has no hosts"
                )
                notes.append(f"{cell.describe()}; {consequence}")
            errors = cell.row_errors[:_MAX_LISTED]
            notes += [f"{cell.what}: {error}" for error in errors]
            if len(cell.row_errors) > _MAX_LISTED:
                n_more = len(cell.row_errors) - _MAX_LISTED
                notes.append(f"{cell.what}: {n_more} more invalid rows")
        return notes

    # -- polling -----------------------------------------------------------------------

    @property
    def _discovery_interval(self) -> int:
        interval_s: int = self.conf.scheduler.discover_hosts_in_cells_interval
        return interval_s

    def _note_missing(self, missing: Collection[str]) -> bool:
        """Return whether some nodes were not polled for recently; remember them."""
        now = self._clock()
        with self._lock:
            self._missing = {
                uuid: at
                for uuid, at in self._missing.items()
                if abs(now - at) < _SAME_MISSING_S
            }
            is_new = not self._missing.keys() >= set(missing)
            if is_new:
                self._missing.update(dict.fromkeys(missing, now))
            return is_new

    def _refresh(
        self, table: HostTable, timeout_s: float, *, only_in_memory: bool = False
    ) -> None:
        self._databases.poll(table, timeout_s, only_in_memory=only_in_memory)
        if self._poller is None:
            self._discovery.run_if_due(self._discovery_interval)

    # -- in the background -------------------------------------------------------------

    def _start_polls(self, table: HostTable) -> None:
        self._databases.start_polls(table)
        self._discovery.start_if_due(self._discovery_interval)


@contextlib.contextmanager
def _without_gc() -> Iterator[None]:
    """Disable garbage collection: what is read stays, and scanning it is slow."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def from_conf(conf: cfg.ConfigOpts) -> NovaDBSource:
    """Return a source that reads the databases found through ``[api_database]``.

    Raises
    ------
    ConfigurationError
        ``[api_database] connection`` is not set or not a database URL; or the options
        of ``[DEFAULT] servicegroup_driver`` are invalid.
    """
    if not conf.api_database.connection:
        raise ConfigurationError(
            "[api_database] connection is not set; the source 'nova_db' needs the URL "
            "of nova's API database, such as mysql+pymysql://nova:…@db/nova_api"
        )
    heartbeats = heartbeats_of(conf)
    engines = Engines(conf)
    try:
        api_engine = engines.api()
    except (sa.exc.ArgumentError, ImportError, ValueError) as e:
        failure = Failure.of(API_OPTION, conf.api_database.connection, e, _AS_URL)
        raise ConfigurationError(f"{failure}") from None
    return NovaDBSource(
        api_engine,
        engines.cell,
        conf=conf,
        refresh_interval=conf.moorage.refresh_interval,
        engines=engines,
        record=record_of(conf, heartbeats),
        heartbeats=heartbeats,
    )
