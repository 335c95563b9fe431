# SPDX-License-Identifier: Apache-2.0
"""May a guest take these cells of a host: are they near its networks and devices?"""

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
    """Arrays of m cases; a case is a host, or a host with an allocation candidate.

    Attributes
    ----------
    cells : CellRows
        The cells of each case's host.
    declared : sequence of ndarray of uint64, shape (m,)
        For each of the guest's networks, the host cells that are declared near to it
        (nova's ``network_metadata``), as bits.
    requests : sequence of PciRequest
    pools : PoolRows or None
        The pools of each case's host; None: there are no requests.
    providers : sequence of Providers, length n_requests
        The providers that each case assigns to each request.
    """

    cells: CellRows
    declared: Sequence[CellMasks]
    requests: Sequence[PciRequest]
    pools: PoolRows | None
    providers: Sequence[Providers]

    def allow(self, at: Rows, chosen: int) -> Mask:
        """Return in which of some cases the guest may take the chosen host cells.

        If any cell of the host declares a network, one of the chosen cells must declare
        it (nova's ``_numa_cells_support_network_metadata``). The devices must be near
        to the chosen cells.

        Parameters
        ----------
        at : ndarray of intp
            The indices of these cases.
        chosen : int
            The chosen host cells, as bits.

        Returns
        -------
        ndarray of bool, with the shape of `at`
        """
        allowed = np.ones(len(at), bool)
        for declared in self.declared:
            declaring_cells = declared[at]
            allowed &= (declaring_cells == 0) | (
                declaring_cells & np.uint64(chosen) != 0
            )
        if self.pools is not None:
            allowed_cases = at[allowed]
            allowed[allowed] = supported(
                self.pools.take(allowed_cases),
                self.requests,
                [
                    None if codes is None else codes[allowed_cases]
                    for codes in self.providers
                ],
                ChosenCells.of(self.cells.take(allowed_cases), chosen),
            )
        return allowed
