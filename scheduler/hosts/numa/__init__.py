# SPDX-License-Identifier: Apache-2.0
"""NUMA: a host's cells, a guest's cells, and on which hosts the guest fits."""

from .arrays import NO_CELL, NO_SOCKET, CellArrays, CellRows, grown
from .cells import CellHardware, HostCell, Pages
from .fit import (
    ChosenCells,
    cells_in_order,
    chosen_sets,
    declaring_cells,
    first_permutation,
)
from .guest import FittedCell, FittedGuest, Limits
from .matching import (
    CellMasks,
    Ratios,
    can_be_placed,
    chosen_pages,
    fitting_cells,
)
from .pinning import pin
from .topology import HostTopology

__all__ = [
    "NO_CELL",
    "NO_SOCKET",
    "CellArrays",
    "CellHardware",
    "CellMasks",
    "CellRows",
    "ChosenCells",
    "FittedCell",
    "FittedGuest",
    "HostCell",
    "HostTopology",
    "Limits",
    "Pages",
    "Ratios",
    "can_be_placed",
    "cells_in_order",
    "chosen_pages",
    "chosen_sets",
    "declaring_cells",
    "first_permutation",
    "fitting_cells",
    "grown",
    "pin",
]
