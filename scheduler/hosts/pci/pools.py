# SPDX-License-Identifier: Apache-2.0
"""A host's free PCI devices: pools of like devices, as its compute reports them."""

from __future__ import annotations

import bisect
import functools
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, SupportsInt

import msgspec

from ....objects import PciDevicePoolList
from ...decoding import loads
from ...request.pci import Items, hashable


@dataclass(frozen=True, slots=True)
class PoolKind:
    """All that the devices of a pool have in common, except their resource provider.

    Attributes
    ----------
    items : tuple of (str, value)
        nova's flat form of a pool without ``count`` and ``rp_uuid``, by ascending key.
    """

    items: Items
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # The hash is computed once: it takes long, and many pools share their kind.
        object.__setattr__(self, "_hash", hash(self.items))

    def __hash__(self) -> int:
        return self._hash

    @property
    def numa_node(self) -> int | None:
        """The NUMA node of the devices; None: they have none, or it is unknown."""
        node = dict(self.items).get("numa_node")
        return node if isinstance(node, int) else None

    def describe(self) -> str:
        """Return the properties that are set, for users."""
        return ", ".join(f"{k} {v}" for k, v in self.items if v is not None)


@dataclass(frozen=True, slots=True)
class Pool:
    """Some free devices of one kind.

    Attributes
    ----------
    rp_uuid : str or None
        The resource provider of the devices; None: Placement does not track them.
    index : int
        The pool's index in the sorted report: a pool that was used up returns to it
        when its devices are given back.
    """

    kind: PoolKind
    count: int
    rp_uuid: str | None = None
    index: int = 0

    @property
    def n_keys(self) -> int:
        """How many keys nova's flat form has: pools with fewer keys come first."""
        return n_keys(self.kind, self.rp_uuid)

    @property
    def order(self) -> tuple[int, int]:
        """The sort key of the pools of a host."""
        return self.n_keys, self.index

    def to_dict(self) -> dict[str, Any]:
        """Return nova's flat form."""
        provider = {} if self.rp_uuid is None else {"rp_uuid": self.rp_uuid}
        kind = {k: list(v) if isinstance(v, tuple) else v for k, v in self.kind.items}
        return {**kind, "count": self.count, **provider}

    def describe(self) -> str:
        """Return count, kind and provider, for users."""
        provider = f", provider {self.rp_uuid}" if self.rp_uuid else ""
        return f"{self.count} of {self.kind.describe()}{provider}"


def n_keys(kind: PoolKind, rp_uuid: str | None) -> int:
    """Return how many keys nova's flat form of a pool has."""
    return len(kind.items) + (1 if rp_uuid is None else 2)


_FIELDS: Final = ("product_id", "vendor_id", "numa_node", "count")
_MAX_COUNT: Final = 2**31 - 1
#: The most texts in the cache: a text has some kilobytes; a poll reads most of them
#: again.
_MAX_TEXTS: Final = 1024

_encode: Final = msgspec.json.encode

#: A pool as it is read: kind, count and resource provider.
_Fields = tuple[PoolKind, int, str | None]


def read_pools(value: object) -> tuple[Pool, ...]:
    """Return the pools of a report, sorted; see `HostPools.read`."""
    return _read_text(value) if isinstance(value, str) else _read(value)


@functools.lru_cache(_MAX_TEXTS)
def _read_text(text: str) -> tuple[Pool, ...]:
    try:
        return _read(loads(text) if text else None)
    except json.JSONDecodeError as e:
        raise ValueError(f"The PCI pools are not JSON: {e}") from e


def _read(value: object) -> tuple[Pool, ...]:
    fields = [_fields(i, flat) for i, flat in enumerate(_flat_pools(value))]
    fields.sort(key=lambda values: n_keys(values[0], values[2]))
    return tuple(Pool(*values, index=i) for i, values in enumerate(fields))


def _flat_pools(value: object) -> Iterable[dict[str, Any]]:
    if isinstance(value, PciDevicePoolList):
        return [pool.to_dict() for pool in value.objects]
    if not value:
        return ()
    if isinstance(value, Mapping):
        return _of_object(value) if "nova_object.data" in value else [_of_old(value)]
    if isinstance(value, list):
        return [_of_old(pool) for pool in value]
    raise ValueError(f"The PCI pools are {type(value).__name__}, not pools")


def _of_object(primitive: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the flat pools of the primitive of a PciDevicePoolList."""
    try:
        pools = primitive["nova_object.data"]["objects"]
        return [_flattened(pool["nova_object.data"]) for pool in pools]
    except (KeyError, TypeError, AttributeError, ValueError) as e:
        raise ValueError(f"The PCI pools are not a PciDevicePoolList: {e!r}") from e


def _flattened(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return nova's ``PciDevicePool.to_dict``: an unset field has no key."""
    flat = {key: data[key] for key in _FIELDS if key in data}
    flat.update(data.get("tags") or {})
    return flat


def _of_old(pool: object) -> dict[str, Any]:
    """Return a flat pool in the form of before nova had objects."""
    if not isinstance(pool, Mapping):
        raise ValueError(f"A PCI pool is {type(pool).__name__}, not a mapping")
    return {"numa_node": None, **pool}


def _fields(index: int, flat: dict[str, Any]) -> _Fields:
    try:
        count = _integer(flat.pop("count"), 0)
        provider = flat.pop("rp_uuid", None)
        return _kind(_encode(flat)), count, _text(provider)
    except KeyError as e:
        raise ValueError(f"PCI pool {index} has no {e}") from e
    except (TypeError, ValueError, OverflowError) as e:
        raise ValueError(f"PCI pool {index}: {e}") from e


@functools.lru_cache(2**14)
def _kind(encoded: bytes) -> PoolKind:
    """Return one shared object for equal kinds, which many hosts have."""
    flat = loads(encoded)
    if flat.get("numa_node") is not None:
        # Linux reports -1 for a device without a node.
        flat["numa_node"] = _integer(flat["numa_node"], -1)
    return PoolKind(
        tuple(
            (key, value if key == "numa_node" else hashable(value))
            for key, value in sorted(flat.items())
        )
    )


def _integer(value: SupportsInt | str, least: int) -> int:
    number = int(value)
    if not least <= number <= _MAX_COUNT:
        raise ValueError(f"{number} is not between {least} and {_MAX_COUNT}")
    return number


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"{value!r} is not a text")


#: The pools of a host that devices were taken from, with the counts that were taken.
TakenPools = tuple[Pool, ...]


@dataclass(frozen=True, slots=True)
class HostPools:
    """The pools of one host, in the order in which they are consumed.

    The order is nova's: the fewest properties first (``PciDeviceStats.__init__``), then
    as reported.
    """

    pools: tuple[Pool, ...] = ()

    @classmethod
    def read(cls, value: object) -> HostPools:
        """Read what a nova compute reports, in any form that nova ever used.

        Parameters
        ----------
        value : str, mapping, list of mapping, PciDevicePoolList or None
            JSON text of ``compute_nodes.pci_stats``; the primitive of a
            PciDevicePoolList, or the object; flat pools, or a single one, of before
            nova had objects (nova's ``from_pci_stats``).

        Raises
        ------
        ValueError
            The value has none of these forms.
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
        """Return the same pools with other counts, without those that are not there."""
        changed = zip(self.pools, counts, is_there, strict=True)
        return HostPools(
            tuple(
                pool if pool.count == count else replace(pool, count=count)
                for pool, count, is_kept in changed
                if is_kept
            )
        )

    def minus(self, remaining: HostPools) -> TakenPools:
        """Return what was taken of these pools if `remaining` are free; see `plus`."""
        counts = {
            (pool.kind, pool.rp_uuid, pool.index): pool.count
            for pool in remaining.pools
        }
        before_and_after = [
            (pool, counts.get((pool.kind, pool.rp_uuid, pool.index)))
            for pool in self.pools
        ]
        return tuple(
            replace(pool, count=pool.count - (count or 0))
            for pool, count in before_and_after
            if count != pool.count
        )

    def plus(self, taken: TakenPools) -> HostPools:
        """Return the pools after devices were given back."""
        pools = list(self.pools)
        for taken_pool in taken:
            index = _index_of(pools, taken_pool)
            if index is None:
                bisect.insort(pools, taken_pool, key=lambda pool: pool.order)
            else:
                pools[index] = replace(
                    pools[index], count=pools[index].count + taken_pool.count
                )
        return HostPools(tuple(pools))

    def describe(self) -> str:
        """Return one line for users."""
        return "; ".join(pool.describe() for pool in self.pools) or "no PCI devices"


NO_POOLS: Final = HostPools()


def _index_of(pools: list[Pool], returned: Pool) -> int | None:
    """Return the position of the pool that devices return to; None: it is not there.

    Of equal pools, devices return to the one with the index of their own pool. A newer
    report can have their pool at another index, and a different pool at theirs.
    """
    position = next(
        (i for i, pool in enumerate(pools) if pool.index == returned.index), None
    )
    if position is None or _are_alike(pools[position], returned):
        return position
    return next((i for i, pool in enumerate(pools) if _are_alike(pool, returned)), None)


def _are_alike(one: Pool, other: Pool) -> bool:
    return one.kind == other.kind and one.rp_uuid == other.rp_uuid


def are_split(pools: Iterable[Pool]) -> bool:
    """Return whether some provider's devices are in several pools."""
    uuids = [pool.rp_uuid for pool in pools if pool.rp_uuid is not None]
    return len(set(uuids)) < len(uuids)
