# SPDX-License-Identifier: Apache-2.0
"""One cell of a nova: its database, and what was read of it."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable

import sqlalchemy as sa

from .changes import CellReader
from .directory import CellMapping
from .heartbeats import CellHeartbeats
from .image_properties import ImagePropertiesReader
from .old_computes import OldCompute
from .parts import Part
from .settings import Ratios


@dataclasses.dataclass(frozen=True, slots=True)
class CellStatus:
    """How a cell is, for people and metrics.

    Attributes
    ----------
    n_hosts : int
        Compute nodes that are known of it; none once it was away for too long.
    seen_at : float or None
        When its database was read last, seconds since the epoch; None: never.
    is_up : bool
        Whether its database answered in time when it was asked last.
    """

    uuid: str
    name: str
    n_hosts: int
    seen_at: float | None
    is_up: bool


class Cell(Part):
    """A cell's database, read by a reader that is renewed after each failure."""

    def __init__(
        self,
        mapping: CellMapping,
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
        #: When all was compared, and what could not be understood then or since.
        self.compared_at: float | None = None
        self.troubles: tuple[str, ...] = ()
        #: Computes that were too old when it was read first; None: it was not yet.
        self.old_computes: tuple[OldCompute, ...] | None = None
        self.renew()

    def renew(self) -> None:
        """Read everything next time."""
        self.reader = CellReader(self.mapping.uuid, self.ratios)
        self.images = ImagePropertiesReader()
        self.heartbeats = self._make_heartbeats()
