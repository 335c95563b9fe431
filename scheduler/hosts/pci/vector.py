# SPDX-License-Identifier: Apache-2.0
"""Which of many hosts have the PCI devices that a guest asks for?

The rules are those of `support.take`, whose answer for one host is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from ..interning import Codes
from .arrays import (
    NO_KIND,
    NO_NODE,
    NO_PROVIDER,
    UNKNOWN_PROVIDER,
    Mask,
    PoolRows,
    take_rows,
)
from .requests import LEGACY, REQUIRED, SOCKET, PciRequest

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NearPools:
    """Which pools are near to the host cells that were chosen for a guest.

    Attributes
    ----------
    is_near : ndarray of bool, shape (m, n_pools)
        The pool's NUMA node is one of the cells.
    is_same_socket : ndarray of bool, shape (m, n_pools)
        It is a cell in the socket of one of them; nowhere on a host of which some cell
        does not tell its socket.
    """

    is_near: Mask
    is_same_socket: Mask

    def take(self, indices: npt.NDArray[np.intp]) -> Self:
        """Return some of the rows."""
        return type(self)(
            take_rows(self.is_near, indices), take_rows(self.is_same_socket, indices)
        )


def supported(
    rows: PoolRows,
    requests: Sequence[PciRequest],
    providers: Sequence[Codes | None],
    near: NearPools | None = None,
) -> Mask:
    """Return which hosts can meet all requests together.

    Parameters
    ----------
    providers : sequence of (ndarray of int32, shape (m, n), or None)
        For each request, codes of its devices' resource providers, one a device; where
        a host has fewer, NO_PROVIDER fills up, and where it has none, any pool will do.
        None: no host has one.
    near : NearPools or None
        None: the guest has no NUMA topology.

    Returns
    -------
    ndarray of bool, shape (m,)
    """
    if len(requests) == 1:
        return _together(rows, requests, providers, near)
    # Most hosts without the devices are told by one request alone.
    passing = supported_alone(rows, requests)
    left = np.flatnonzero(passing)
    passing[left] = _together(
        rows.take(left),
        requests,
        [None if codes is None else codes[left] for codes in providers],
        None if near is None else near.take(left),
    )
    return passing


def supported_alone(rows: PoolRows, requests: Sequence[PciRequest]) -> Mask:
    """Return which hosts can meet each request by itself, wherever the devices are.

    Those that cannot, cannot meet them together or near to a guest either.

    Returns
    -------
    ndarray of bool, shape (m,)
    """
    passing = np.ones(len(rows), bool)
    for request in requests:
        _, usable = rows.judge(request)
        passing &= _has_enough(rows.count, usable, request)
    return passing


def _together(
    rows: PoolRows,
    requests: Sequence[PciRequest],
    providers: Sequence[Codes | None],
    near: NearPools | None,
) -> Mask:
    """Return which hosts meet all requests, each taking from what the last one left."""
    left = _Left(rows.count, rows.kind != NO_KIND)
    passing = np.ones(len(rows), bool)
    for i, (request, codes) in enumerate(zip(requests, providers, strict=True)):
        shares = None if codes is None else _Shares.of(rows, codes)
        order = _usable(rows, left, request, shares, near)
        passing &= _has_enough(left.count, order.usable, request)
        if shares is not None:
            passing &= ~(shares.decide & left.has_split(rows))
        if i + 1 < len(requests):
            left = left.without(request.count, order, shares)
    return passing


@dataclass(frozen=True, slots=True)
class _Order:
    """Which pools a request may use, and which of these come last.

    Both of shape (m, n_pools); `last` None: the order is that of the pools.
    """

    usable: Mask
    last: Mask | None

    def before(self, own: Counts) -> Counts:
        """Return how many devices the pools before each one have, shape (m, n_pools).

        Parameters
        ----------
        own : ndarray of int64, shape (m, n_pools)
            What each pool has, 0 where it is not usable.
        """
        if self.last is None:
            return _sums_before(own)
        first = own * ~self.last
        after_all = first.sum(axis=1)[:, None] + _sums_before(own - first)
        return np.where(self.last, after_all, _sums_before(first))


def _usable(
    rows: PoolRows,
    left: _Left,
    request: PciRequest,
    shares: _Shares | None,
    near: NearPools | None,
) -> _Order:
    matching, usable = rows.judge(request)
    last = None
    if near is not None:
        allowed, last = _near_enough(rows, left, request, matching, near)
        usable = usable & allowed
    if shares is not None:
        usable = usable & shares.are_held_by(left.count)
    return _Order(usable & left.is_there, last)


def _near_enough(
    rows: PoolRows, left: _Left, request: PciRequest, matching: Mask, near: NearPools
) -> tuple[Mask, Mask | None]:
    """Return the pools that the policy allows, and those of them that come last.

    A stricter policy's suffice on the hosts where they hold enough.
    """
    policy = request.numa_policy
    if policy == REQUIRED:
        return near.is_near, None
    matching_count = left.count * matching
    is_strict = _sums(matching_count, near.is_near) >= request.count
    if policy == SOCKET:
        return np.where(is_strict[:, None], near.is_near, near.is_same_socket), None
    unbound = near.is_near | (rows.numa_node == NO_NODE)
    allowed = np.where(is_strict[:, None], near.is_near, unbound)
    if policy == LEGACY:
        return allowed, None
    is_far_off = _sums(matching_count, unbound) < request.count
    return allowed | is_far_off[:, None], ~unbound


@dataclass(frozen=True, slots=True)
class _Shares:
    """What Placement assigned to a request, by pool.

    Attributes
    ----------
    count : ndarray of int64, shape (m, n_pools)
        How many devices are assigned from the pool's provider.
    decide : ndarray of bool, shape (m,)
        Whether the host has any: where it has none, any pool will do.
    """

    count: Counts
    decide: Mask

    @classmethod
    def of(cls, rows: PoolRows, codes: Codes) -> Self:
        count = np.zeros(rows.provider.shape, np.int64, order="F")
        # Pools without a provider are no provider's.
        for wanted in np.where(codes == NO_PROVIDER, UNKNOWN_PROVIDER, codes).T:
            count += rows.provider == wanted[:, None]
        return cls(count, (codes != NO_PROVIDER).any(axis=1))

    def are_held_by(self, count: Counts) -> Mask:
        """Return which pools hold their provider's share, if shares decide."""
        is_share = (self.count > 0) & (self.count <= count)
        held: Mask = is_share | ~self.decide[:, None]
        return held


@dataclass(frozen=True, slots=True)
class _Left:
    """What earlier requests left: free devices, and the pools that are still there.

    Both of shape (m, n_pools). A pool that gave, and has no more, is gone.
    """

    count: Counts
    is_there: Mask

    def has_split(self, rows: PoolRows) -> Mask:
        """Return whether some provider is that of several pools, shape (m,)."""
        has_split = rows.has_split.copy()
        at = np.flatnonzero(has_split)
        codes = take_rows(rows.provider, at)
        is_one = take_rows(self.is_there, at) & (codes != NO_PROVIDER)
        # Where there is none, any codes do that differ.
        codes = np.where(is_one, codes, UNKNOWN_PROVIDER - np.arange(codes.shape[1]))
        codes.sort(axis=1)
        has_split[at] = (codes[:, 1:] == codes[:, :-1]).any(axis=1)
        return has_split

    def without(self, count: int, order: _Order, shares: _Shares | None) -> Self:
        """Return what is left after a request for so many devices."""
        own = self.count * order.usable
        before = order.before(own)
        given = np.clip(count - before, 0, own)
        # nova looks at one pool even where no device is asked for.
        is_asked = before < count if count else order.before(order.usable + 0) == 0
        gave = order.usable & is_asked
        if shares is not None:
            by_share = shares.decide[:, None]
            given = np.where(by_share, shares.count * order.usable, given)
            gave = np.where(by_share, order.usable, gave)
        remaining = self.count - given
        return type(self)(remaining, self.is_there & ~(gave & (remaining == 0)))


def _has_enough(count: Counts, usable: Mask, request: PciRequest) -> Mask:
    enough: Mask = _sums(count, usable) >= request.count
    return enough if request.count > 0 else enough & usable.any(axis=1)


def _sums(count: Counts, where: Mask) -> Counts:
    """Return the sum of each row's counts where a mask holds, shape (m,)."""
    sums: Counts = (count * where).sum(axis=1)
    return sums


def _sums_before(count: Counts) -> Counts:
    """Return, for each pool, the sum of the row's earlier counts."""
    sums: Counts = count.T.cumsum(axis=0).T
    return sums - count
