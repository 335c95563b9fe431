# SPDX-License-Identifier: Apache-2.0
"""Is the host in the cell that a move of the instance prefers?"""

from __future__ import annotations

import numpy as np

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch
from ..scheduler.request import Request
from .base import BaseHostWeigher, Weights


class CrossCellWeigher(BaseHostWeigher):
    """Weigh hosts 1 in the cell that a move prefers, and -1 in other cells.

    A move prefers the cell of its requested destination if it may leave that cell. For
    any other request, all hosts weigh 0.
    """

    MULTIPLIER = "cross_cell_move_weight_multiplier"
    ROWWISE = True

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return 1, -1 or 0, shape (n_hosts,)."""
        cell_uuid = Request.of(spec_obj).destination.preferred_cell
        if cell_uuid is None:
            return np.zeros(len(hosts))
        return np.where(hosts.matches("cell_uuid", [cell_uuid]), 1.0, -1.0)
