# SPDX-License-Identifier: Apache-2.0
"""Is the host in the cell of the instance?"""

from __future__ import annotations

import numpy as np

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch
from ..scheduler.request import Request
from .base import BaseHostWeigher, Weights


class CrossCellWeigher(BaseHostWeigher):
    """Weigh 1 in the cell that a move prefers, -1 in other cells; else 0.

    A move prefers the cell of its destination if it may leave that cell.
    """

    MULTIPLIER = "cross_cell_move_weight_multiplier"

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return 1, -1 or 0, shape (n_hosts,)."""
        cell_uuid = Request.of(spec_obj).destination.preferred_cell
        if cell_uuid is None:
            return np.zeros(len(hosts))
        return np.where(hosts.matches("cell_uuid", [cell_uuid]), 1.0, -1.0)
