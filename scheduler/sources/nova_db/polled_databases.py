# SPDX-License-Identifier: Apache-2.0
"""Reading nova's API database and the databases of its cells into the host table."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import sqlalchemy as sa
from oslo_config import cfg

from ...errors import ConfigurationError
from ...failures import Failure
from ...hosts import HostTable
from ...polling.polled_database import Apply, PolledDatabase, Read
from .changes import CellReader
from .directory import CellMappingRow, Directory, DirectoryReader
from .heartbeats import BaseHeartbeats, CellHeartbeats
from .image_properties_reader import (
    ImagePropertiesReader,
    are_weighed,
    write_properties,
)
from .merged_cells import MergedCells
from .old_computes import OldCompute, read_old_computes
from .reading import Ratios


@dataclasses.dataclass(frozen=True, slots=True)
class CellStatus:
    """The status of a cell, for operators and metrics.

    Attributes
    ----------
    n_hosts : int
        The cell's known compute nodes; 0 after it was unavailable for too long.
    seen_at : float or None
        When the cell's database was last read, seconds since the epoch; None: never.
    is_up : bool
        Whether the cell's database answered in time when it was last read.
    """

    uuid: str
    name: str
    n_hosts: int
    seen_at: float | None
    is_up: bool


class ApiDatabase(PolledDatabase):
    """The API database."""

    may_be_unavailable = False

    def __init__(
        self, engine: sa.Engine, lock: threading.RLock, clock: Callable[[], float]
    ) -> None:
        super().__init__("the API database", lambda: engine, lock, clock)
        #: The value of ``[database] connection``, for URLs of cells that are templates.
        self.local_connection: str | None = None
        #: When all rows were last compared; None: never.
        self.compared_at: float | None = None
        self.reset()

    def reset(self) -> None:
        """Replace the reader, so that the next attempt reads everything."""
        self.reader = DirectoryReader(self.local_connection)


class CellDatabase(PolledDatabase):
    """A cell's database, whose readers are replaced after each failure."""

    def __init__(
        self,
        mapping: CellMappingRow,
        connect: Callable[[str], sa.Engine],
        ratios: Ratios,
        lock: threading.RLock,
        clock: Callable[[], float],
        heartbeats: Callable[[], CellHeartbeats | None],
        *,
        with_launches: bool,
    ) -> None:
        what = f"cell {mapping.name} ({mapping.uuid})" if mapping.name else mapping.uuid
        super().__init__(what, lambda: connect(mapping.connection), lock, clock)
        self.mapping = mapping
        self.ratios = ratios
        #: Whether launch times of instances are read.
        self.with_launches = with_launches
        self._make_heartbeats = heartbeats
        #: When all rows were last compared; None: never.
        self.compared_at: float | None = None
        #: The errors of invalid rows.
        self.row_errors: tuple[str, ...] = ()
        #: The compute services that were too old at the first read; None: not read yet.
        self.old_computes: tuple[OldCompute, ...] | None = None
        self.reset()

    def reset(self) -> None:
        """Replace the readers, so that the next attempt reads everything."""
        self.reader = CellReader(
            self.mapping.uuid, self.ratios, with_launches=self.with_launches
        )
        self.images = ImagePropertiesReader()
        self.heartbeats = self._make_heartbeats()


LOG = logging.getLogger(__name__)

#: The option that holds the API database's URL, and the advice if that URL fails.
API_OPTION: Final = "[api_database] connection"
AS_API_DATABASE: Final = "It has to be that of nova's API database"


class PolledDatabases:
    """Read the API database and the cells' databases.

    Cells are added, replaced and dropped as the API database lists them.

    Parameters
    ----------
    conf : callable
        Returns the options.
    api_engine, cell_engine, clock, heartbeats
        See `NovaDBSource`.

    Attributes
    ----------
    lock : threading.RLock
        Held while changes are applied to the table, and while databases are added,
        replaced or dropped.
    api : ApiDatabase
    """

    def __init__(
        self,
        conf: Callable[[], cfg.ConfigOpts],
        api_engine: sa.Engine,
        cell_engine: Callable[[str], sa.Engine],
        clock: Callable[[], float],
        heartbeats: BaseHeartbeats | None,
    ) -> None:
        self.lock = threading.RLock()
        self.api = ApiDatabase(api_engine, self.lock, clock)
        self._conf = conf
        self._cell_engine = cell_engine
        self._clock = clock
        self._heartbeats = heartbeats
        self._cells: dict[str, CellDatabase] = {}
        self._merged = MergedCells()

    def all(self) -> list[PolledDatabase]:
        """Return the API database and the databases of the enabled cells."""
        return [self.api, *self.cells()]

    def cells(self) -> tuple[CellDatabase, ...]:
        """Return the databases of the enabled cells, in the order of the mappings."""
        with self.lock:
            return tuple(self._cells.values())

    def cell(self, cell_uuid: str) -> CellDatabase | None:
        """Return the database of an enabled cell; None: there is no such cell."""
        return self._cells.get(cell_uuid)

    def n_hosts(self, cell: CellDatabase) -> int:
        """Return how many rows of the table a cell has."""
        return self._merged.n_rows(cell.mapping.uuid)

    def read_all(self, table: HostTable) -> None:
        """Read everything, including unavailable cells.

        Raises
        ------
        ConfigurationError
            The API database cannot be read.
        """
        conf = self._conf()
        timeout_s = conf.moorage.cell_timeout
        self.api.local_connection = conf.database.connection
        self.api.reset()
        self._read(table, [self.api], timeout_s, is_forced=True)
        if not self.api.is_up:
            url = self.api.engine().url.set(query={})
            failure = Failure.of(API_OPTION, url, self.api.reason, AS_API_DATABASE)
            raise ConfigurationError(f"{failure}")
        with self.lock:
            cells = list(self._cells.values())
            for cell in cells:
                cell.ratios = Ratios.of(conf)
                cell.with_launches = bool(conf.filter_scheduler.lifetime_model)
                cell.reset()  # a running attempt ends with the readers that it has
        self._read(table, cells, timeout_s, is_forced=True)
        self._drop_unavailable_cells(table)

    def poll(
        self, table: HostTable, timeout_s: float, *, only_in_memory: bool = False
    ) -> None:
        """Read what has changed; wait for the databases that are available.

        Parameters
        ----------
        timeout_s : float
            The maximum time to wait for the API database and known cells, and again
            for cells that must be read after them.
        only_in_memory : bool
            Whether to read only databases in memory, which background threads must not
            read.
        """

        def databases() -> list[PolledDatabase]:
            return [
                database
                for database in self.all()
                if database.is_in_memory or not only_in_memory
            ]

        already_read = databases()
        were_images_weighed = are_weighed(self._conf(), table)
        self._read(table, already_read, timeout_s)
        # The API database may list new cells, or an aggregate whose metadata enables
        # ImagePropertiesWeigher: then the image properties of all cells are read.
        are_images_newly_weighed = not were_images_weighed and are_weighed(
            self._conf(), table
        )
        cells = [
            database
            for database in databases()
            if isinstance(database, CellDatabase)
            and (are_images_newly_weighed or database not in already_read)
        ]
        if cells:
            self._read(table, cells, timeout_s)
        self._drop_unavailable_cells(table)

    def start_polls(self, table: HostTable) -> None:
        """Start reading the databases that are due, without waiting."""
        timeout_s = self._conf().moorage.cell_timeout
        for database in self.all():
            database.check_timeout(timeout_s)
            if database.is_in_memory:
                continue
            database.start_attempt(self._read_factory(table, database))
        self._drop_unavailable_cells(table)

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
            # This attempt may have begun before the change that the caller must see.
            if running is not None:
                running.wait(deadline - time.monotonic())
        # SQLite comes last: it is read in this thread, servers in other threads.
        attempts = {
            database: database.start_attempt(
                self._read_factory(table, database, in_full=is_forced),
                is_forced=is_forced,
            )
            for database in sorted(databases, key=lambda database: database.is_local)
        }
        limit_s = self._conf().moorage.cell_timeout
        for database in awaited:
            attempt = attempts[database]
            has_ended = attempt is None or attempt.wait(deadline - time.monotonic())
            if not has_ended:
                database.check_timeout(limit_s, is_timed_out=timeout_s >= limit_s)
        for database in databases:
            database.check_timeout(limit_s)

    def _read_factory(
        self, table: HostTable, database: PolledDatabase, *, in_full: bool = False
    ) -> Callable[[], Read]:
        """Return the function by which `PolledDatabase.start_attempt` gets a `Read`.

        `in_full` applies to the API database only.
        """
        if isinstance(database, CellDatabase):
            return lambda: self._cell_read(table, database)
        return lambda: self._api_read(table, in_full=in_full)

    def _api_read(self, table: HostTable, *, in_full: bool = False) -> Read:
        reader = self.api.reader
        in_full = in_full or self._is_comparison_due(self.api.compared_at)

        def read(connection: sa.Connection, began_at: float) -> Apply:
            directory = reader.read(connection, began_at, in_full=in_full)

            def apply() -> None:
                self._apply_directory(table, directory)
                if in_full:
                    self.api.compared_at = began_at

            return apply

        return read

    def _cell_read(self, table: HostTable, cell: CellDatabase) -> Read:
        reader, in_full = cell.reader, self._is_comparison_due(cell.compared_at)
        known_old_computes, heartbeats = cell.old_computes, cell.heartbeats
        images, are_images_weighed = cell.images, are_weighed(self._conf(), table)
        limit_s = self._conf().moorage.cell_timeout

        def read(connection: sa.Connection, began_at: float) -> Apply:
            changes = reader.read(connection, began_at, in_full=in_full)
            if heartbeats is not None:
                changes = heartbeats.merge_into(changes)
            old_computes = known_old_computes
            if old_computes is None:
                old_computes = read_old_computes(connection)
            properties = images.read_changes(
                connection,
                changes,
                is_on=are_images_weighed,
                limit_s=limit_s,
                in_full=in_full,
            )

            def apply() -> None:
                self._merged.apply(table, cell.mapping.uuid, changes)
                write_properties(table, properties)
                cell.row_errors = reader.row_errors
                cell.old_computes = old_computes
                if in_full or changes.is_whole:
                    cell.compared_at = began_at

            return apply

        return read

    def _is_comparison_due(self, compared_at: float | None) -> bool:
        if compared_at is None:
            return True
        interval_s: float = self._conf().moorage.full_comparison_interval
        return abs(self._clock() - compared_at) >= interval_s

    def _cell_heartbeats(self) -> CellHeartbeats | None:
        if self._heartbeats is None:
            return None
        return CellHeartbeats(self._heartbeats, self._conf().report_interval)

    def _apply_directory(self, table: HostTable, directory: Directory) -> None:
        if sorted(table.aggregates, key=lambda a: a.id) != list(directory.aggregates):
            table.put_aggregates(directory.aggregates)
        table.put_cell_names({cell.uuid: cell.name for cell in directory.cells})
        cells: dict[str, CellDatabase] = {}
        unlisted = dict(self._cells)  # a copy: other threads read the original
        for mapping in directory.cells:
            cell = unlisted.pop(mapping.uuid, None)
            if cell is None or cell.mapping != mapping:
                previous = cell
                cell = CellDatabase(
                    mapping,
                    self._cell_engine,
                    Ratios.of(self._conf()),
                    self.lock,
                    self._clock,
                    self._cell_heartbeats,
                    with_launches=bool(self._conf().filter_scheduler.lifetime_model),
                )
                # The cell's hosts stay in the table until the new database is read.
                if previous is not None:
                    previous.retire()
                    cell.seen_at = previous.seen_at
            cells[mapping.uuid] = cell
        for uuid, cell in unlisted.items():
            LOG.info("%s is deleted or disabled; its hosts are dropped", cell.what)
            cell.retire()
            self._merged.drop_cell(table, uuid)
        self._cells = cells

    def _drop_unavailable_cells(self, table: HostTable) -> None:
        """Drop the rows of cells that have been unavailable for too long."""
        grace_s = self._conf().moorage.cell_grace
        with self.lock:
            for uuid, cell in self._cells.items():
                if cell.is_up or cell.seen_at is None or not self.n_hosts(cell):
                    continue
                if self._clock() - cell.seen_at > grace_s:
                    LOG.error(
                        "%s; its %d hosts are left out until it does",
                        cell.describe(),
                        self.n_hosts(cell),
                    )
                    cell.abandon()
                    cell.reset()
                    self._merged.drop_cell(table, uuid)
