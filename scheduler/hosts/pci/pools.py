# SPDX-License-Identifier: Apache-2.0
"""The free PCI devices of a host: pools of like devices, as its compute reports."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from .pool import Pool
from .wire import read_pools

#: What was taken of a host's pools: each with the count that was taken of it.
TakenPools = tuple[Pool, ...]


@dataclass(frozen=True, slots=True)
class HostPools:
    """The pools of one host, in the order in which they are consumed.

    That is nova's: the fewest properties first (``PciDeviceStats.__init__``), then as
    reported.
    """

    pools: tuple[Pool, ...] = ()

    @classmethod
    def read(cls, value: object) -> HostPools:
        """Read what a nova compute reports, in any form that nova ever used.

        Parameters
        ----------
        value : str, mapping, list of mapping, PciDevicePoolList or None
            JSON text of ``compute_nodes.pci_stats``; the primitive of a
            PciDevicePoolList, or the object; flat pools, or a single one, from before
            there were objects (nova's ``from_pci_stats``).

        Raises
        ------
        ValueError
            If the value has none of these forms.
        """
        pools = read_pools(value)
        return cls(pools) if pools else NO_POOLS

    @property
    def n_free(self) -> int:
        """How many devices are free."""
        return sum(pool.count for pool in self.pools)

    @property
    def free_by_node(self) -> Mapping[int | None, int]:
        """How many devices are free at each NUMA node that has a pool."""
        free: Counter[int | None] = Counter()
        for pool in self.pools:
            free[pool.kind.numa_node] += pool.count
        return free

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return nova's ``PciDeviceStats.pools``."""
        return [pool.to_dict() for pool in self.pools]

    def with_free(self, counts: Iterable[int], is_there: Iterable[bool]) -> HostPools:
        """Return the same pools with other counts, without those that are gone."""
        changed = zip(self.pools, counts, is_there, strict=True)
        return HostPools(
            tuple(
                pool if pool.count == count else replace(pool, count=count)
                for pool, count, is_kept in changed
                if is_kept
            )
        )

    def minus(self, left: HostPools) -> TakenPools:
        """Return what was taken where these pools were left, to be given to `plus`."""
        counts = {(p.kind, p.rp_uuid, p.place): p.count for p in left.pools}
        remaining = [(p, counts.get((p.kind, p.rp_uuid, p.place))) for p in self.pools]
        return tuple(
            replace(pool, count=pool.count - (count or 0))
            for pool, count in remaining
            if count != pool.count
        )

    def plus(self, taken: TakenPools) -> HostPools:
        """Return the pools after devices were given back."""
        pools = list(self.pools)
        for back in taken:
            at = _index_of(pools, back)
            if at is None:
                bisect.insort(pools, back, key=lambda pool: pool.order)
            else:
                pools[at] = replace(pools[at], count=pools[at].count + back.count)
        return HostPools(tuple(pools))

    def describe(self) -> str:
        """Return one line for users."""
        return "; ".join(pool.describe() for pool in self.pools) or "no PCI devices"


NO_POOLS: Final = HostPools()


def _index_of(pools: list[Pool], back: Pool) -> int | None:
    """Return the index of the pool that devices return to; None: it is not there.

    Of equal pools it is the one at their place. A newer report can have them at another
    place, which then is some other pool's.
    """
    here = next((i for i, pool in enumerate(pools) if pool.place == back.place), None)
    if here is None or _are_alike(pools[here], back):
        return here
    return next((i for i, pool in enumerate(pools) if _are_alike(pool, back)), None)


def _are_alike(one: Pool, other: Pool) -> bool:
    return one.kind == other.kind and one.rp_uuid == other.rp_uuid


def are_split(pools: Iterable[Pool]) -> bool:
    """Return whether some provider's devices are in several pools."""
    uuids = [pool.rp_uuid for pool in pools if pool.rp_uuid is not None]
    return len(set(uuids)) < len(uuids)
