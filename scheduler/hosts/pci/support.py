# SPDX-License-Identifier: Apache-2.0
"""Which hosts have the PCI devices that a guest requests, and which devices remain?

The rules are those of nova's ``PciDeviceStats``, for many hosts at once; a single host
is an array of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from ...request.pci import LEGACY, REQUIRED, SOCKET, PciRequest
from ..interning import Codes
from ..numa import ChosenCells
from .arrays import (
    NO_KIND,
    NO_NODE,
    NO_PROVIDER,
    UNKNOWN_PROVIDER,
    Mask,
    PoolArrays,
    PoolRows,
    take_rows,
)
from .pools import HostPools

Counts = npt.NDArray[np.int64]
#: The providers of a request's devices, one a device, shape (m, n); NO_PROVIDER pads.
#: For a host without providers, or if None replaces the array, any pool may give the
#: devices.
Providers = Codes | None


def supported(
    rows: PoolRows,
    requests: Sequence[PciRequest],
    providers: Sequence[Providers],
    cells: ChosenCells | None = None,
) -> Mask:
    """Return which hosts can meet all requests together.

    Parameters
    ----------
    providers : sequence of Providers, length n_requests
    cells : ChosenCells or None
        None: the guest has no NUMA topology.

    Returns
    -------
    ndarray of bool, shape (m,)
    """
    if len(requests) == 1:
        return apply_requests(rows, requests, providers, cells, n_taking=0)[0]
    # Most hosts without the devices fail one request alone.
    passing = supported_alone(rows, requests)
    remaining = np.flatnonzero(passing)
    passing[remaining], _ = apply_requests(
        rows.take(remaining),
        requests,
        [None if codes is None else codes[remaining] for codes in providers],
        None if cells is None else cells.take(remaining),
        n_taking=len(requests) - 1,
    )
    return passing


def supported_alone(rows: PoolRows, requests: Sequence[PciRequest]) -> Mask:
    """Return which hosts can meet each request by itself, wherever the devices are.

    Other hosts cannot meet the requests together, or near to a guest, either.

    Returns
    -------
    ndarray of bool, shape (m,)
    """
    passing = np.ones(len(rows), bool)
    for request in requests:
        _, usable = rows.match(request)
        passing &= _has_enough(rows.count, usable, request)
    return passing


@dataclass(frozen=True, slots=True)
class FreeDevices:
    """The free devices of each pool, and the pools that are still there.

    `count` and `is_there` have the shape (m, n_pools). A pool that gave its last device
    is removed.
    """

    count: Counts
    is_there: Mask

    def has_split(self, rows: PoolRows) -> Mask:
        """Return on which hosts several pools have the same provider, shape (m,)."""
        has_split = rows.has_split.copy()
        split_rows = np.flatnonzero(has_split)
        codes = take_rows(rows.provider, split_rows)
        has_provider = take_rows(self.is_there, split_rows) & (codes != NO_PROVIDER)
        # Pools without a provider get distinct codes, so that no two of them are equal.
        codes = np.where(
            has_provider, codes, UNKNOWN_PROVIDER - np.arange(codes.shape[1])
        )
        codes.sort(axis=1)
        has_split[split_rows] = (codes[:, 1:] == codes[:, :-1]).any(axis=1)
        return has_split

    def without(self, count: int, order: _Order, shares: _Shares | None) -> Self:
        """Return the free devices after a request for `count` devices was met."""
        usable_count = self.count * order.usable
        count_before = order.before(usable_count)
        n_given = np.clip(count - count_before, 0, usable_count)
        # nova visits one pool even if no device is requested.
        is_visited = (
            count_before < count if count else order.before(order.usable + 0) == 0
        )
        has_given = order.usable & is_visited
        if shares is not None:
            # As in nova, a provider whose pool is not usable gives nothing, and no
            # other pool replaces it: fewer devices than requested may be taken.
            by_share = shares.decide[:, None]
            n_given = np.where(by_share, shares.count * order.usable, n_given)
            has_given = np.where(by_share, order.usable, has_given)
        remaining = self.count - n_given
        return type(self)(remaining, self.is_there & ~(has_given & (remaining == 0)))


def single_pools(
    pools: HostPools, providers: Sequence[Sequence[str]]
) -> tuple[PoolRows, list[Providers]]:
    """Return one host's pools as an array of one, with the codes of providers."""
    arrays = PoolArrays(len(pools.pools), 1)
    arrays.extend([pools])
    codes = [
        arrays.provider_codes(uuids)[None, :] if uuids else None for uuids in providers
    ]
    return arrays.rows(), codes


def apply_requests(
    rows: PoolRows,
    requests: Sequence[PciRequest],
    providers: Sequence[Providers],
    cells: ChosenCells | None = None,
    *,
    n_taking: int | None = None,
) -> tuple[Mask, FreeDevices]:
    """Return which hosts meet all requests, and the devices that then remain free.

    The rule is nova's ``PciDeviceStats.apply_requests``. The free devices of a host
    that does not meet all requests are undefined. The other parameters are those of
    `supported`.

    Parameters
    ----------
    n_taking : int, optional
        How many of the requests take their devices, the first ones; all by default.
    """
    free = FreeDevices(rows.count, rows.kind != NO_KIND)
    passing = np.ones(len(rows), bool)
    for i, (request, codes) in enumerate(zip(requests, providers, strict=True)):
        shares = None if codes is None else _Shares.of(rows, codes)
        order = _usable(rows, free, request, shares, cells)
        passing &= _has_enough(free.count, order.usable, request)
        if shares is not None:
            passing &= ~(shares.decide & free.has_split(rows))
        if n_taking is None or i < n_taking:
            free = free.without(request.count, order, shares)
    return passing, free


@dataclass(frozen=True, slots=True)
class _Order:
    """Which pools a request may use, and which of these come last.

    `usable` and `last` have the shape (m, n_pools); `last` None: the order is that of
    the pools.
    """

    usable: Mask
    last: Mask | None

    def before(self, own: Counts) -> Counts:
        """Return how many devices the pools before each one have, shape (m, n_pools).

        Parameters
        ----------
        own : ndarray of int64, shape (m, n_pools)
            The devices of each pool, 0 for a pool that is not usable.
        """
        if self.last is None:
            return _sums_before(own)
        count_of_first = own * ~self.last
        before_last = count_of_first.sum(axis=1)[:, None] + _sums_before(
            own - count_of_first
        )
        return np.where(self.last, before_last, _sums_before(count_of_first))


def _usable(
    rows: PoolRows,
    free: FreeDevices,
    request: PciRequest,
    shares: _Shares | None,
    cells: ChosenCells | None,
) -> _Order:
    """Return the pools that a request may use (nova's ``_filter_pools``).

    All pools that match count for the NUMA policy, also those that are not usable, such
    as the PFs of a request for VFs.
    """
    matching, usable = rows.match(request)
    last = None
    if cells is not None:
        allowed, last = _pools_by_numa_policy(rows, free, request, matching, cells)
        usable = usable & allowed
    if shares is not None:
        usable = usable & shares.are_held_by(free.count)
    return _Order(usable & free.is_there, last)


def _pools_by_numa_policy(
    rows: PoolRows,
    free: FreeDevices,
    request: PciRequest,
    matching: Mask,
    cells: ChosenCells,
) -> tuple[Mask, Mask | None]:
    """Return the pools that the policy allows, and those of them that come last.

    The rule is nova's ``_filter_pools_for_numa_cells``: on hosts where the pools of a
    stricter policy have enough devices, only these are allowed.
    """
    policy = request.numa_policy
    near = _are_at(rows, cells.ids)
    if policy == REQUIRED:
        return near, None
    matching_count = free.count * matching
    is_strict = _sums(matching_count, near) >= request.count
    if policy == SOCKET:
        in_sockets = _are_at(rows, cells.socket_ids)
        return np.where(is_strict[:, None], near, in_sockets), None
    unbound = near | (rows.numa_node == NO_NODE)
    allowed = np.where(is_strict[:, None], near, unbound)
    if policy == LEGACY:
        return allowed, None
    is_too_few = _sums(matching_count, unbound) < request.count
    return allowed | is_too_few[:, None], ~unbound


def _are_at(rows: PoolRows, ids: Counts) -> Mask:
    """Return which pools are at one of their host's cells, shape (m, n_pools)."""
    is_near = np.zeros(rows.numa_node.shape, bool, order="F")
    for cell in ids.T:
        is_near |= rows.numa_node == cell[:, None]
    return is_near


@dataclass(frozen=True, slots=True)
class _Shares:
    """What Placement assigned to a request, by pool.

    Attributes
    ----------
    count : ndarray of int64, shape (m, n_pools)
        How many devices are assigned from the pool's provider.
    decide : ndarray of bool, shape (m,)
        Whether devices of the host are assigned: otherwise any pool may be used.
    """

    count: Counts
    decide: Mask

    @classmethod
    def of(cls, rows: PoolRows, codes: Codes) -> Self:
        count = np.zeros(rows.provider.shape, np.int64, order="F")
        # Padding must not match pools without a provider: these have NO_PROVIDER, too.
        for provider_code in np.where(codes == NO_PROVIDER, UNKNOWN_PROVIDER, codes).T:
            count += rows.provider == provider_code[:, None]
        return cls(count, (codes != NO_PROVIDER).any(axis=1))

    def are_held_by(self, count: Counts) -> Mask:
        """Return which pools have the devices assigned to them, where shares decide."""
        has_share = (self.count > 0) & (self.count <= count)
        are_held: Mask = has_share | ~self.decide[:, None]
        return are_held


def _has_enough(count: Counts, usable: Mask, request: PciRequest) -> Mask:
    """Return which hosts have the requested count in usable pools, shape (m,)."""
    has_enough: Mask = _sums(count, usable) >= request.count
    return has_enough if request.count > 0 else has_enough & usable.any(axis=1)


def _sums(count: Counts, where: Mask) -> Counts:
    """Return the sum of each row's counts where a mask holds, shape (m,)."""
    sums: Counts = (count * where).sum(axis=1)
    return sums


def _sums_before(count: Counts) -> Counts:
    """Return, for each pool, the sum of the row's earlier counts."""
    sums: Counts = count.T.cumsum(axis=0).T
    return sums - count
