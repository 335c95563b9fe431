# SPDX-License-Identifier: Apache-2.0
"""Is the host in the cell of the instance?"""

from __future__ import annotations

import numpy as np

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch
from .base import BaseHostWeigher, Weights


class CrossCellWeigher(BaseHostWeigher):
    """Weigh 1 in the cell that a move prefers, -1 in other cells; else 0.

    A move prefers the cell of its destination if it may leave that cell.
    """

    MULTIPLIER = "cross_cell_move_weight_multiplier"

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return 1, -1 or 0, shape (n_hosts,)."""
        cell_uuid = _preferred_cell(spec_obj)
        if cell_uuid is None:
            return np.zeros(len(hosts))
        return np.where(hosts.matches("cell_uuid", [cell_uuid]), 1.0, -1.0)


def _preferred_cell(spec_obj: RequestSpec) -> str | None:
    name = "requested_destination"
    destination = spec_obj.requested_destination if name in spec_obj else None
    if destination is None or "cell" not in destination or not destination.cell:
        return None
    if "allow_cross_cell_move" not in destination:
        return None
    cell_uuid: str = destination.cell.uuid
    return cell_uuid if destination.allow_cross_cell_move else None
