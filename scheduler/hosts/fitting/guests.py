# SPDX-License-Identifier: Apache-2.0
"""On which hosts or candidates of a batch does a guest with NUMA cells fit?

First, the free CPUs and memory of each host cell are compared with the needs of each
guest cell, for all hosts at once. This is exact for a single guest cell. Whether all
guest cells get different host cells follows by Hall's condition, if the guest needs
neither devices nor networks. Otherwise, each choice of host cells is tried for all
hosts at once or, if there are too many choices, each host is searched separately.
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

#: Maximum choices of host cells that are tried for all hosts at once: there are 70
#: choices of 4 of 8 cells. For more hosts than this, their number is the maximum, as
#: trying one choice takes less time than searching one host.
_MAX_CHOICES: Final = 70


def hosts_that_fit(hosts: HostBatch, need: Need, networks: Networks) -> Mask:
    """Return on which hosts a guest fits, shape (n_hosts,).

    The guest may get any devices that its PCI requests match: candidates assign none.
    """
    fit = _may_fit(hosts, need)
    if need.requests or networks:
        host_indices = np.flatnonzero(fit)
        any_provider = [None] * len(need.requests)
        trials = _GuestTrials(
            hosts,
            need,
            networks,
            host_indices,
            any_provider,
            lambda _case: need.assigned({}),
        )
        fit[host_indices] = trials.fit()
    return fit


def candidates_that_fit(
    hosts: HostBatch, need: Need, networks: Networks, providers: Sequence[Providers]
) -> Mask:
    """Return for which candidates a guest fits the host, shape (n_candidates,)."""
    candidates = hosts.candidates
    fit = _may_fit(hosts, need)[candidates.rows]
    candidate_indices = np.flatnonzero(fit)
    trials = _GuestTrials(
        hosts,
        need,
        networks,
        candidates.rows[candidate_indices],
        [None if codes is None else codes[candidate_indices] for codes in providers],
        lambda case: need.assigned(
            candidates.mappings_of(int(candidate_indices[case]))
        ),
    )
    fit[candidate_indices] = trials.fit()
    return fit


def _guest(need: Need) -> Guest:
    if need.guest is None:
        raise ValueError("the request has no NUMA topology")
    return need.guest


def _may_fit(hosts: HostBatch, need: Need) -> Mask:
    """Return which hosts have the cells that a need requires, and each of its devices.

    Without devices and networks these are the hosts on which the guest fits.

    Returns
    -------
    ndarray of bool, shape (n_hosts,)
    """
    fit = _have_cells(hosts, _guest(need))
    return fit & hosts_with_each_device(hosts, need) if need.requests else fit


def _have_cells(hosts: HostBatch, guest: Guest) -> Mask:
    """Return which hosts have distinct cells for the guest cells, shape (n_hosts,)."""
    # Dedicated CPUs are not overcommitted: the result depends on the topology alone.
    if guest.is_dedicated:

        def can_be_placed_from(start: int) -> Mask:
            rows = hosts.value_arrays("numa_topology", CellArrays).rows(start)
            return can_be_placed(fitting_cells(rows, guest, None), guest)

        return hosts.map_codes("numa_topology", ("guest", guest), can_be_placed_from)
    rows = _cell_rows(hosts, hosts.codes("numa_topology"))
    ratios = hosts.cpu_allocation_ratio, hosts.ram_allocation_ratio
    return can_be_placed(fitting_cells(rows, guest, ratios), guest)


def _cell_rows(hosts: HostBatch, codes: npt.NDArray[np.int32]) -> CellRows:
    """Return the cells of the topologies that have these codes in the batch."""
    return hosts.value_arrays("numa_topology", CellArrays).rows().take(codes)


def _cells_with_network(hosts: HostBatch, name: str | None) -> CellMasks:
    """Return which cells of each host declare a network, as bits, shape (n_hosts,)."""

    def cells_of(topology: HostTopology | None) -> int:
        return 0 if topology is None else declaring_cells(topology, name)

    return hosts.map_distinct(
        "numa_topology", cells_of, np.uint64, cache_key=("declares", name)
    )


class _GuestTrials:
    """Tries a guest on m cases: hosts or candidates whose host has the guest's cells.

    Parameters
    ----------
    host_indices : ndarray of intp, shape (m,)
        The index in the batch of each case's host.
    providers : sequence of Providers, length n_requests
        For each PCI request, the providers that each case assigns to it.
    need_of_case : callable
        Returns the need, given the number of a case, with the names of the providers
        that the case assigns.
    """

    def __init__(
        self,
        hosts: HostBatch,
        need: Need,
        networks: Networks,
        host_indices: Rows,
        providers: Sequence[Providers],
        need_of_case: Callable[[int], Need],
    ) -> None:
        self._hosts = hosts
        self._need_of_case = need_of_case
        self._guest = _guest(need)
        self._networks = networks
        self._host_indices = host_indices
        self._cells = _cell_rows(hosts, hosts.codes("numa_topology")[host_indices])
        self._ratios = (
            hosts.cpu_allocation_ratio[host_indices],
            hosts.ram_allocation_ratio[host_indices],
        )
        self._masks = fitting_cells(self._cells, self._guest, self._ratios)
        self._cases = Cases(
            self._cells,
            [
                _cells_with_network(hosts, name)[host_indices]
                for name in networks.names()
            ],
            need.requests,
            pool_rows(hosts, host_indices) if need.requests else None,
            providers,
        )

    def fit(self) -> Mask:
        """Return which cases fit, shape (m,)."""
        fit = np.zeros(len(self._host_indices), bool)
        for n_cells in np.unique(self._cells.n_cells).tolist():
            cases = np.flatnonzero(self._cells.n_cells == n_cells)
            n_chosen = len(self._guest.cells)
            if math.comb(n_cells, n_chosen) > max(_MAX_CHOICES, len(cases)):
                fit[cases] = self._search_each(cases)
                continue
            for chosen in chosen_sets(n_cells, n_chosen):
                unfitted_cases = cases[~fit[cases]]
                fit[unfitted_cases] = self._fit_in(unfitted_cases, chosen)
        return fit

    def _fit_in(self, cases: Rows, chosen: int) -> Mask:
        """Return which of these cases fit in the host cells whose bits are `chosen`."""
        masks = _masks_of_cases(self._masks, cases)
        fit = can_be_placed(masks, self._guest, within=chosen)
        fit[fit] = self._cases.allow(cases[fit], chosen)
        return fit

    def _search_each(self, cases: Rows) -> list[bool]:
        """Return which of these cases fit, trying host by host; equal cases once."""
        known: dict[tuple[int, int, Need], bool] = {}
        topologies, pools = (
            self._hosts.codes(name)[self._host_indices[cases]].tolist()
            for name in ("numa_topology", "pci_stats")
        )
        fits = []
        for case, *codes in zip(cases.tolist(), topologies, pools, strict=True):
            need = self._need_of_case(case).within(self._limits(case))
            key = (*codes, need)
            if key not in known:
                known[key] = self._fits(int(self._host_indices[case]), need)
            fits.append(known[key])
        return fits

    def _limits(self, case: int) -> Limits:
        """Return the overcommit and the networks under which a case is tried."""
        cpu_ratio, ram_ratio = (float(ratio[case]) for ratio in self._ratios)
        return Limits(cpu_ratio, ram_ratio, self._networks)

    def _fits(self, host_index: int, need: Need) -> bool:
        topology, pools = (
            self._hosts.value(name, host_index)
            for name in ("numa_topology", "pci_stats")
        )
        return need.fits(topology, pools) is not None


def _masks_of_cases(masks: list[CellMasks], cases: Rows) -> list[CellMasks]:
    """Return the masks of some cases; an array that occurs twice is indexed once."""
    selected = {id(mask): mask[cases] for mask in masks}
    return [selected[id(mask)] for mask in masks]
