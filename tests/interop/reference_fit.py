# SPDX-License-Identifier: Apache-2.0
"""Whether a candidate fits, by exhaustive search: slow, simple, without caches.

Written from a description of nova's rules, to decide who is right where nova and we
differ. It returns whether a candidate fits, not in which cells.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moorage.objects import (
    InstanceNUMACell,
    InstancePCIRequest,
    NUMACell,
    NUMATopology,
    RequestSpec,
)

from ..strategies.offers import Mappings, Report

_KIB = 1024
_PINNED = ("dedicated", "mixed")
_UNMATCHED = ("resource_class", "traits", "rp_uuids", "rp_uuid")

Pools = list[dict[str, Any]]


# -- cells ---------------------------------------------------------------------------


def numa_fits(report: Report, spec: RequestSpec, mappings: Mappings) -> bool:
    """Return whether any choice of host cells satisfies a request."""
    host, guest = report.numa_topology, spec.numa_topology
    if not _has_needed_threads(host, spec):
        return False
    if not guest:
        return True
    return host is not None and any(
        _suits(chosen, report, spec, mappings)
        for chosen in itertools.permutations(host.cells, len(guest.cells))
    )


def _has_needed_threads(host: NUMATopology | None, spec: RequestSpec) -> bool:
    extra_specs, image = spec.flavor.extra_specs, spec.image.properties
    policies = extra_specs.get("hw:cpu_policy"), image.get("hw_cpu_policy")
    threads = extra_specs.get("hw:cpu_thread_policy"), image.get("hw_cpu_thread_policy")
    if not host or "dedicated" not in policies or "require" not in threads:
        return True
    return any(len(core) > 1 for cell in host.cells for core in cell.siblings)


def _suits(
    chosen: Sequence[NUMACell], report: Report, spec: RequestSpec, mappings: Mappings
) -> bool:
    guest = spec.numa_topology
    is_isolated = guest.emulator_threads_policy == "isolate"
    return (
        all(
            _cell_fits(host_cell, cell, report, int(is_isolated and not index))
            for index, (host_cell, cell) in enumerate(
                zip(chosen, guest.cells, strict=True)
            )
        )
        and _networks_are_near(chosen, report, spec)
        and devices_fit(report, spec, mappings, chosen)
    )


def _cell_fits(
    host: NUMACell, guest: InstanceNUMACell, report: Report, n_reserved: int
) -> bool:
    is_pinned, is_floating = (
        guest.cpu_policy in _PINNED,
        guest.cpu_policy != "dedicated",
    )
    return (
        _memory_fits(host, guest)
        and (not is_pinned or _can_be_pinned(host, guest, n_reserved))
        and (not is_floating or _is_within_limits(host, guest, report))
    )


def _memory_fits(host: NUMACell, guest: InstanceNUMACell) -> bool:
    by_size = {pages.size_kb: pages for pages in host.mempages}
    sizes, wanted_kb = sorted(by_size), guest.memory * _KIB
    if guest.pagesize:
        named = {-1: sizes[:1], -2: sizes[1:], -3: sizes}
        allowed = named.get(guest.pagesize, [guest.pagesize])
        return any(
            wanted_kb <= by_size[size].free_kb and wanted_kb % size == 0
            for size in allowed
            if size in by_size
        )
    is_pinned = guest.cpu_policy in _PINNED
    if not sizes:
        there_is = host.memory - host.memory_usage if is_pinned else host.memory
        return bool(there_is >= guest.memory)
    least = by_size[sizes[0]]
    there_is_kb = least.free_kb if is_pinned else least.total_kb
    return bool(there_is_kb >= wanted_kb and wanted_kb % sizes[0] == 0)


def _is_within_limits(host: NUMACell, guest: InstanceNUMACell, report: Report) -> bool:
    n_cpus, n_host_cpus = len(guest.cpuset), len(host.cpuset)
    ram_limit = host.memory * report.ram_allocation_ratio
    return (
        n_cpus <= n_host_cpus
        and host.cpu_usage + n_cpus <= n_host_cpus * report.cpu_allocation_ratio
        and host.memory_usage + guest.memory <= ram_limit
    )


def _can_be_pinned(host: NUMACell, guest: InstanceNUMACell, n_reserved: int) -> bool:
    free = host.pcpuset - host.pinned_cpus
    n_cpus = len(guest.pcpuset)
    if n_cpus + n_reserved > len(free) or (n_reserved and not n_cpus):
        return False
    cores = host.siblings or [{cpu} for cpu in host.pcpuset]
    n_threads = max(map(len, cores), default=1)
    n_free = [len(core & free) for core in cores]
    if guest.cpu_thread_policy == "isolate":
        is_old_style = host.pcpuset == host.cpuset
        return (n_threads == 1 or is_old_style) and _can_be_isolated(
            n_free, n_threads, n_cpus, n_reserved
        )
    if guest.cpu_thread_policy == "require":
        return sum(n_free) >= n_cpus + n_reserved and any(
            t * sum(n >= t for n in n_free) >= n_cpus
            for t in range(2, max(n_free, default=0) + 1)
        )
    return sum(n_free) >= n_cpus + n_reserved


def _can_be_isolated(
    n_free: Sequence[int], n_threads: int, n_cpus: int, n_reserved: int
) -> bool:
    """Return whether there is a free core a CPU, and a thread of yet another core."""
    n_whole = sum(n == n_threads for n in n_free)
    n_open = sum(n > 0 for n in n_free)
    return 0 < n_cpus <= n_whole and n_open >= n_cpus + n_reserved


# -- networks ------------------------------------------------------------------------


def _networks_are_near(
    chosen: Sequence[NUMACell], report: Report, spec: RequestSpec
) -> bool:
    """Return whether each requested network is named by a chosen cell or by none."""
    requested = spec.network_metadata if "network_metadata" in spec else None
    if requested is None:
        return True
    wanted = set(requested.physnets) | ({True} if requested.tunneled else set())
    assert report.numa_topology is not None  # it has the cells that are chosen
    by_cell = {cell.id: _networks_of(cell) for cell in report.numa_topology.cells}
    near = set().union(*(by_cell[cell.id] for cell in chosen))
    return not wanted & (set().union(*by_cell.values()) - near)


def _networks_of(cell: NUMACell) -> set[str | bool]:
    if "network_metadata" not in cell:
        return set()
    metadata = cell.network_metadata
    return set(metadata.physnets) | ({True} if metadata.tunneled else set())


# -- devices -------------------------------------------------------------------------


def devices_fit(
    report: Report,
    spec: RequestSpec,
    mappings: Mappings,
    chosen: Sequence[NUMACell] | None = None,
) -> bool:
    """Return whether all requests for devices are met, one after the other."""
    flat = (pool.to_dict() for pool in report.pci_pools)
    pools = sorted(map(dict, flat), key=len)
    requests = spec.pci_requests.requests if spec.pci_requests else []
    return all(_consume(pools, each, mappings, report, chosen) for each in requests)


def _consume(
    pools: Pools,
    request: InstancePCIRequest,
    mappings: Mappings,
    report: Report,
    chosen: Sequence[NUMACell] | None,
) -> bool:
    providers = _providers_of(request, mappings)
    usable = [pool for pool in pools if _matches(pool, request)]
    if _count(usable) >= request.count and chosen is not None:
        usable = _near(usable, request, report, chosen)
    if _count(usable) < request.count:
        return False
    usable = [pool for pool in usable if _may_be_used(pool, request)]
    if providers:
        usable = [
            p for p in usable if p["count"] >= providers.get(p.get("rp_uuid"), 99)
        ]
    if _count(usable) < request.count:
        return False
    if not providers:
        gave = _consume_any(usable, request.count)
    elif _are_spread(pools):
        return False
    else:
        gave = usable
        for pool in usable:
            pool["count"] -= providers[pool["rp_uuid"]]
    gone = [id(pool) for pool in gave if not pool["count"]]
    pools[:] = [pool for pool in pools if id(pool) not in gone]
    return True


def _consume_any(usable: Pools, count: int) -> Pools:
    """Take devices of the first pools that have some, and return these pools."""
    gave = []
    for pool in usable:
        n = min(count, pool["count"])
        pool["count"] -= n
        gave.append(pool)
        count -= n
        if not count:
            break
    return gave


def _are_spread(pools: Pools) -> bool:
    """Return whether a provider has devices in several pools, empty ones included."""
    n_pools = Counter(pool["rp_uuid"] for pool in pools if "rp_uuid" in pool)
    return max(n_pools.values()) > 1


def _count(pools: Pools) -> int:
    return sum(pool["count"] for pool in pools)


def _providers_of(
    request: InstancePCIRequest, mappings: Mappings
) -> Mapping[str | None, int]:
    """Return how many devices of each provider; empty: of whichever."""
    if request.alias_name is None:
        return {}
    if not mappings:
        providers = request.spec[0].get("rp_uuids")
        return Counter(providers.split(",") if providers else [])
    groups = (group for group in mappings if group.startswith(request.request_id))
    return Counter(mappings[group][0] for group in groups)


def _matches(pool: Mapping[str, Any], request: InstancePCIRequest) -> bool:
    return any(
        all(
            _lower(pool.get(key)) == _lower(value)
            for key, value in spec.items()
            if key not in _UNMATCHED
        )
        for spec in request.spec
    )


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _may_be_used(pool: Mapping[str, Any], request: InstancePCIRequest) -> bool:
    """Return whether a request for a special device asks for that kind of device."""
    types = {spec.get("dev_type") for spec in request.spec}
    migratable = {spec.get("live_migratable") for spec in request.spec}
    return (
        (pool.get("dev_type") not in ("type-PF", "vdpa") or pool["dev_type"] in types)
        and (
            not _is_true(pool.get("remote_managed"))
            or any(_is_true(spec.get("remote_managed")) for spec in request.spec)
        )
        and (
            migratable not in ({"true"}, {"false"})
            or {pool.get("live_migratable")} == migratable
        )
    )


def _is_true(tag: str | None) -> bool:
    return tag is not None and tag.lower() in ("1", "t", "true", "on", "y", "yes")


def _near(
    pools: Pools,
    request: InstancePCIRequest,
    report: Report,
    chosen: Iterable[NUMACell],
) -> Pools:
    """Return pools that a policy allows; those nearer alone where they suffice."""
    cells: set[int | None] = {cell.id for cell in chosen}
    near = [pool for pool in pools if pool["numa_node"] in cells]
    policy = request.numa_policy or "legacy"
    if policy == "required" or _count(near) >= request.count:
        return near
    if policy == "socket":
        assert report.numa_topology is not None  # as in `_near_networks`
        return _in_sockets(pools, report.numa_topology, cells)
    or_unknown = [pool for pool in pools if pool["numa_node"] in cells | {None}]
    if policy == "legacy" or _count(or_unknown) >= request.count:
        return or_unknown
    return sorted(pools, key=lambda pool: pool["numa_node"] not in cells | {None})


def _in_sockets(pools: Pools, host: NUMATopology, cells: set[int | None]) -> Pools:
    if any(cell.socket is None for cell in host.cells):
        return []
    sockets = {cell.socket for cell in host.cells if cell.id in cells}
    nodes = {cell.id for cell in host.cells if cell.socket in sockets}
    return [pool for pool in pools if pool["numa_node"] in nodes]
