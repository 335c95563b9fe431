# SPDX-License-Identifier: Apache-2.0
"""CPUs and PCI devices that Placement does not know, checked again after a claim.

Placement counts dedicated CPUs and memory of a host, and not those of its NUMA cells;
it counts only the PCI devices that nova reports to it. Two guests that are placed at
the same time can both be granted the same ones. So once a claim is granted, the guest
is fitted to its host once more, with what other claims took since the decision read it:
those of other threads, and those that other schedulers have announced. A guest that
fits is counted at once, under the lock of the host table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ....filters import BaseHostFilter
from ...hosts import Consumption, HostTable
from ...placement.allocations.limits import MAX_COLLISIONS

_CELLS_FILTER = "NUMATopologyFilter"
_DEVICES_FILTER = "PciPassthroughFilter"


class FitCheck:
    """Ensures that the guests of a request do not take what others got first.

    Parameters
    ----------
    filters : iterable of BaseHostFilter
        Those that apply to the request: what none of them enforces, such as where a
        host is forced, is not enforced here either.
    since : int
        The revision of the hosts that the decision reads.
    """

    def __init__(
        self,
        table: HostTable,
        filters: Iterable[BaseHostFilter],
        *,
        since: int,
        clock: Callable[[], float],
    ) -> None:
        self._table = table
        self._enforced = {type(each).__name__ for each in filters}
        self._since = since
        self._clock = clock
        #: The service host of each instance that was counted.
        self._taken: dict[str, str] = {}
        self._n_collisions = 0

    def may_try(self, node_uuid: str, consumption: Consumption) -> bool:
        """Return whether a guest still fits a host, before it is claimed."""
        if not self._is_enforced(consumption):
            return True
        return self._table.fits(node_uuid, consumption, self._since)

    def take(
        self, uuid: str, node_uuid: str, host: str, consumption: Consumption
    ) -> bool:
        """Count a guest that was granted a host if it still fits; return whether.

        After `MAX_COLLISIONS` that did not fit, it is left to the compute.
        """
        if not self._is_enforced(consumption):
            return True
        if self._n_collisions >= MAX_COLLISIONS:
            return True
        now = self._clock()
        if self._table.consume_if_fits(node_uuid, uuid, consumption, now, self._since):
            self._taken[uuid] = host
            return True
        self._n_collisions += 1
        return False

    def give_back(self, uuid: str) -> None:
        """Release what `take` counted for an instance, if it did."""
        host = self._taken.pop(uuid, None)
        if host is not None:
            self._table.release_claim(host, uuid)

    def give_back_all(self) -> None:
        """Release what `take` counted, for all instances."""
        for uuid in list(self._taken):
            self.give_back(uuid)

    def _is_enforced(self, consumption: Consumption) -> bool:
        need = consumption.need
        if not need:
            return False
        has_cells = need.guest is None or _CELLS_FILTER in self._enforced
        return has_cells and (not need.requests or _DEVICES_FILTER in self._enforced)
