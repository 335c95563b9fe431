# SPDX-License-Identifier: Apache-2.0
"""Many hosts or candidates at once: on which does a guest with NUMA cells fit?

Each cell of the guest is tried on each cell of all hosts by counts, which is exact for
the cell alone. Where neither devices nor networks tie cells together, Hall's condition
tells the rest. Else every choice of host cells is tried, for all hosts at once; and
where these are too many, host by host.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from ...objects import RequestSpec
from .batch import HostBatch, HostState
from .candidates import CandidateRows, Mask, Rows
from .devices import (
    ProviderCodes,
    candidate_providers,
    hosts_with_each_device,
    pool_rows,
)
from .fitting import Need
from .numa import (
    NO_SOCKET,
    CellArrays,
    CellMasks,
    CellRows,
    Guest,
    HostTopology,
    Limits,
    can_be_placed,
    chosen_sets,
    declaring_cells,
    fitting_cells,
    networks_of,
)
from .pci import NearPools, PoolRows, supported

#: Choices of host cells that are tried for all hosts at once, 4 of 8 are 70. Of hosts
#: that are more, as many: a choice takes less time than a host by itself.
_MAX_SETS: Final = 70

Ratios = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


@dataclasses.dataclass(frozen=True, slots=True)
class Networks:
    """The networks that a guest is to be near to."""

    physnets: frozenset[str] = frozenset()
    is_tunneled: bool = False

    @classmethod
    def of(cls, spec_obj: RequestSpec) -> Networks:
        """Return those of a request."""
        return cls(*networks_of(spec_obj))

    def __bool__(self) -> bool:
        return bool(self.physnets) or self.is_tunneled

    def limits(self, host_state: HostState) -> Limits:
        """Return the limits of one host, as its filter would hand them on."""
        return Limits(
            cpu_allocation_ratio=host_state.cpu_allocation_ratio,
            ram_allocation_ratio=host_state.ram_allocation_ratio,
            physnets=self.physnets,
            is_tunneled=self.is_tunneled,
        )

    def declarations(self, hosts: HostBatch) -> Iterator[CellMasks]:
        """Yield, for each network, which cells of each host declare it."""
        names: list[str | None] = [*sorted(self.physnets)]
        names += [None] if self.is_tunneled else []
        for name in names:
            yield hosts.map_distinct(
                "numa_topology",
                functools.partial(_declaring, name),
                np.uint64,
                cache_key=("declares", name),
            )


def _declaring(name: str | None, topology: HostTopology | None) -> int:
    return 0 if topology is None else declaring_cells(topology, name)


def hosts_that_fit(hosts: HostBatch, need: Need, networks: Networks) -> Mask:
    """Return on which hosts a guest fits, shape (n_hosts,).

    The devices, if any, are those that no candidate assigns.
    """
    fit = _may_fit(hosts, need)
    if need.requests or networks:
        at = np.flatnonzero(fit)
        nobody = [None] * len(need.requests)
        fit[at] = _Cases(
            hosts, need, networks, at, nobody, lambda _case: need.assigned({})
        ).fit()
    return fit


def candidates_that_fit(hosts: HostBatch, need: Need, networks: Networks) -> Mask:
    """Return with which candidates a guest fits their host, shape (n_candidates,)."""
    candidates = hosts.candidates
    fit = _may_fit(hosts, need)[candidates.rows]
    for every, providers in candidate_providers(hosts, need):
        some = every[fit[every]]
        assigned = _assigner(need, candidates.take(some))
        fit[some] = _Cases(
            hosts,
            need,
            networks,
            candidates.rows[some],
            [None if codes is None else codes[fit[every]] for codes in providers],
            assigned,
        ).fit()
    return fit


def _assigner(need: Need, candidates: CandidateRows) -> Callable[[int], Need]:
    return lambda case: need.assigned(candidates.mappings_of(case))


def _guest(need: Need) -> Guest:
    if need.guest is None:
        raise ValueError("the request has no NUMA topology")
    return need.guest


def _may_fit(hosts: HostBatch, need: Need) -> Mask:
    """Return which hosts have the cells, and each device somewhere, shape (n_hosts,).

    Without devices and networks that is all there is to ask.
    """
    fit = _placed_by_cells(hosts, _guest(need))
    return fit & hosts_with_each_device(hosts, need) if need.requests else fit


def _placed_by_cells(hosts: HostBatch, guest: Guest) -> Mask:
    """Return where each cell of the guest has a cell of its own, shape (n_hosts,)."""
    if guest.is_dedicated:  # no overcommit: a matter of the cells' state alone

        def answer(start: int) -> Mask:
            rows = hosts.value_arrays("numa_topology", CellArrays).rows(start)
            return can_be_placed(fitting_cells(rows, guest, None), guest)

        return hosts.map_codes("numa_topology", ("guest", guest), answer)
    rows = _cell_rows(hosts, hosts.codes("numa_topology"))
    ratios = hosts.cpu_allocation_ratio, hosts.ram_allocation_ratio
    return can_be_placed(fitting_cells(rows, guest, ratios), guest)


def _cell_rows(hosts: HostBatch, codes: npt.NDArray[np.int32]) -> CellRows:
    return hosts.value_arrays("numa_topology", CellArrays).rows().take(codes)


class _Cases:
    """Hosts or candidates on which the guest's cells fit, if nothing else mattered.

    Parameters
    ----------
    at : ndarray of intp, shape (m,)
        Which host of the batch each case is of.
    providers : sequence of (ndarray of int32, shape (m, n)) or None
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
        providers: ProviderCodes,
        assigned: Callable[[int], Need],
    ) -> None:
        self._hosts = hosts
        self._assigned = assigned
        self._guest = _guest(need)
        self._need = need
        self._networks = networks
        self._at = at
        self._providers = providers
        self._cells = _cell_rows(hosts, hosts.codes("numa_topology")[at])
        ratios = hosts.cpu_allocation_ratio[at], hosts.ram_allocation_ratio[at]
        self._masks = fitting_cells(self._cells, self._guest, ratios)
        self._declared = [each[at] for each in networks.declarations(hosts)]
        self._pools = pool_rows(hosts, at) if need.requests else None
        self._places = _places(self._cells, self._pools)
        self._tell_sockets = _all_tell_sockets(self._cells)

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
                left = cases[~fit[cases]]
                fit[left] = self._fit_in(left, chosen)
        return fit

    def _fit_in(self, cases: Rows, chosen: int) -> Mask:
        """Return which of these cases fit in a choice of host cells, a bit each."""
        masks = _of_cases(self._masks, cases)
        fit = can_be_placed(masks, self._guest, within=chosen)
        for declared in self._declared:
            near = declared[cases]
            fit &= (near == 0) | (near & np.uint64(chosen) != 0)
        if self._pools is not None:
            left = np.flatnonzero(fit)
            fit[left] = supported(
                self._pools.take(cases[left]),
                self._need.requests,
                [None if c is None else c[cases[left]] for c in self._providers],
                self._near(cases[left], chosen),
            )
        return fit

    def _near(self, cases: Rows, chosen: int) -> NearPools:
        """Return which pools are near to the chosen cells, shape (m, n_pools)."""
        sockets, places = self._cells["socket"][cases], self._places[cases]
        # The bits of a 64th cell are no int64.
        is_chosen = np.array([chosen >> i & 1 == 1 for i in range(sockets.shape[1])])
        same = (sockets[:, :, None] == sockets[:, None, is_chosen]).any(axis=2)
        same &= self._tell_sockets[cases][:, None]
        return NearPools(
            is_near=_at(np.broadcast_to(is_chosen, sockets.shape), places),
            is_same_socket=_at(same, places),
        )

    def _one_by_one(self, cases: Rows) -> list[bool]:
        """Return which of these cases fit, as consumed; equal ones are tried once."""
        known: dict[tuple[int, int, Need], bool] = {}
        topologies, pools = (
            self._hosts.codes(name)[self._at[cases]].tolist()
            for name in ("numa_topology", "pci_stats")
        )
        fits = []
        for case, *codes in zip(cases.tolist(), topologies, pools, strict=True):
            index = int(self._at[case])
            limits = self._networks.limits(self._hosts[index])
            need = self._assigned(case).within(limits)
            key = (*codes, need)
            if key not in known:
                known[key] = self._fits(index, need)
            fits.append(known[key])
        return fits

    def _fits(self, index: int, need: Need) -> bool:
        topology, pools = (
            self._hosts.value(name, index) for name in ("numa_topology", "pci_stats")
        )
        return need.fits(topology, pools) is not None


def _of_cases(masks: list[CellMasks], cases: Rows) -> list[CellMasks]:
    """Return the masks of some cases; what is one array stays one."""
    taken = {id(mask): mask[cases] for mask in masks}
    return [taken[id(mask)] for mask in masks]


def _places(cells: CellRows, pools: PoolRows | None) -> Rows:
    """Return the place of the cell that each pool is at, -1 for none."""
    if pools is None:
        return np.empty((len(cells), 0), np.intp)
    places = np.full(pools.numa_node.shape, -1, np.intp)
    for place in range(cells.shape[1]):
        is_there = (cells.n_cells > place)[:, None]
        is_at = pools.numa_node == cells["id"][:, place, None]
        places[is_there & is_at] = place
    return places


def _at(of_cells: Mask, places: Rows) -> Mask:
    """Return, for each pool, what holds of its cell; False where it has none."""
    found: Mask = np.take_along_axis(of_cells, np.maximum(places, 0), axis=1)
    return found & (places >= 0)


def _all_tell_sockets(rows: CellRows) -> Mask:
    there = np.arange(rows.shape[1]) < rows.n_cells[:, None]
    told: Mask = ~(there & (rows["socket"] == NO_SOCKET)).any(axis=1)
    return told
