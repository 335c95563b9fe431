# SPDX-License-Identifier: Apache-2.0
"""The source "nova_db": host state from nova's databases."""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

import sqlalchemy as sa
from oslo_config import cfg

from ....objects import Flavor
from ...clock import now_s
from ...errors import ConfigurationError
from ...failures import Failure
from ...hosts import HostTable
from ...instances import InstanceLocation
from ...polling.polled_database import Apply, PolledDatabase, Read, SharedRefresh
from ..base import (
    BaseHostSource,
    ServiceHost,
    ServiceState,
)
from .database_lookups import API_OPTION, AS_API_DATABASE, DatabaseLookups
from .databases import ApiDatabase, CellDatabase, CellStatus
from .directory import Directory
from .discovery import PeriodicDiscovery
from .engines import Engines
from .heartbeats import BaseHeartbeats, CellHeartbeats, heartbeats_of
from .image_properties_reader import are_weighed, write_properties
from .merged_cells import MergedCells
from .old_computes import ADVICE, OldCompute, describe_old_computes, read_old_computes
from .reading import Ratios
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


class NovaDBSource(BaseHostSource):
    """Fill the host table from nova's databases, and poll them for changes.

    Parameters
    ----------
    api_engine : sqlalchemy.Engine
        Of the API database.
    cell_engine : callable
        Returns the engine for a cell mapping's ``database_connection``, whose template
        is filled already. The text need not be a URL.
    conf : oslo_config.cfg.ConfigOpts, optional
        Defaults to the options of the scheduler that uses the source.
    refresh_interval : float, optional
        Seconds between polls, made by a thread of its own from `start_polling` on. 0,
        the default: no thread; each decision polls first.
    clock : callable
        Seconds since the epoch.
    engines : Engines, optional
        Their connections are closed by `start` and `stop`; those of others are not.
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
        super().__init__(conf)
        self._cell_engine = cell_engine
        self._interval_s = refresh_interval or 0.0
        self._clock = clock
        self._engines = engines
        self._record = record
        self._heartbeats = heartbeats
        self._lock = threading.RLock()
        self._api = ApiDatabase(api_engine, self._lock, clock)
        self._cells: dict[str, CellDatabase] = {}
        self._lookups = DatabaseLookups(self._api, self._cell_databases, clock)
        self._discovery = PeriodicDiscovery(self._api, self._cell_databases, clock)
        self._merged = MergedCells()
        self._shared = SharedRefresh()
        self._missing: dict[str, float] = {}
        self._stopping = threading.Event()
        self._poller: threading.Thread | None = None

    # -- called by the scheduler -------------------------------------------------------

    def start(self, table: HostTable) -> None:
        """Read everything, all cells in parallel.

        If a cell does not answer within ``[moorage] cell_timeout``, a warning is logged
        and it is read later.

        Raises
        ------
        ConfigurationError
            The API database cannot be read.
        """
        try:
            with _without_gc():
                self._read_all(table)
        finally:
            for database in (self._api, *self._cells.values()):
                database.abandon()  # it must not write to a forked process's table
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
        cells = self._cell_databases()
        old: list[OldCompute] = [each for c in cells for each in c.old_computes or ()]
        if not old:
            return
        text = describe_old_computes(
            sorted(old, key=lambda each: (each.version, each.host))
        )
        if not self.conf.workarounds.disable_compute_service_check_for_ffu:
            raise ConfigurationError(f"{text}. {ADVICE}")
        LOG.warning("%s", text)

    def refresh(self, table: HostTable) -> None:
        """Read everything again, including unavailable cells."""
        self._read_all(table)

    def start_polling(self, table: HostTable) -> None:
        """Poll every `refresh_interval` seconds from now on, if that is not 0."""
        if self._record is not None:
            self._record.start()
        if self._interval_s <= 0:
            return
        self._poller = threading.Thread(
            target=self._poll_loop, args=(table,), name="moorage nova_db", daemon=True
        )
        self._poller.start()

    def refresh_if_stale(self, table: HostTable, missing: Collection[str] = ()) -> None:
        """Poll now unless that is done in the background, or if nodes are missing.

        Concurrent callers share one poll that begins after their calls. It does not
        wait for a cell that is known to be unavailable. The same missing nodes are
        polled for once a second.
        """
        if missing and not self._claim_missing(missing):
            return
        timeout_s = self.conf.moorage.cell_timeout
        if self._poller is None:
            self._shared.run(lambda: self._refresh(table, timeout_s))
        elif missing:
            self.poll(table)
        elif any(database.is_in_memory for database in self._databases()):
            self._shared.run(lambda: self._refresh(table, 0.0, only_in_memory=True))

    def poll(self, table: HostTable) -> bool:
        """Read what has changed, unless every decision begins with that.

        It waits a second at most; concurrent callers share one poll that begins after
        their calls.
        """
        if self._poller is None:
            return False
        timeout_s = min(_MAX_WAIT_S, self.conf.moorage.cell_timeout)
        self._shared.run(lambda: self._refresh(table, timeout_s))
        return True

    def service_states(
        self, hosts: Collection[ServiceHost]
    ) -> Mapping[ServiceHost, ServiceState]:
        """Read the rows of these services, where polls are made in the background.

        A database that is unavailable, or slow to answer a poll, is not queried.
        """
        return self._lookups.service_states(hosts if self._poller is not None else ())

    def is_gone(self, node_uuid: str, cell_uuid: str) -> bool:  # noqa: ARG002 - the base class's
        """Return whether the cell was read, or does not exist either."""
        with self._lock:
            cell = self._cells.get(cell_uuid)
            return cell is None or (cell.is_up and cell.seen_at is not None)

    def seen_at(self) -> float | None:
        """Return when the database that was read longest ago was read.

        Databases that are read before each decision count only while unavailable.
        """
        with self._lock:
            databases = [self._api, *filter(self._has_hosts, self._cells.values())]
            if self._poller is None:
                databases = [database for database in databases if not database.is_up]
            return min(
                (p.seen_at for p in databases if p.seen_at is not None), default=None
            )

    def troubles(self) -> Sequence[str]:
        """Return why the API database, or all cells, cannot be read."""
        with self._lock:
            if not self._api.is_up:
                return (self._api.describe(),)
            cells = list(self._cells.values())
            if cells and not any(cell.is_up for cell in cells):
                return ("No cell's database answers.",)
            return ()

    def notes(self) -> Sequence[str]:
        """Return which databases do not answer, and which rows are invalid."""
        with self._lock:
            return tuple(self._notes())

    def locate_instance(self, instance_uuid: str) -> InstanceLocation:
        """Look up the row of an instance in each cell's database.

        An instance without a row or without a host is pending: it may still be built.
        If a cell does not answer, the location is unknown.
        """
        return self._lookups.locate_instance(instance_uuid)

    def boot_volumes(self, instance_uuid: str) -> Sequence[str]:
        """Read the build request of an instance from the API database.

        It exists until the instance is in a cell: one that is moved has none.
        """
        return self._lookups.boot_volumes(instance_uuid)

    def flavors(self, names: Collection[str] | None = None) -> Sequence[Flavor]:
        """Read flavors from the API database."""
        return self._lookups.flavors(names)

    def members_of_groups(
        self,
        uuids: Collection[str],
        project_id: str,
        is_placed: Callable[[str], bool],
    ) -> Mapping[str, frozenset[str]]:
        """Read the members of a project's groups from the API database."""
        return self._lookups.members_of_groups(uuids, project_id, is_placed)

    @property
    def cells(self) -> tuple[CellStatus, ...]:
        """The enabled cells, as the API database lists them."""
        with self._lock:
            return tuple(
                CellStatus(
                    uuid=uuid,
                    name=cell.mapping.name,
                    n_hosts=self._merged.n_rows(uuid),
                    seen_at=cell.seen_at,
                    is_up=cell.is_up,
                )
                for uuid, cell in self._cells.items()
            )

    def stop(self) -> None:
        """Stop the polling thread, and close the connections of `engines`."""
        self._stopping.set()
        for database in self._databases():
            database.abandon()
        if self._poller is not None:
            self._poller.join(_STOP_S)
        if self._record is not None:
            self._record.stop()
        if self._engines is not None:
            self._engines.dispose()

    # -- notes for operators -----------------------------------------------------------

    def _notes(self) -> list[str]:
        notes = [] if self._api.is_up else [self._api.describe()]
        for cell in self._cells.values():
            n_rows = self._merged.n_rows(cell.mapping.uuid)
            if not cell.is_up:
                left = (
                    f"its {n_rows} hosts keep their last state"
                    if n_rows
                    else "it has no hosts"
                )
                notes.append(f"{cell.describe()}; {left}")
            listed = cell.row_errors[:_MAX_LISTED]
            notes += [f"{cell.what}: {error}" for error in listed]
            if len(cell.row_errors) > _MAX_LISTED:
                n_more = len(cell.row_errors) - _MAX_LISTED
                notes.append(f"{cell.what}: {n_more} more invalid rows")
        return notes

    def _has_hosts(self, cell: CellDatabase) -> bool:
        return self._merged.n_rows(cell.mapping.uuid) > 0

    # -- polling -----------------------------------------------------------------------

    def _databases(self) -> list[PolledDatabase]:
        with self._lock:
            return [self._api, *self._cells.values()]

    def _cell_databases(self) -> tuple[CellDatabase, ...]:
        with self._lock:
            return tuple(self._cells.values())

    @property
    def _discovery_interval(self) -> int:
        interval_s: int = self.conf.scheduler.discover_hosts_in_cells_interval
        return interval_s

    def _claim_missing(self, missing: Collection[str]) -> bool:
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

    def _read_all(self, table: HostTable) -> None:
        timeout_s = self.conf.moorage.cell_timeout
        self._api.local_connection = self.conf.database.connection
        self._api.reset()
        self._read(table, [self._api], timeout_s, is_forced=True)
        if not self._api.is_up:
            url = self._api.engine().url.set(query={})
            failure = Failure.of(API_OPTION, url, self._api.reason, AS_API_DATABASE)
            raise ConfigurationError(f"{failure}")
        with self._lock:
            cells = list(self._cells.values())
            for cell in cells:
                cell.ratios = Ratios.of(self.conf)
                if cell.attempt is None:
                    cell.reset()
        self._read(table, cells, timeout_s, is_forced=True)
        self._drop_unavailable_cells(table)

    def _refresh(
        self, table: HostTable, timeout_s: float, *, only_in_memory: bool = False
    ) -> None:
        def databases() -> list[PolledDatabase]:
            every = self._databases()
            return [each for each in every if each.is_in_memory or not only_in_memory]

        at_once, were_on = databases(), are_weighed(self.conf, table)
        self._read(table, at_once, timeout_s)
        # The API database may have added cells, or an aggregate for which the image
        # properties of all cells are read.
        is_on = not were_on and are_weighed(self.conf, table)
        cells = [each for each in databases() if isinstance(each, CellDatabase)]
        more = [cell for cell in cells if is_on or cell not in at_once]
        if more:
            self._read(table, more, timeout_s)
        self._drop_unavailable_cells(table)
        if self._poller is None:
            self._discovery.run_if_due(self._discovery_interval)

    def _read(
        self,
        table: HostTable,
        databases: Sequence[PolledDatabase],
        timeout_s: float,
        *,
        is_forced: bool = False,
    ) -> None:
        """Read the databases that are due; wait for those that were available."""
        deadline = time.monotonic() + timeout_s
        awaited = [database for database in databases if database.is_up or is_forced]
        for database in awaited:
            running = database.attempt
            if running is not None:  # it may have begun before the caller's change
                running.wait(deadline - time.monotonic())
        # SQLite comes last: it is read in this thread, while others read the rest.
        begun = {
            database: database.start_attempt(
                self._read_factory(table, database, in_full=is_forced),
                is_forced=is_forced,
            )
            for database in sorted(databases, key=lambda database: database.is_local)
        }
        limit_s = self.conf.moorage.cell_timeout
        for database in awaited:
            attempt = begun[database]
            in_time = attempt is None or attempt.wait(deadline - time.monotonic())
            if not in_time:
                database.check_timeout(limit_s, is_timed_out=timeout_s >= limit_s)
        for database in databases:
            database.check_timeout(limit_s)

    def _read_factory(
        self, table: HostTable, database: PolledDatabase, *, in_full: bool = False
    ) -> Callable[[], Read]:
        """Return the callable for `PolledDatabase.start_attempt`.

        `in_full` applies to the API database only.
        """
        if isinstance(database, CellDatabase):
            return lambda: self._cell_read(table, database)
        return lambda: self._api_read(table, in_full=in_full)

    def _api_read(self, table: HostTable, *, in_full: bool = False) -> Read:
        reader = self._api.reader
        in_full = in_full or self._is_old(self._api.compared_at)

        def read(connection: sa.Connection, began_at: float) -> Apply:
            directory = reader.read(connection, began_at, in_full=in_full)

            def apply() -> None:
                self._apply_directory(table, directory)
                if in_full:
                    self._api.compared_at = began_at

            return apply

        return read

    def _cell_read(self, table: HostTable, cell: CellDatabase) -> Read:
        reader, in_full = cell.reader, self._is_old(cell.compared_at)
        old, heartbeats = cell.old_computes, cell.heartbeats
        images, are_on = cell.images, are_weighed(self.conf, table)
        limit_s = self.conf.moorage.cell_timeout

        def read(connection: sa.Connection, began_at: float) -> Apply:
            changes = reader.read(connection, began_at, in_full=in_full)
            if heartbeats is not None:
                changes = heartbeats.merge_into(changes)
            checked = read_old_computes(connection) if old is None else old
            properties = images.read_changes(
                connection, changes, is_on=are_on, limit_s=limit_s, in_full=in_full
            )

            def apply() -> None:
                self._merged.apply(table, cell.mapping.uuid, changes)
                write_properties(table, properties)
                cell.row_errors = reader.row_errors
                cell.old_computes = checked
                if in_full or changes.is_whole:
                    cell.compared_at = began_at

            return apply

        return read

    def _is_old(self, compared_at: float | None) -> bool:
        if compared_at is None:
            return True
        interval_s: float = self.conf.moorage.full_comparison_interval
        return abs(self._clock() - compared_at) >= interval_s

    def _cell_heartbeats(self) -> CellHeartbeats | None:
        if self._heartbeats is None:
            return None
        return CellHeartbeats(self._heartbeats, self.conf.report_interval)

    def _apply_directory(self, table: HostTable, directory: Directory) -> None:
        if sorted(table.aggregates, key=lambda a: a.id) != list(directory.aggregates):
            table.put_aggregates(directory.aggregates)
        cells: dict[str, CellDatabase] = {}
        gone = dict(self._cells)  # a copy: other threads read the original
        for mapping in directory.cells:
            cell = gone.pop(mapping.uuid, None)
            if cell is None or cell.mapping != mapping:
                previous = cell
                cell = CellDatabase(
                    mapping,
                    self._cell_engine,
                    Ratios.of(self.conf),
                    self._lock,
                    self._clock,
                    self._cell_heartbeats,
                )
                if previous is not None:  # its hosts stay until the new one is read
                    previous.retire()
                    cell.seen_at = previous.seen_at
            cells[mapping.uuid] = cell
        for uuid, cell in gone.items():
            LOG.info("%s is deleted or disabled; its hosts are dropped", cell.what)
            cell.retire()
            self._merged.drop_cell(table, uuid)
        self._cells = cells

    def _drop_unavailable_cells(self, table: HostTable) -> None:
        """Drop the rows of cells that have been unavailable for too long."""
        grace_s = self.conf.moorage.cell_grace
        with self._lock:
            for uuid, cell in self._cells.items():
                if cell.is_up or cell.seen_at is None or not self._has_hosts(cell):
                    continue
                if self._clock() - cell.seen_at > grace_s:
                    LOG.error(
                        "%s; its %d hosts are left out until it does",
                        cell.describe(),
                        self._merged.n_rows(uuid),
                    )
                    cell.abandon()
                    cell.reset()
                    self._merged.drop_cell(table, uuid)

    # -- in the background -------------------------------------------------------------

    def _poll_loop(self, table: HostTable) -> None:
        while not self._stopping.wait(self._interval_s):
            try:
                self._tick(table)
            except Exception:  # the thread must survive; the next poll may succeed
                LOG.exception("Polling nova's databases failed; retrying")

    def _tick(self, table: HostTable) -> None:
        """Start reading the databases that are due, without waiting."""
        timeout_s = self.conf.moorage.cell_timeout
        for database in self._databases():
            database.check_timeout(timeout_s)
            if database.is_in_memory:
                continue
            database.start_attempt(self._read_factory(table, database))
        self._drop_unavailable_cells(table)
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
            if not gc.get_freeze_count():
                # Moves all objects to the oldest generation without scanning them.
                gc.freeze()
                gc.unfreeze()
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
