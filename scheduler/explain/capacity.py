# SPDX-License-Identifier: Apache-2.0
"""Count how many more instances of flavors fit now, as claims in a loop would find.

    providers ─▶ claims by host ─┐
    cells, devices ─▶ guests ────┼─▶ the least, at which filters still pass ─▶ by zone
    filters ─────────────────────┘

Hosts on which the choice of a candidate matters, such as those with several devices
that Placement tracks, are claimed one instance at a time, on a copy.
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
_NO_PROVIDERS: Final = (
    "The capacity is computed from Placement's providers in memory, which this process "
    "does not have: set [placement_database] connection"
)


class NoProviders(SchedulerError):
    """Raised where there is no copy of Placement's providers, or it is too old."""


@dataclasses.dataclass(frozen=True, slots=True)
class ZoneCapacity:
    """How many more instances of a flavor fit in one zone of one cell."""

    zone: str
    cell_uuid: str
    n_instances: int
    n_hosts: int


@dataclasses.dataclass(frozen=True, slots=True)
class FlavorCapacity:
    """How many more instances of one flavor fit.

    Attributes
    ----------
    disk_gb : int
        Root and ephemeral disk.
    n_instances : int
        What fits if no instance of another flavor comes.
    n_hosts : int
        Compute nodes with room for one instance at least.
    is_exact : bool
        Whether claims in a loop would get exactly as many; otherwise `notes` say why
        not.
    places : tuple of ZoneCapacity
        Those with room, the most first.
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
    parts: Parts, view: ProviderView | None, flavors: Sequence[FlavorRequest]
) -> CapacityReport:
    """Return how many more instances of each flavor fit now.

    A filter that rejects a host with some instances is taken to reject it with more.

    Raises
    ------
    NoProviders
        `view` is None.
    SchedulerError
        A request is invalid, or a component failed.
    """
    if view is None:
        raise NoProviders(_NO_PROVIDERS)
    counter = _Counter(parts, view)
    return CapacityReport(
        len(counter.hosts),
        counter.zones,
        tuple(counter.count(flavor) for flavor in flavors),
    )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Counted:
    """The instances that fit each host; n_each : shape (n_hosts,)."""

    n_each: Int64s
    notes: tuple[str, ...] = ()


class _Counter:
    """Counts instances on the hosts as they are when the counter is created."""

    def __init__(self, parts: Parts, view: ProviderView) -> None:
        self._parts = parts
        self._view = view
        self.hosts = parts.table.batch()
        trees = view.state.trees
        rows = [trees.find(uuid) for uuid in self.hosts.uuid.tolist()]
        #: The row of each host's root provider; for a host without one, the row after
        #: the last, which has no inventory.
        self._roots = np.where(np.array(rows, np.int64) < 0, trees.n_rows, rows)
        self._zones, self._zone_of = self._find_zones()
        self._claims = functools.cache(ClaimCounter(view).count)

    def _find_zones(self) -> tuple[list[tuple[str, str]], npt.NDArray[np.intp]]:
        """Return all pairs of zone and cell, and the index of each host's pair."""
        zones = zones_of(self.hosts, self._parts.conf.default_availability_zone)
        pairs = list(zip(zones.tolist(), self.hosts.cell_uuid.tolist(), strict=True))
        index: dict[tuple[str, str], int] = {}
        zone_of = [index.setdefault(pair, len(index)) for pair in pairs]
        return list(index), np.array(zone_of, np.intp)

    @property
    def zones(self) -> tuple[str, ...]:
        return tuple(sorted({zone for zone, _ in self._zones}))

    def count(self, flavor: FlavorRequest) -> FlavorCapacity:
        counted = self._counted(copy.copy(flavor.spec_obj))
        notes = tuple(dict.fromkeys((*flavor.notes, *counted.notes)))
        n_each, sizes = counted.n_each, flavor.spec_obj.flavor
        n_zones = len(self._zones)
        of_zones = np.bincount(self._zone_of, n_each, n_zones).astype(np.int64)
        n_hosts_of = np.bincount(self._zone_of, n_each > 0, n_zones).astype(np.int64)
        capacities = [
            ZoneCapacity(zone, cell, int(of_zones[i]), int(n_hosts_of[i]))
            for i in np.argsort(-of_zones, kind="stable").tolist()
            for zone, cell in [self._zones[i]]
            if of_zones[i]
        ]
        return FlavorCapacity(
            flavor=sizes.name if "name" in sizes else "",
            vcpus=sizes.vcpus,
            memory_mb=sizes.memory_mb,
            disk_gb=sizes.root_gb + sizes.ephemeral_gb,
            n_instances=int(n_each.sum()),
            n_hosts=int(np.count_nonzero(n_each)),
            is_exact=not (set(notes) - {_SHARED, VOLUME_BACKED}),
            places=tuple(capacities),
            notes=notes,
        )

    def _counted(self, spec_obj: RequestSpec) -> _Counted:
        nothing = np.zeros(len(self.hosts), np.int64)
        try:
            request = Request.validated(spec_obj)
            queries = tuple(self._queries(request))
            claims = self._claims(queries)
        except (NoValidHost, InvalidRequest) as e:
            return _Counted(nothing, (str(e),))
        except QueryNotCovered as e:
            return _Counted(nothing, (f"Placement would refuse the query: {e}",))
        n_each = np.append(claims.n_claims, [0])[self._roots]
        is_exact = np.append(claims.is_exact, [True])[self._roots]
        at = np.flatnonzero(n_each)
        hosts = self.hosts.take(at)
        plain = consumption_of(request, self._parts.conf)
        plain = consumption_on_host(plain, {}, {})
        if _are_tracked(request):
            is_exact[at] = False
        elif plain.need is not None:
            n_each[at], exact = self._guests(plain.need, hosts, n_each[at])
            is_exact[at] &= exact
        n_each[at] = self._passing(request, hosts, n_each[at], plain)
        followed = self._follow(request, queries, n_each, ~is_exact)
        notes = [] if followed else [_MAY_BE_LESS]
        return _Counted(n_each, (*notes, *_share(claims, self._roots, n_each)))

    # -- Placement ---------------------------------------------------------------------

    def _queries(self, request: Request) -> list[CandidatesQuery]:
        record = DecisionRecord(None, (), 1, self._parts.clock())
        caller = Caller.of({})
        requirements = run_prefilters(self._parts, caller, request, record)
        return build_queries(self._parts, request, requirements)

    # -- NUMA cells and PCI devices ----------------------------------------------------

    def _guests(
        self, need: Need, hosts: HostBatch, limits: Int64s
    ) -> tuple[Int64s, Mask]:
        """Return how many guests fit each host, and where that is exact."""
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

    def _passing(
        self, request: Request, hosts: HostBatch, limits: Int64s, plain: Consumption
    ) -> Int64s:
        """Return on how many instances the filters pass each host, `limits` at most."""
        n_each = limits.copy()
        at = np.flatnonzero(limits)
        # A copy would gather all columns again.
        with_room = hosts if len(at) == len(hosts) else hosts.take(at)
        at = at[~self._passes(request, with_room, plain, limits[at])]
        if len(at):
            # Most hosts that fail with all instances fail with one, too.
            n_each[at] = 0
            at = at[self._passes(request, hosts.take(at), plain, np.ones_like(at))]
            n_each[at] = self._bisected(request, hosts.take(at), plain, limits[at])
        return n_each

    def _bisected(
        self, request: Request, hosts: HostBatch, plain: Consumption, limits: Int64s
    ) -> Int64s:
        """Return the most instances that pass: 1 passes, and `limits` do not."""
        passing, failing = np.ones_like(limits), limits.copy()
        while (open_ := np.flatnonzero(failing - passing > 1)).size:
            middle = (passing[open_] + failing[open_]) // 2
            passes = self._passes(request, hosts.take(open_), plain, middle)
            passing[open_[passes]] = middle[passes]
            failing[open_[~passes]] = middle[~passes]
        return passing

    def _passes(
        self, request: Request, hosts: HostBatch, plain: Consumption, number: Int64s
    ) -> Mask:
        """Return which hosts the filters pass for the last of `number` instances."""
        later = hosts.with_instances(number - 1, plain)
        passes = np.ones(len(hosts), np.bool_)
        rejected_by = rejections(self._parts.filters, later, request.spec_obj)
        for _, rejected in rejected_by:
            passes &= ~rejected
        return passes

    # -- one by one --------------------------------------------------------------------

    def _follow(
        self,
        request: Request,
        queries: Sequence[CandidatesQuery],
        n_each: Int64s,
        is_open: Mask,
    ) -> bool:
        """Claim where choices matter; return whether all these hosts were tried."""
        at = np.flatnonzero(is_open & (n_each > 0)).tolist()
        if not at:
            return True
        loop = ClaimLoop(self._parts, self._view, request, queries)
        for index in at:
            n_claimed = loop.run(self.hosts.value("uuid", index), int(n_each[index]))
            if n_claimed is None:
                return False
            n_each[index] = n_claimed
        return True


def _are_tracked(request: Request) -> bool:
    """Return whether Placement's candidates assign requested PCI devices."""
    suffixes = [group.suffix for group in request.groups]
    return any(
        pci_request.groups_among(suffixes) for pci_request in request.pci_requests
    )


def _share(claims: ClaimCounts, roots: Int64s, n_each: Int64s) -> list[str]:
    """Limit the instances to the capacity of sharing providers; return notes."""
    is_less = is_split = False
    for shared in claims.shared:
        at = np.flatnonzero(np.isin(roots, shared.roots) & (n_each > 0))
        is_split |= shared.provider is None and len(at) > 1
        before = np.cumsum(n_each[at]) - n_each[at]
        n_granted = np.clip(shared.n_claims - before, 0, n_each[at])
        is_less |= bool((n_granted < n_each[at]).any())
        n_each[at] = n_granted
    return [_SHARED] * is_less + [_SPLIT] * is_split
