# SPDX-License-Identifier: Apache-2.0
"""The databases of a nova that are polled, and the readers of each."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable

import sqlalchemy as sa

from ...polling.polled_database import PolledDatabase
from .changes import CellReader
from .directory import CellMappingRow, DirectoryReader
from .heartbeats import CellHeartbeats
from .image_properties_reader import ImagePropertiesReader
from .old_computes import OldCompute
from .reading import Ratios


@dataclasses.dataclass(frozen=True, slots=True)
class CellStatus:
    """The status of a cell, for operators and metrics.

    Attributes
    ----------
    n_hosts : int
        Its known compute nodes; 0 once it was unavailable for too long.
    seen_at : float or None
        When its database was last read, seconds since the epoch; None: never.
    is_up : bool
        Whether its database answered in time when it was last read.
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
        self.local_connection: str | None = None
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
    ) -> None:
        what = f"cell {mapping.name} ({mapping.uuid})" if mapping.name else mapping.uuid
        super().__init__(what, lambda: connect(mapping.connection), lock, clock)
        self.mapping = mapping
        self.ratios = ratios
        self._make_heartbeats = heartbeats
        #: When all rows were last compared, and the errors of invalid rows.
        self.compared_at: float | None = None
        self.row_errors: tuple[str, ...] = ()
        #: Computes that were too old at the first read; None: not read yet.
        self.old_computes: tuple[OldCompute, ...] | None = None
        self.reset()

    def reset(self) -> None:
        """Replace the readers, so that the next attempt reads everything."""
        self.reader = CellReader(self.mapping.uuid, self.ratios)
        self.images = ImagePropertiesReader()
        self.heartbeats = self._make_heartbeats()
