# SPDX-License-Identifier: Apache-2.0
"""The store of decisions, as the scheduler and the HTTP API use it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Self

from oslo_config import cfg

from ..clock import now_s
from ..database import IncompatibleSchema, StoreDatabase
from ..drivers.record import DecisionRecord
from ..waiting import Spawner, ThreadSpawner
from .queries import DecisionPage, DecisionQuery, Demand, count_demand, find_page
from .schema import MAX_ID, OPTION, SCHEMA
from .views import read_view
from .writer import DecisionWriter


class DecisionStore:
    """Decisions in a database that several processes share.

    The constructor opens no connection and starts no thread. A process that only reads
    calls `page`, `view` and `stop`.

    Parameters
    ----------
    url : str
        An SQLAlchemy URL of SQLite, MariaDB or PostgreSQL.
    max_age_s : float
        The age at which decisions are removed; 0: they never expire.
    max_decisions : int
        How many decisions are kept; the oldest ones are removed. 0: all are kept.
    max_views : int
        How many views are kept; the oldest ones are removed.
    clock : callable
        Returns the current time, seconds since the epoch.

    Raises
    ------
    ConfigurationError
        The URL is invalid, or its driver is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        max_age_s: float = 0,
        max_decisions: int = 0,
        max_views: int = 0,
        clock: Callable[[], float] = now_s,
        spawner: Spawner | None = None,
    ) -> None:
        self._database = StoreDatabase(url, option=OPTION, schema=SCHEMA)
        self._is_prepared = False
        self._writer = DecisionWriter(
            self._database,
            self._prepare,
            max_age_s=max_age_s,
            max_decisions=max_decisions,
            max_views=max_views,
            clock=clock,
            spawner=spawner or ThreadSpawner(),
        )
        #: The URL of the database without the password.
        self.name = self._database.name

    @classmethod
    def open(
        cls,
        conf: cfg.ConfigOpts,
        *,
        clock: Callable[[], float] = now_s,
        spawner: Spawner | None = None,
    ) -> Self | None:
        """Return the store that the options name; None: the options name no store."""
        options = conf.moorage
        if not options.decision_store_connection:
            return None
        return cls(
            options.decision_store_connection,
            max_age_s=options.decision_store_max_age,
            max_decisions=options.decision_store_max_decisions,
            max_views=options.stored_views,
            clock=clock,
            spawner=spawner,
        )

    # -- writing -----------------------------------------------------------------------

    def prepare(self) -> None:
        """Create or upgrade the tables; if the database fails, log a warning.

        It leaves no connection open, so that the process may be forked afterwards.

        Raises
        ------
        IncompatibleSchema
            The database has a newer schema, or another program's tables.
        """
        self._writer.prepare(self._prepare, IncompatibleSchema)

    def check(self) -> bool:
        """Return whether the tables exist and need no upgrade; writes nothing.

        Raises
        ------
        StoreUnavailable
        IncompatibleSchema
        """
        return self._database.check()

    def _prepare(self) -> None:
        if not self._is_prepared:
            self._database.upgrade()
            self._is_prepared = True

    def start(self) -> None:
        """Start writing; called in each process that decides, after it was forked."""
        self._writer.start()

    def add(self, record: DecisionRecord) -> None:
        """Queue a complete record; never wait for the database, and never fail."""
        self._writer.add(record)

    def add_view(self, encode: Callable[[], bytes]) -> str:
        """Queue a view that a function encodes in another thread; return its id."""
        return self._writer.add_view(encode)

    def flush(self) -> None:
        """Write what is queued now, if the store answers."""
        self._writer.flush()

    def stop(self) -> None:
        """Write what is queued, if the store answers, and close all connections."""
        self._writer.stop()
        self._database.close()

    @property
    def failure(self) -> str:
        """Why decisions cannot be written; "" while they can."""
        return self._writer.failure

    @property
    def n_written(self) -> int:
        """The number of decisions that this process has stored."""
        return self._writer.n_written

    @property
    def n_dropped(self) -> int:
        """The number of decisions of this process that will never be stored."""
        return self._writer.n_dropped

    def disconnect(self) -> None:
        """Close all connections, before the process may be forked."""
        self._database.close()

    # -- reading -----------------------------------------------------------------------

    def page(self, query: DecisionQuery) -> DecisionPage:
        """Return decisions, the newest first, and how to continue.

        Raises
        ------
        StoreUnavailable
            The database fails or does not answer; the message is one line.
        """
        self._prepare()
        with self._database.reading() as connection:
            return find_page(connection, query)

    def demand(
        self, query: DecisionQuery, flavors: Collection[str]
    ) -> dict[str, Demand]:
        """Return how many requests of a query were for each flavor; see `Demand`.

        Raises
        ------
        StoreUnavailable
        """
        self._prepare()
        with self._database.reading() as connection:
            return count_demand(connection, query, flavors)

    def view(self, id_: str) -> bytes | None:
        """Return a stored view; None: the store does not have it any more.

        Raises
        ------
        StoreUnavailable
        """
        number = int(id_)
        if number > MAX_ID:
            return None
        self._prepare()
        with self._database.reading() as connection:
            return read_view(connection, number)
