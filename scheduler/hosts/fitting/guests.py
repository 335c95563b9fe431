# SPDX-License-Identifier: Apache-2.0
"""On which hosts or candidates of a batch does a guest with NUMA cells fit?

Each cell of the guest is tried on each cell of all hosts by counts, which is exact for
the cell alone. Where neither devices nor networks tie cells together, Hall's condition
decides. Else every choice of host cells is tried, for all hosts at once; where these
are too many, each host is searched by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ...candidates import Mask, Rows
from ...request.numa import Guest, Networks
from ..batch import HostBatch
from ..numa import (
    CellArrays,
    CellMasks,
    CellRows,
    HostTopology,
    Limits,
    can_be_placed,
    chosen_sets,
    declaring_cells,
    fitting_cells,
)
from ..pci import Providers
from .cases import Cases
from .devices import hosts_with_each_device, pool_rows
from .need import Need

#: Choices of host cells that are tried for all hosts at once, 4 of 8 are 70. Of hosts
#: that are more, as many: a choice takes less time than a host by itself.
_MAX_SETS: Final = 70


def hosts_that_fit(hosts: HostBatch, need: Need, networks: Networks) -> Mask:
    """Return on which hosts a guest fits, shape (n_hosts,).

    The devices, if any, are those that no candidate assigns.
    """
    fit = _may_fit(hosts, need)
    if need.requests or networks:
        at = np.flatnonzero(fit)
        any_provider = [None] * len(need.requests)
        batch = _GuestTrials(
            hosts, need, networks, at, any_provider, lambda _case: need.assigned({})
        )
        fit[at] = batch.fit()
    return fit


def candidates_that_fit(
    hosts: HostBatch, need: Need, networks: Networks, providers: Sequence[Providers]
) -> Mask:
    """Return with which candidates a guest fits their host, shape (n_candidates,)."""
    candidates = hosts.candidates
    fit = _may_fit(hosts, need)[candidates.rows]
    fitting = np.flatnonzero(fit)
    batch = _GuestTrials(
        hosts,
        need,
        networks,
        candidates.rows[fitting],
        [None if codes is None else codes[fitting] for codes in providers],
        lambda case: need.assigned(candidates.mappings_of(int(fitting[case]))),
    )
    fit[fitting] = batch.fit()
    return fit


def _guest(need: Need) -> Guest:
    if need.guest is None:
        raise ValueError("the request has no NUMA topology")
    return need.guest


def _may_fit(hosts: HostBatch, need: Need) -> Mask:
    """Return which hosts have the cells, and each device somewhere, shape (n_hosts,).

    Without devices and networks these are the hosts on which the guest fits.
    """
    fit = _placed_by_cells(hosts, _guest(need))
    return fit & hosts_with_each_device(hosts, need) if need.requests else fit


def _placed_by_cells(hosts: HostBatch, guest: Guest) -> Mask:
    """Return where each cell of the guest has a cell of its own, shape (n_hosts,)."""
    if guest.is_dedicated:  # no overcommit: it depends on the cells' state alone

        def answer(start: int) -> Mask:
            rows = hosts.value_arrays("numa_topology", CellArrays).rows(start)
            return can_be_placed(fitting_cells(rows, guest, None), guest)

        return hosts.map_codes("numa_topology", ("guest", guest), answer)
    rows = _cell_rows(hosts, hosts.codes("numa_topology"))
    ratios = hosts.cpu_allocation_ratio, hosts.ram_allocation_ratio
    return can_be_placed(fitting_cells(rows, guest, ratios), guest)


def _cell_rows(hosts: HostBatch, codes: npt.NDArray[np.int32]) -> CellRows:
    return hosts.value_arrays("numa_topology", CellArrays).rows().take(codes)


def _declaring(hosts: HostBatch, name: str | None) -> CellMasks:
    """Return which cells of each host declare a network, as bits, shape (n_hosts,)."""

    def declaring(topology: HostTopology | None) -> int:
        return 0 if topology is None else declaring_cells(topology, name)

    return hosts.map_distinct(
        "numa_topology", declaring, np.uint64, cache_key=("declares", name)
    )


class _GuestTrials:
    """Hosts or candidates on which the guest's cells fit, if nothing else mattered.

    Parameters
    ----------
    at : ndarray of intp, shape (m,)
        Which host of the batch each case is of.
    providers : sequence of Providers
        Those that each case assigns to each PCI request.
    assigned : callable
        Return the need of a case, by number, with its providers' names.
    """

    def __init__(
        self,
        hosts: HostBatch,
        need: Need,
        networks: Networks,
        at: Rows,
        providers: Sequence[Providers],
        assigned: Callable[[int], Need],
    ) -> None:
        self._hosts = hosts
        self._assigned = assigned
        self._guest = _guest(need)
        self._networks = networks
        self._at = at
        self._cells = _cell_rows(hosts, hosts.codes("numa_topology")[at])
        self._ratios = hosts.cpu_allocation_ratio[at], hosts.ram_allocation_ratio[at]
        self._masks = fitting_cells(self._cells, self._guest, self._ratios)
        self._cases = Cases(
            self._cells,
            [_declaring(hosts, name)[at] for name in networks.names()],
            need.requests,
            pool_rows(hosts, at) if need.requests else None,
            providers,
        )

    def fit(self) -> Mask:
        """Return which cases fit, shape (m,)."""
        fit = np.zeros(len(self._at), bool)
        for n_cells in np.unique(self._cells.n_cells).tolist():
            cases = np.flatnonzero(self._cells.n_cells == n_cells)
            n_chosen = len(self._guest.cells)
            if math.comb(n_cells, n_chosen) > max(_MAX_SETS, len(cases)):
                fit[cases] = self._one_by_one(cases)
                continue
            for chosen in chosen_sets(n_cells, n_chosen):
                open_cases = cases[~fit[cases]]
                fit[open_cases] = self._fit_in(open_cases, chosen)
        return fit

    def _fit_in(self, cases: Rows, chosen: int) -> Mask:
        """Return which of these cases fit in a choice of host cells, a bit each."""
        masks = _of_cases(self._masks, cases)
        fit = can_be_placed(masks, self._guest, within=chosen)
        fit[fit] = self._cases.allow(cases[fit], chosen)
        return fit

    def _one_by_one(self, cases: Rows) -> list[bool]:
        """Return which of these cases fit; equal ones are searched once."""
        known: dict[tuple[int, int, Need], bool] = {}
        topologies, pools = (
            self._hosts.codes(name)[self._at[cases]].tolist()
            for name in ("numa_topology", "pci_stats")
        )
        fits = []
        for case, *codes in zip(cases.tolist(), topologies, pools, strict=True):
            need = self._assigned(case).within(self._limits(case))
            key = (*codes, need)
            if key not in known:
                known[key] = self._fits(int(self._at[case]), need)
            fits.append(known[key])
        return fits

    def _limits(self, case: int) -> Limits:
        cpu_ratio, ram_ratio = (float(ratio[case]) for ratio in self._ratios)
        return Limits(cpu_ratio, ram_ratio, self._networks)

    def _fits(self, index: int, need: Need) -> bool:
        topology, pools = (
            self._hosts.value(name, index) for name in ("numa_topology", "pci_stats")
        )
        return need.fits(topology, pools) is not None


def _of_cases(masks: list[CellMasks], cases: Rows) -> list[CellMasks]:
    """Return the masks of some cases; what is one array stays one."""
    selected = {id(mask): mask[cases] for mask in masks}
    return [selected[id(mask)] for mask in masks]
