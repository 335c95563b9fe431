# SPDX-License-Identifier: Apache-2.0
"""NUMA: a host's cells, a guest's cells, and on which hosts the guest fits."""

from .arrays import NO_CELL, NO_SOCKET, CellArrays, CellRows
from .cells import CellHardware, HostCell, Pages
from .fit import Devices, declaring_cells, fit
from .guest import FittedCell, FittedGuest, Guest, GuestCell, Limits, networks_of
from .matching import CellMasks, can_be_placed, chosen_sets, fitting_cells
from .pinning import fit_cell
from .topology import HostTopology

__all__ = [
    "NO_CELL",
    "NO_SOCKET",
    "CellArrays",
    "CellHardware",
    "CellMasks",
    "CellRows",
    "Devices",
    "FittedCell",
    "FittedGuest",
    "Guest",
    "GuestCell",
    "HostCell",
    "HostTopology",
    "Limits",
    "Pages",
    "can_be_placed",
    "chosen_sets",
    "declaring_cells",
    "fit",
    "fit_cell",
    "fitting_cells",
    "networks_of",
]
