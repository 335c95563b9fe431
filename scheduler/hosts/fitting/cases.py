# SPDX-License-Identifier: Apache-2.0
"""May a guest have these cells of a host, near to its networks and PCI devices?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...candidates import Mask, Rows
from ...request.pci import PciRequest
from ..numa import CellMasks, CellRows, ChosenCells
from ..pci import PoolRows, Providers, supported


@dataclass(frozen=True, slots=True, eq=False)
class Cases:
    """m hosts, or allocation candidates of hosts, on which a guest is tried.

    Attributes
    ----------
    cells : CellRows
        Those of each case's host.
    declared : sequence of ndarray of uint64, shape (m,)
        For each of the guest's networks, the host cells that declare it, as bits.
    requests : sequence of PciRequest
    pools : PoolRows or None
        Those of each case's host; None: there are no requests.
    providers : sequence of Providers, length n_requests
        Those that each case assigns to each request.
    """

    cells: CellRows
    declared: Sequence[CellMasks]
    requests: Sequence[PciRequest]
    pools: PoolRows | None
    providers: Sequence[Providers]

    def allow(self, at: Rows, chosen: int) -> Mask:
        """Return which of the cases at these indices allow a choice of host cells.

        A network that some cell declares needs one of the cells that do
        (``_numa_cells_support_network_metadata``); the devices need to be near.

        Parameters
        ----------
        chosen : int
            A bit each.
        """
        allowed = np.ones(len(at), bool)
        for declared in self.declared:
            near = declared[at]
            allowed &= (near == 0) | (near & np.uint64(chosen) != 0)
        if self.pools is not None:
            rows = at[allowed]
            allowed[allowed] = supported(
                self.pools.take(rows),
                self.requests,
                [None if codes is None else codes[rows] for codes in self.providers],
                ChosenCells.of(self.cells.take(rows), chosen),
            )
        return allowed
