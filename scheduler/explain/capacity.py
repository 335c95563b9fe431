# SPDX-License-Identifier: Apache-2.0
"""Count how many more instances of flavors fit now: as many as a loop of claims gets.

    providers ─▶ claims by host ─┐
    cells, devices ─▶ guests ────┼─▶ the minimum that the filters pass ─▶ by zone
    filters ─────────────────────┘

On some hosts the count depends on which candidates are claimed, for example where
Placement tracks several devices. There, instances are claimed one by one on copies of
the host and its providers.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ...filters.numa_topology import NUMATopologyFilter
from ...filters.pci_passthrough import PciPassthroughFilter
from ...objects import RequestSpec
from ..candidates import CandidatesQuery
from ..drivers.filtering import rejections
from ..drivers.instances import consumption_of, consumption_on_host
from ..drivers.parts import Parts
from ..drivers.placement_queries import build_queries, run_prefilters
from ..drivers.prepared import Caller
from ..drivers.record import DecisionRecord
from ..drivers.weighing import rank_hosts
from ..errors import InvalidRequest, NoValidHost, SchedulerError
from ..hosts import Consumption, HostBatch
from ..hosts.fitting.need import Need
from ..placement.providers import ProviderView, QueryNotCovered
from ..request import Request
from .claim_counts import ClaimCounter, ClaimCounts
from .claim_loop import ClaimLoop
from .device_counts import count_guests
from .flavors import VOLUME_BACKED, FlavorRequest
from .zones import zones_of

Mask = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

_MAY_BE_LESS: Final = (
    "choices between many devices or cells were not followed on all hosts: it may be "
    "less"
)
_SHARED: Final = "hosts share storage: its split between zones is one of several"
_SPLIT: Final = (
    "hosts with several providers of storage share some: it may be less, as claims "
    "choose among them"
)
#: Why nothing is counted without a copy of the providers.
NO_PROVIDERS: Final = (
    "It is computed from Placement's providers in memory, which this process does not "
    "have: set [placement_database] connection"
)


class NoProviders(SchedulerError):
    """Raised if the process has no copy of Placement's providers, or it is too old."""


@dataclasses.dataclass(frozen=True, slots=True)
class ZoneCapacity:
    """How many more instances of a flavor fit in one zone of one cell.

    Attributes
    ----------
    cell : str
        The name of the cell; its UUID if the source of hosts knows no name.
    """

    zone: str
    cell_uuid: str
    cell: str
    n_instances: int
    n_hosts: int


@dataclasses.dataclass(frozen=True, slots=True)
class HostCapacity:
    """How many more instances of a flavor fit on one compute node."""

    host: str
    node: str
    zone: str
    cell_uuid: str
    n_instances: int


@dataclasses.dataclass(frozen=True, slots=True)
class FlavorCapacity:
    """How many more instances of one flavor fit.

    Attributes
    ----------
    disk_gb : int
        Root and ephemeral disk.
    n_instances : int
        How many fit if no instance of another flavor is created.
    n_hosts : int
        Compute nodes on which at least one instance fits.
    is_exact : bool
        Whether a loop of claims would get exactly `n_instances`; otherwise `notes` say
        why not.
    places : tuple of ZoneCapacity
        The zones in which instances fit, in descending order of their number.
    hosts : tuple of HostCapacity
        Compute nodes on which instances fit, if they are asked for; in the order in
        which the weighers prefer them for the next instance.
    """

    flavor: str
    vcpus: int
    memory_mb: int
    disk_gb: int
    n_instances: int
    n_hosts: int
    is_exact: bool
    places: tuple[ZoneCapacity, ...]
    notes: tuple[str, ...] = ()
    hosts: tuple[HostCapacity, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class CapacityReport:
    """How many more instances of each flavor fit.

    Attributes
    ----------
    n_hosts : int
        All compute nodes.
    zones : tuple of str
        All zones of compute nodes, also those without room.
    """

    n_hosts: int
    zones: tuple[str, ...]
    flavors: tuple[FlavorCapacity, ...]


def capacity(
    parts: Parts,
    view: ProviderView | None,
    flavors: Sequence[FlavorRequest],
    *,
    n_listed: int = 0,
) -> CapacityReport:
    """Return how many more instances of each flavor fit now.

    A filter that rejects a host with some instances is assumed to reject it with more.

    Parameters
    ----------
    n_listed : int
        The maximum number of hosts that are listed for each flavor.

    Raises
    ------
    NoProviders
        `view` is None.
    SchedulerError
        A request is invalid, or a component failed.
    """
    if view is None:
        raise NoProviders(NO_PROVIDERS)
    counter = HostCounter(parts, view, parts.table.batch())
    return CapacityReport(
        len(counter.hosts),
        counter.zones,
        tuple(counter.count(flavor, n_listed) for flavor in flavors),
    )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class HostCounts:
    """How many instances fit each host, and notes on the count.

    Attributes
    ----------
    n_on_host : ndarray of int64, shape (n_hosts,)
        As if no other host used the providers that hosts share.
    claims : ClaimCounts or None
        What providers grant; None: the request is refused on all hosts.
    notes : tuple of str
        Why the request is refused, or why fewer instances may fit.
    """

    n_on_host: Int64s
    claims: ClaimCounts | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether a loop of claims on all hosts would get the sum of the counts."""
        return not self.notes and not (self.claims is not None and self.claims.shared)


class HostCounter:
    """Counts instances on hosts and their providers, whose state does not change."""

    def __init__(self, parts: Parts, view: ProviderView, hosts: HostBatch) -> None:
        self._parts = parts
        self._view = view
        self.hosts = hosts
        trees = view.state.trees
        rows = np.array(
            [trees.find(uuid) for uuid in self.hosts.uuid.tolist()], np.int64
        )
        #: The row of each host's root provider; for a host without one, the row after
        #: the last, which has no inventory.
        self._roots = np.where(rows < 0, trees.n_rows, rows)
        self._zones, self._zone_of = self._find_zones()
        self._count_claims = functools.cache(ClaimCounter(view).count)

    def _find_zones(self) -> tuple[list[tuple[str, str]], npt.NDArray[np.intp]]:
        """Return all pairs of zone and cell, and the index of each host's pair."""
        zones = zones_of(self.hosts, self._parts.conf.default_availability_zone)
        pairs = list(zip(zones.tolist(), self.hosts.cell_uuid.tolist(), strict=True))
        index: dict[tuple[str, str], int] = {}
        zone_of = [index.setdefault(pair, len(index)) for pair in pairs]
        return list(index), np.array(zone_of, np.intp)

    @property
    def zones(self) -> tuple[str, ...]:
        """The zones of all hosts, sorted."""
        return tuple(sorted({zone for zone, _ in self._zones}))

    def upper_bounds(self, flavor: FlavorRequest) -> HostCounts:
        """Count for each host alone, and follow no claims: fewer instances may fit."""
        return self._count_hosts(copy.copy(flavor.spec_obj), is_followed=False)

    def count(self, flavor: FlavorRequest, n_listed: int) -> FlavorCapacity:
        """Count for all hosts together, and list up to `n_listed` of them."""
        counts = self._count_hosts(copy.copy(flavor.spec_obj), is_followed=True)
        n_on_host, sizes = counts.n_on_host, flavor.spec_obj.flavor
        notes = (*flavor.notes, *counts.notes)
        if counts.claims is not None:
            notes += tuple(_limit_to_shared(counts.claims, self._roots, n_on_host))
        notes = tuple(dict.fromkeys(notes))
        n_zones, names = len(self._zones), self._parts.table.cell_names
        n_in_zone = np.bincount(self._zone_of, n_on_host, n_zones).astype(np.int64)
        n_hosts_in_zone = np.bincount(self._zone_of, n_on_host > 0, n_zones)
        capacities = [
            ZoneCapacity(
                zone,
                cell,
                names.get(cell, cell),
                int(n_in_zone[i]),
                int(n_hosts_in_zone[i]),
            )
            for i in np.argsort(-n_in_zone, kind="stable").tolist()
            for zone, cell in [self._zones[i]]
            if n_in_zone[i]
        ]
        return FlavorCapacity(
            flavor=sizes.name if "name" in sizes else "",
            vcpus=sizes.vcpus,
            memory_mb=sizes.memory_mb,
            disk_gb=sizes.root_gb + sizes.ephemeral_gb,
            n_instances=int(n_on_host.sum()),
            n_hosts=int(np.count_nonzero(n_on_host)),
            is_exact=not (set(notes) - {_SHARED, VOLUME_BACKED}),
            places=tuple(capacities),
            notes=notes,
            hosts=self._list_hosts(flavor.spec_obj, n_on_host, n_listed),
        )

    def _list_hosts(
        self, spec_obj: RequestSpec, n_on_host: Int64s, n_listed: int
    ) -> tuple[HostCapacity, ...]:
        """Return the hosts with room, in the order of their weights."""
        indices = np.flatnonzero(n_on_host)
        if not n_listed or not len(indices):
            return ()
        spec_obj = Request.validated(copy.copy(spec_obj)).spec_obj
        hosts = self.hosts.take(indices)
        ranking = rank_hosts(
            [weigher.prepare(spec_obj) for weigher in self._parts.weighers],
            hosts,
            spec_obj,
            conf=self._parts.conf,
            ties=np.arange(len(hosts), dtype=np.float64),
            # The scheduler's own generator would give later decisions other numbers.
            rng=np.random.default_rng(self._parts.tie_seed),
        )
        capacities = []
        for i in ranking.order[:n_listed].tolist():
            zone, cell_uuid = self._zones[self._zone_of[indices[i]]]
            host, node = hosts.value("host", i), hosts.value("nodename", i)
            n_instances = int(n_on_host[indices[i]])
            capacities.append(HostCapacity(host, node, zone, cell_uuid, n_instances))
        return tuple(capacities)

    def _count_hosts(self, spec_obj: RequestSpec, *, is_followed: bool) -> HostCounts:
        none_fits = np.zeros(len(self.hosts), np.int64)
        try:
            request = Request.validated(spec_obj)
            queries = tuple(self._queries(request))
            return self._count(request, queries, None, is_followed=is_followed)
        except (NoValidHost, InvalidRequest) as e:
            return HostCounts(none_fits, notes=(str(e),))
        except QueryNotCovered as e:
            note = f"Placement would refuse the query: {e}"
            return HostCounts(none_fits, notes=(note,))

    def count_at(
        self,
        parts: Parts,
        hosts: HostBatch,
        request: Request,
        queries: Sequence[CandidatesQuery],
        at: Mask,
    ) -> HostCounts:
        """Count the instances of a request on some hosts together; follow no claims.

        Parameters
        ----------
        parts : Parts
            With the filters that are run.
        hosts : HostBatch
            The counter's hosts, in any state.
        at : ndarray of bool, shape (n_hosts,)
            The hosts that are counted.

        Raises
        ------
        QueryNotCovered
            Placement would refuse a query.
        """
        counter = copy.copy(self)
        counter._parts = parts  # noqa: SLF001 - a copy of this counter
        counter.hosts = hosts
        counts = counter._count(request, tuple(queries), at, is_followed=False)  # noqa: SLF001
        if counts.claims is None:
            return counts
        notes = _limit_to_shared(counts.claims, self._roots, counts.n_on_host)
        may_be_less = tuple(note for note in notes if note == _SPLIT)
        return HostCounts(counts.n_on_host, notes=(*counts.notes, *may_be_less))

    def _count(
        self,
        request: Request,
        queries: tuple[CandidatesQuery, ...],
        at: Mask | None,
        *,
        is_followed: bool,
    ) -> HostCounts:
        claims = self._count_claims(queries)
        n_on_host = np.append(claims.n_claims, [0])[self._roots]
        if at is not None:
            n_on_host[~at] = 0
        is_exact = np.append(claims.is_exact, [True])[self._roots]
        indices = np.flatnonzero(n_on_host)
        hosts = self.hosts.take(indices)
        consumption = consumption_of(request, self._parts.conf)
        consumption = consumption_on_host(consumption, {}, {})
        if _are_devices_tracked(request):
            is_exact[indices] = False
        elif consumption.need is not None:
            n_on_host[indices], are_guests_exact = self._count_guests(
                consumption.need, hosts, n_on_host[indices]
            )
            is_exact[indices] &= are_guests_exact
        n_on_host[indices] = self._count_passing(
            request, hosts, n_on_host[indices], consumption
        )
        if is_followed:
            is_complete = self._claim_one_by_one(request, queries, n_on_host, ~is_exact)
        else:
            is_complete = bool(is_exact[n_on_host > 0].all())
        return HostCounts(n_on_host, claims, () if is_complete else (_MAY_BE_LESS,))

    # -- Placement ---------------------------------------------------------------------

    def _queries(self, request: Request) -> list[CandidatesQuery]:
        record = DecisionRecord(None, (), 1, self._parts.clock())
        caller = Caller.of({})
        requirements = run_prefilters(self._parts, caller, request, record)
        return build_queries(self._parts, request, requirements)

    # -- NUMA cells and PCI devices ----------------------------------------------------

    def _count_guests(
        self, need: Need, hosts: HostBatch, limits: Int64s
    ) -> tuple[Int64s, Mask]:
        """Return how many guests fit each host, and for which hosts this is exact."""
        kinds = {type(filter_) for filter_ in self._parts.filters}
        if need.guest is not None and NUMATopologyFilter not in kinds:
            need = dataclasses.replace(need, guest=None)
        if need.guest is None and PciPassthroughFilter not in kinds:
            need = dataclasses.replace(need, requests=(), providers=())
        if need.guest is None and not need.requests:
            return limits, np.ones(len(hosts), np.bool_)
        is_limited = NUMATopologyFilter in kinds
        guests = count_guests(hosts, need, limits, is_limited=is_limited)
        return guests.n_guests, guests.is_exact

    # -- filters -----------------------------------------------------------------------

    def _count_passing(
        self,
        request: Request,
        hosts: HostBatch,
        limits: Int64s,
        consumption: Consumption,
    ) -> Int64s:
        """Return for how many instances, up to `limits`, the filters pass each host."""
        n_on_host = limits.copy()
        indices = np.flatnonzero(limits)
        # take() copies all columns.
        with_room = hosts if len(indices) == len(hosts) else hosts.take(indices)
        indices = indices[
            ~self._passes(request, with_room, consumption, limits[indices])
        ]
        if len(indices):
            # Most hosts that are rejected for all instances are rejected for one, too.
            n_on_host[indices] = 0
            one_each = np.ones_like(indices)
            indices = indices[
                self._passes(request, hosts.take(indices), consumption, one_each)
            ]
            n_on_host[indices] = self._bisect(
                request, hosts.take(indices), consumption, limits[indices]
            )
        return n_on_host

    def _bisect(
        self,
        request: Request,
        hosts: HostBatch,
        consumption: Consumption,
        limits: Int64s,
    ) -> Int64s:
        """Return the maximum number of instances for which each host passes.

        Each host passes for 1 instance, and is rejected for `limits`.
        """
        n_passing, n_rejected = np.ones_like(limits), limits.copy()
        while (indices := np.flatnonzero(n_rejected - n_passing > 1)).size:
            middle = (n_passing[indices] + n_rejected[indices]) // 2
            passes = self._passes(request, hosts.take(indices), consumption, middle)
            n_passing[indices[passes]] = middle[passes]
            n_rejected[indices[~passes]] = middle[~passes]
        return n_passing

    def _passes(
        self,
        request: Request,
        hosts: HostBatch,
        consumption: Consumption,
        n_instances: Int64s,
    ) -> Mask:
        """Return which hosts the filters pass for the last of `n_instances`."""
        before_last = hosts.with_instances(n_instances - 1, consumption)
        passes = np.ones(len(hosts), np.bool_)
        rejected_by = rejections(self._parts.filters, before_last, request.spec_obj)
        for _, rejected in rejected_by:
            passes &= ~rejected
        return passes

    # -- claims one by one -------------------------------------------------------------

    def _claim_one_by_one(
        self,
        request: Request,
        queries: Sequence[CandidatesQuery],
        n_on_host: Int64s,
        is_inexact: Mask,
    ) -> bool:
        """Replace inexact counts in `n_on_host` by the number of claims that succeed.

        Return whether this was done for all hosts: `MAX_CLAIMS` limits the claims.
        """
        host_indices = np.flatnonzero(is_inexact & (n_on_host > 0)).tolist()
        if not host_indices:
            return True
        loop = ClaimLoop(self._parts, self._view, request, queries)
        for index in host_indices:
            n_claimed = loop.run(self.hosts.value("uuid", index), int(n_on_host[index]))
            if n_claimed is None:
                return False
            n_on_host[index] = n_claimed
        return True


def _are_devices_tracked(request: Request) -> bool:
    """Return whether Placement's candidates assign requested PCI devices."""
    suffixes = [group.suffix for group in request.groups]
    return any(
        pci_request.groups_among(suffixes) for pci_request in request.pci_requests
    )


def _limit_to_shared(
    claims: ClaimCounts, roots: Int64s, n_on_host: Int64s
) -> list[str]:
    """Reduce `n_on_host` to the capacity of sharing providers; return notes."""
    is_less = is_split = False
    for shared in claims.shared:
        indices = np.flatnonzero(np.isin(roots, shared.roots) & (n_on_host > 0))
        is_split |= shared.provider is None and len(indices) > 1
        n_before = np.cumsum(n_on_host[indices]) - n_on_host[indices]
        n_granted = np.clip(shared.n_claims - n_before, 0, n_on_host[indices])
        is_less |= bool((n_granted < n_on_host[indices]).any())
        n_on_host[indices] = n_granted
    return [_SHARED] * is_less + [_SPLIT] * is_split
