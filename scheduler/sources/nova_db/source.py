# SPDX-License-Identifier: Apache-2.0
"""The source "nova_db": host state from the databases of a nova."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

import sqlalchemy as sa
from oslo_config import cfg

from ...clock import now_s
from ...errors import ConfigurationError
from ...failures import Failure, cause_of
from ...hosts import HostTable
from ...instances import InstanceLocation, InstanceState
from ..base import BaseHostSource, ServiceHost, ServiceState
from .cells import Cell, CellStatus
from .changes import CellChanges
from .directory import Directory, DirectoryReader
from .discovery import discover_hosts
from .engines import Engines
from .heartbeats import BaseHeartbeats, CellHeartbeats, heartbeats_of
from .image_properties import are_weighed, describe
from .old_computes import ADVICE, OldCompute, described, read_old_computes
from .parts import Part, Read, TakeOver
from .picture import Picture
from .schema import instances
from .service_record import ServiceRecord, record_of
from .services import read_states
from .settings import Settings
from .sharing import SharedLook

LOG = logging.getLogger(__name__)

#: Seconds that a decision waits for a look at compute nodes that have no row yet, where
#: the table is kept fresh in the background.
_PATIENCE_S: Final = 1.0
#: Seconds in which the same missing compute nodes are looked for only once.
_SAME_MISSING_S: Final = 1.0
_MAX_TOLD: Final = 5
_OPTION: Final = "[api_database] connection"
_AS_URL: Final = "It has to be such as mysql+pymysql://nova:PASSWORD@HOST/nova_api"
_AS_DB: Final = "It has to lead to nova's API database"
#: Seconds to wait for our own thread to end.
_STOP_S: Final = 5.0


class _Api(Part):
    """The API database."""

    may_be_away = False

    def __init__(
        self,
        engine: sa.Engine,
        lock: threading.RLock,
        clock: Callable[[], float],
    ) -> None:
        super().__init__("the API database", lambda: engine, lock, clock)
        self.local_connection: str | None = None
        self.compared_at: float | None = None
        self.renew()

    def renew(self) -> None:
        self.reader = DirectoryReader(self.local_connection)


class NovaDBSource(BaseHostSource):
    """Fill the host table from nova's databases, and follow what changes there.

    Parameters
    ----------
    api_engine : sqlalchemy.Engine
        Of the API database.
    cell_engine : callable
        Given a cell mapping's ``database_connection``, with its template filled, return
        the engine of that database. The text need not be a URL.
    conf : oslo_config.cfg.ConfigOpts, optional
        Those of the scheduler that uses it by default.
    refresh_interval : float, optional
        Seconds between polls, made by a thread of its own from `start_polling` on. 0,
        the default: no thread; each decision polls first.
    clock : callable
        Seconds since the epoch.
    engines : Engines, optional
        Whose connections are closed at the end; those handed in are left alone.
    record : ServiceRecord, optional
        The scheduler's own row in nova's database, written while polling.
    heartbeats : BaseHeartbeats, optional
        Where the heartbeats of computes are, if not in the rows of ``services``.
    """

    def __init__(  # noqa: PLR0913 - all that a test hands in, by name
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
        self._api = _Api(api_engine, self._lock, clock)
        self._cells: dict[str, Cell] = {}
        self._picture = Picture()
        self._settings: Settings | None = None
        self._shared = SharedLook()
        self._missing: dict[str, float] = {}
        self._stopping = threading.Event()
        self._follower: threading.Thread | None = None
        self._discoverer: threading.Thread | None = None
        self._discovered_at: float | None = None

    @property
    def settings(self) -> Settings:
        """The options as they were at the last start or refresh."""
        if self._settings is None:
            self._settings = Settings.of(self.conf)
        return self._settings

    # -- what a scheduler calls --------------------------------------------------------

    def start(self, table: HostTable) -> None:
        """Read everything, all cells at a time.

        A cell that does not answer within ``[moorage] cell_timeout`` is warned of, and
        read later.

        Raises
        ------
        ConfigurationError
            The API database cannot be read.
        """
        try:
            with _no_collections():
                self._read_all(table)
        finally:
            for part in (self._api, *self._cells.values()):
                part.abandon()  # it must not write into the table of a forked process
            if self._engines is not None:
                self._engines.dispose()
            if self._heartbeats is not None:
                self._heartbeats.disconnect()
        rows = ", ".join(f"{cell.n_hosts} of {cell.name}" for cell in self.cells)
        LOG.info("%d hosts read from nova's databases: %s", len(table), rows or "none")

    def check(self) -> None:
        """Refuse to serve while a compute is too old, as nova's services do.

        With ``[workarounds] disable_compute_service_check_for_ffu`` it is only warned
        of. Cells that are disabled, or did not answer yet, do not count.

        Raises
        ------
        ConfigurationError
            Some nova-compute is older than nova 34 supports; the message names hosts.
        """
        with self._lock:
            cells = tuple(self._cells.values())
        old: list[OldCompute] = [each for c in cells for each in c.old_computes or ()]
        if not old:
            return
        text = described(sorted(old, key=lambda each: (each.version, each.host)))
        if not self.conf.workarounds.disable_compute_service_check_for_ffu:
            raise ConfigurationError(f"{text}. {ADVICE}")
        LOG.warning("%s", text)

    def refresh(self, table: HostTable) -> None:
        """Read everything again, cells that are away, too."""
        self._settings = None
        self._read_all(table)

    def start_polling(self, table: HostTable) -> None:
        """Look every `refresh_interval` seconds from now on, if that is not 0."""
        if self._record is not None:
            self._record.start()
        if self._interval_s <= 0:
            return
        self._follower = threading.Thread(
            target=self._follow, args=(table,), name="moorage nova_db", daemon=True
        )
        self._follower.start()

    def refresh_if_stale(self, table: HostTable, missing: Collection[str] = ()) -> None:
        """Look now if nothing is looked at in the background, or for missing nodes.

        Callers share one look that begins after they asked. It does not wait for a cell
        that is known to be away. The same missing nodes are looked for once a second.
        """
        if missing and not self._is_news(missing):
            return
        timeout_s = self.settings.cell_timeout_s
        if self._follower is None:
            self._shared.run(lambda: self._look(table, timeout_s))
        elif missing:
            self.poll(table)
        elif any(part.is_in_memory for part in self._parts()):
            self._shared.run(lambda: self._look(table, 0.0, only_in_memory=True))

    def poll(self, table: HostTable) -> bool:
        """Read what has changed, unless every decision begins with that.

        It waits a second at most; callers share a poll that begins after they asked.
        """
        if self._follower is None:
            return False
        patience_s = min(_PATIENCE_S, self.settings.cell_timeout_s)
        self._shared.run(lambda: self._look(table, patience_s))
        return True

    def service_states(
        self, hosts: Collection[ServiceHost]
    ) -> Mapping[ServiceHost, ServiceState]:
        """Read these services' rows, where polls are made in the background.

        A database that is away, or that keeps a poll waiting, is not asked.
        """
        by_cell: defaultdict[str, list[str]] = defaultdict(list)
        for cell_uuid, host in hosts if self._follower is not None else ():
            by_cell[cell_uuid].append(host)
        return {
            (cell_uuid, host): state
            for cell_uuid, names in by_cell.items()
            for host, state in self._states_of(cell_uuid, names).items()
        }

    def _states_of(
        self, cell_uuid: str, hosts: Collection[str]
    ) -> Mapping[str, ServiceState]:
        cell = self._cells.get(cell_uuid)
        if cell is None or not cell.is_prompt:
            return {}
        try:
            with cell.engine().connect() as connection:
                return read_states(connection, hosts)
        except sa.exc.SQLAlchemyError as e:
            LOG.debug("%s cannot say which services are up: %s", cell.what, cause_of(e))
            return {}

    def seen_at(self) -> float | None:
        """Return when the oldest part of what the table holds was read.

        What is read before each decision is as old as the decision.
        """
        with self._lock:
            parts = [self._api, *filter(self._has_rows, self._cells.values())]
            if self._follower is None:
                parts = [part for part in parts if not part.is_up]
            return min(
                (p.seen_at for p in parts if p.seen_at is not None), default=None
            )

    def troubles(self) -> Sequence[str]:
        """Return why nothing can be read: of the API database, or of any cell."""
        with self._lock:
            if not self._api.is_up:
                return (self._api.describe(),)
            cells = list(self._cells.values())
            if cells and not any(cell.is_up for cell in cells):
                return ("No cell's database answers.",)
            return ()

    def notes(self) -> Sequence[str]:
        """Return which databases do not answer, and which rows make no sense."""
        with self._lock:
            return tuple(self._notes())

    def locate_instance(self, instance_uuid: str) -> InstanceLocation:
        """Ask each cell's database for the row of an instance.

        A row without a host, and one that no cell has, may come to have a host yet:
        it is being built. A cell that does not answer may have it.
        """
        rows = instances.c
        wanted = sa.select(rows.host, rows.deleted).where(rows.uuid == instance_uuid)
        state = InstanceState.PENDING
        with self._lock:
            cells = list(self._cells.values())
        for cell in cells:
            try:
                with cell.engine().connect() as connection:
                    row = connection.execute(wanted).first()
            except sa.exc.SQLAlchemyError as e:
                LOG.debug(
                    "%s cannot say where an instance is: %s", cell.what, cause_of(e)
                )
                state = InstanceState.UNKNOWN
                continue
            if row is not None and row.deleted:
                return InstanceLocation(InstanceState.GONE)
            if row is not None and row.host:
                return InstanceLocation(InstanceState.ON_HOST, row.host)
        return InstanceLocation(state)

    @property
    def cells(self) -> tuple[CellStatus, ...]:
        """The enabled cells, as the API database lists them."""
        with self._lock:
            return tuple(
                CellStatus(
                    uuid=uuid,
                    name=cell.mapping.name,
                    n_hosts=self._picture.n_rows(uuid),
                    seen_at=cell.seen_at,
                    is_up=cell.is_up,
                )
                for uuid, cell in self._cells.items()
            )

    def stop(self) -> None:
        """End our thread, and close the connections that are ours."""
        self._stopping.set()
        for part in self._parts():
            part.abandon()
        if self._follower is not None:
            self._follower.join(_STOP_S)
        if self._record is not None:
            self._record.stop()
        if self._engines is not None:
            self._engines.dispose()

    # -- for people --------------------------------------------------------------------

    def _notes(self) -> list[str]:
        notes = [] if self._api.is_up else [self._api.describe()]
        for cell in self._cells.values():
            n_rows = self._picture.n_rows(cell.mapping.uuid)
            if not cell.is_up:
                left = f"its {n_rows} hosts are as they were" if n_rows else "no hosts"
                notes.append(f"{cell.describe()}; {left}")
            told = cell.troubles[:_MAX_TOLD]
            notes += [f"{cell.what}: {trouble}" for trouble in told]
            if len(cell.troubles) > _MAX_TOLD:
                notes.append(
                    f"{cell.what}: {len(cell.troubles) - _MAX_TOLD} more rows that "
                    "cannot be understood"
                )
        return notes

    def _has_rows(self, cell: Cell) -> bool:
        return self._picture.n_rows(cell.mapping.uuid) > 0

    # -- looking -----------------------------------------------------------------------

    def _parts(self) -> list[Part]:
        with self._lock:
            return [self._api, *self._cells.values()]

    def _is_news(self, missing: Collection[str]) -> bool:
        now = self._clock()
        with self._lock:
            self._missing = {
                uuid: at
                for uuid, at in self._missing.items()
                if abs(now - at) < _SAME_MISSING_S
            }
            is_news = not self._missing.keys() >= set(missing)
            if is_news:
                self._missing.update(dict.fromkeys(missing, now))
            return is_news

    def _read_all(self, table: HostTable) -> None:
        timeout_s = self.settings.cell_timeout_s
        self._api.local_connection = self.settings.local_connection
        self._api.renew()
        self._read(table, [self._api], timeout_s, is_forced=True)
        if not self._api.is_up:
            url = self._api.engine().url.set(query={})
            failure = Failure.of(_OPTION, url, self._api.reason, _AS_DB)
            raise ConfigurationError(f"{failure}")
        with self._lock:
            cells = list(self._cells.values())
            for cell in cells:
                cell.ratios = self.settings.ratios
                if cell.attempt is None:
                    cell.renew()
        self._read(table, cells, timeout_s, is_forced=True)
        self._forget_the_lost(table)

    def _look(
        self, table: HostTable, timeout_s: float, *, only_in_memory: bool = False
    ) -> None:
        def parts() -> list[Part]:
            return [p for p in self._parts() if p.is_in_memory or not only_in_memory]

        at_once, were_on = parts(), are_weighed(self.conf, table)
        self._read(table, at_once, timeout_s)
        # The API database may have told of more cells, or of an aggregate for which
        # image properties are read in all of them.
        is_on = not were_on and are_weighed(self.conf, table)
        cells = [part for part in parts() if isinstance(part, Cell)]
        more = [cell for cell in cells if is_on or cell not in at_once]
        if more:
            self._read(table, more, timeout_s)
        self._forget_the_lost(table)
        if self._follower is None:
            self._discover(in_background=False)

    def _read(
        self,
        table: HostTable,
        parts: Sequence[Part],
        timeout_s: float,
        *,
        is_forced: bool = False,
    ) -> None:
        """Read the databases that are due; wait for those that were up."""
        deadline = time.monotonic() + timeout_s
        awaited = [part for part in parts if part.is_up or is_forced]
        for part in awaited:
            running = part.attempt
            if running is not None:  # it may have begun too early
                running.wait(deadline - time.monotonic())
        # SQLite is read right here; meanwhile the others are read already.
        begun = {
            part: part.begin(
                self._reading(table, part, in_full=is_forced), is_forced=is_forced
            )
            for part in sorted(parts, key=lambda part: part.is_local)
        }
        limit_s = self.settings.cell_timeout_s
        for part in awaited:
            attempt = begun[part]
            in_time = attempt is None or attempt.wait(deadline - time.monotonic())
            if not in_time:
                part.note_lateness(limit_s, had_its_time=timeout_s >= limit_s)
        for part in parts:
            part.note_lateness(limit_s)

    def _reading(
        self, table: HostTable, part: Part, *, in_full: bool = False
    ) -> Callable[[], Read]:
        """Return what `Part.begin` calls; `in_full`: of the API database."""
        if isinstance(part, Cell):
            return functools.partial(self._reading_cell, table, part)
        return functools.partial(self._reading_api, table, in_full=in_full)

    def _reading_api(self, table: HostTable, *, in_full: bool = False) -> Read:
        reader = self._api.reader
        in_full = in_full or self._is_old(self._api.compared_at)

        def read(connection: sa.Connection, began_at: float) -> TakeOver:
            said = reader.read(connection, began_at, in_full=in_full)

            def take_over() -> None:
                self._take_directory(table, said)
                if in_full:
                    self._api.compared_at = began_at

            return take_over

        return read

    def _reading_cell(self, table: HostTable, cell: Cell) -> Read:
        reader, in_full = cell.reader, self._is_old(cell.compared_at)
        old, heartbeats = cell.old_computes, cell.heartbeats
        images, are_on = cell.images, are_weighed(self.conf, table)
        limit_s = self.settings.cell_timeout_s

        def read(connection: sa.Connection, began_at: float) -> TakeOver:
            changes = reader.read(connection, began_at, in_full=in_full)
            if heartbeats is not None:
                changes = heartbeats.put_into(changes)
            checked = read_old_computes(connection) if old is None else old
            described = images.look(
                connection, changes, is_on=are_on, limit_s=limit_s, in_full=in_full
            )

            def take_over() -> None:
                self._take_changes(table, cell, changes)
                describe(table, described)
                cell.troubles = reader.troubles
                cell.old_computes = checked
                if in_full or changes.is_whole:
                    cell.compared_at = began_at

            return take_over

        return read

    def _is_old(self, compared_at: float | None) -> bool:
        if compared_at is None:
            return True
        interval_s = self.settings.full_comparison_interval_s
        return abs(self._clock() - compared_at) >= interval_s

    def _cell_heartbeats(self) -> CellHeartbeats | None:
        if self._heartbeats is None:
            return None
        return CellHeartbeats(self._heartbeats, self.conf.report_interval)

    def _take_changes(self, table: HostTable, cell: Cell, changes: CellChanges) -> None:
        self._picture.apply(table, cell.mapping.uuid, changes)

    def _take_directory(self, table: HostTable, said: Directory) -> None:
        if sorted(table.aggregates, key=lambda a: a.id) != list(said.aggregates):
            table.put_aggregates(said.aggregates)
        cells: dict[str, Cell] = {}
        gone = dict(self._cells)  # decisions read the other one meanwhile
        for mapping in said.cells:
            cell = gone.pop(mapping.uuid, None)
            if cell is None or cell.mapping != mapping:
                seen = cell
                cell = Cell(
                    mapping,
                    self._cell_engine,
                    self.settings.ratios,
                    self._lock,
                    self._clock,
                    self._cell_heartbeats,
                )
                if seen is not None:  # its hosts stay until the new one is read
                    seen.drop()
                    cell.seen_at = seen.seen_at
            cells[mapping.uuid] = cell
        for uuid, cell in gone.items():
            LOG.info("%s is gone or disabled; its hosts are left out", cell.what)
            cell.drop()
            self._picture.forget(table, uuid)
        self._cells = cells

    def _forget_the_lost(self, table: HostTable) -> None:
        """Drop the rows of cells that have been away for too long."""
        grace_s = self.settings.cell_grace_s
        with self._lock:
            for uuid, cell in self._cells.items():
                if cell.is_up or cell.seen_at is None or not self._has_rows(cell):
                    continue
                if self._clock() - cell.seen_at > grace_s:
                    LOG.error(
                        "%s; its %d hosts are left out until it does",
                        cell.describe(),
                        self._picture.n_rows(uuid),
                    )
                    cell.abandon()
                    cell.renew()
                    self._picture.forget(table, uuid)

    # -- in the background -------------------------------------------------------------

    def _follow(self, table: HostTable) -> None:
        while not self._stopping.wait(self._interval_s):
            try:
                self._tick(table)
            except Exception:  # the next look may do better; nobody else would make it
                LOG.exception("A look at nova's databases failed")

    def _tick(self, table: HostTable) -> None:
        """Begin what is due, and wait for nothing."""
        timeout_s = self.settings.cell_timeout_s
        for part in self._parts():
            part.note_lateness(timeout_s)
            if part.is_in_memory:
                continue
            part.begin(self._reading(table, part))
        self._forget_the_lost(table)
        self._discover(in_background=True)

    def _discover(self, *, in_background: bool) -> None:
        interval_s, now = self.settings.discover_interval_s, self._clock()
        if interval_s < 0 or (self._discoverer and self._discoverer.is_alive()):
            return
        if self._discovered_at is not None and now - self._discovered_at < interval_s:
            return
        self._discovered_at = now
        if not in_background:
            self._discover_all()
            return
        self._discoverer = threading.Thread(
            target=self._discover_all, name="moorage discovery", daemon=True
        )
        self._discoverer.start()

    def _discover_all(self) -> None:
        with self._lock:
            cells = [cell for cell in self._cells.values() if cell.is_up]
        for cell in cells:
            try:
                discover_hosts(
                    self._api.engine(), cell.engine(), cell.mapping, self._clock()
                )
            except Exception as e:  # whatever the driver raises; it is done again
                LOG.warning("Hosts of %s cannot be discovered: %s", cell.what, e)


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Look for no garbage meanwhile: what is read stays, and looking takes as long."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():
                # All are old from now on, without a look at each.
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def from_conf(conf: cfg.ConfigOpts) -> NovaDBSource:
    """Return the source of the databases that ``[api_database]`` leads to.

    Raises
    ------
    ConfigurationError
        ``[api_database] connection`` is not set, or is no database URL; or the
        options of ``[DEFAULT] servicegroup_driver`` cannot be used.
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
        failure = Failure.of(_OPTION, conf.api_database.connection, e, _AS_URL)
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
