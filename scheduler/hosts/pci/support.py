# SPDX-License-Identifier: Apache-2.0
"""Has a host the PCI devices that a guest asks for, and what is left of them?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .pools import HostPools, Pool, Taken, are_split
from .requests import LEGACY, REQUIRED, SOCKET, PciRequest


@dataclass(frozen=True, slots=True)
class Affinity:
    """Where on a host a guest with a NUMA topology is.

    Attributes
    ----------
    cells : frozenset of int
        Ids of the host cells that were chosen for it.
    socket_cells : frozenset of int
        Ids of all host cells in the same sockets; none where some cell of the host does
        not tell its socket.
    """

    cells: frozenset[int]
    socket_cells: frozenset[int] = frozenset()


def take(
    pools: HostPools,
    requests: Sequence[PciRequest],
    providers: Sequence[tuple[str, ...]],
    affinity: Affinity | None = None,
) -> HostPools | None:
    """Return what all requests leave of a host's pools; None: not all can be met.

    nova's ``PciDeviceStats.apply_requests``.

    Parameters
    ----------
    providers : sequence of tuple of str, length n_requests
        The resource providers of each request's devices, one a device; none: any pool
        will do. See `providers_of`.
    affinity : Affinity or None
        None: the guest has no NUMA topology.
    """
    left = pools.pools
    for request, uuids in zip(requests, providers, strict=True):
        remaining = _left(left, request, Counter(uuids), affinity)
        if remaining is None:
            return None
        left = remaining
    return HostPools(left)


def taken(before: HostPools, after: HostPools) -> Taken:
    """Return what `after` lacks of `before`, to be given back by `HostPools.plus`."""
    counts = {(p.kind, p.rp_uuid, p.place): p.count for p in after.pools}
    remaining = [(p, counts.get((p.kind, p.rp_uuid, p.place))) for p in before.pools]
    return tuple(
        replace(pool, count=pool.count - (count or 0))
        for pool, count in remaining
        if count != pool.count
    )


def _left(
    pools: tuple[Pool, ...],
    request: PciRequest,
    shares: Mapping[str, int],
    affinity: Affinity | None,
) -> tuple[Pool, ...] | None:
    """Return what one request leaves (nova's ``_apply_request``)."""
    usable = _usable(pools, request, shares, affinity)
    if not usable or _count(pools, usable) < request.count:
        return None
    if not shares:
        return _without(pools, _from_first(pools, usable, request.count))
    if are_split(pools):
        return None
    # nova asks no more: a provider whose pool is not usable gives nothing, and so
    # fewer devices than were asked for may be taken.
    return _without(pools, {i: shares[pools[i].rp_uuid or ""] for i in usable})


def _usable(
    pools: tuple[Pool, ...],
    request: PciRequest,
    shares: Mapping[str, int],
    affinity: Affinity | None,
) -> list[int]:
    """Return the indices of the pools that may be used, in the order of their use.

    nova's ``_filter_pools``: how near is near enough is decided by all that match,
    before PFs and the like are left out.
    """
    found = [i for i, pool in enumerate(pools) if request.matches(pool.kind)]
    if affinity is not None and affinity.cells:
        found = _near_enough(pools, found, request, affinity)
    return [
        i
        for i in found
        if request.is_usable(pools[i].kind)
        and (not shares or _has_share(pools[i], shares))
    ]


def _near_enough(
    pools: tuple[Pool, ...], found: list[int], request: PciRequest, affinity: Affinity
) -> list[int]:
    """Return the pools that the policy allows (``_filter_pools_for_numa_cells``).

    A stricter policy's suffice where they hold enough.
    """
    policy = request.numa_policy
    near = [i for i in found if pools[i].kind.numa_node in affinity.cells]
    if policy == REQUIRED or _count(pools, near) >= request.count:
        return near
    if policy == SOCKET:
        cells = affinity.socket_cells
        return [i for i in found if pools[i].kind.numa_node in cells]
    unbound = affinity.cells | {None}
    legacy = [i for i in found if pools[i].kind.numa_node in unbound]
    if policy == LEGACY or _count(pools, legacy) >= request.count:
        return legacy
    return sorted(found, key=lambda i: pools[i].kind.numa_node not in unbound)


def _has_share(pool: Pool, shares: Mapping[str, int]) -> bool:
    share = shares.get(pool.rp_uuid, 0) if pool.rp_uuid is not None else 0
    return 0 < share <= pool.count


def _count(pools: tuple[Pool, ...], indices: list[int]) -> int:
    return sum(pools[i].count for i in indices)


def _from_first(
    pools: tuple[Pool, ...], indices: list[int], count: int
) -> dict[int, int]:
    """Return how many devices each pool gives, by index, the first all that it has."""
    given = {}
    for i in indices:
        given[i] = min(count, pools[i].count)
        count -= given[i]
        if not count:
            break
    return given


def _without(pools: tuple[Pool, ...], given: Mapping[int, int]) -> tuple[Pool, ...]:
    """Return the pools that are left; one that gave, and has no more, is gone."""
    left = []
    for i, pool in enumerate(pools):
        if i not in given:
            left.append(pool)
        elif pool.count > given[i]:
            left.append(replace(pool, count=pool.count - given[i]))
    return tuple(left)
