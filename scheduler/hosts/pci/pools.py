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
        # Computed once: it is long, and many pools are of the same kind.
        object.__setattr__(self, "_hash", hash(self.items))

    def __hash__(self) -> int:
        return self._hash

    @property
    def numa_node(self) -> int | None:
        """The NUMA node that the devices are at; None: they are at none, or unknown."""
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
        The resource provider that stands for the devices in Placement; None: none does.
    index : int
        Its index in the sorted report: a pool that was used up and is given back
        returns there.
    """

    kind: PoolKind
    count: int
    rp_uuid: str | None = None
    index: int = 0

    @property
    def n_keys(self) -> int:
        """How many keys nova's flat form has: pools with fewer come first."""
        return n_keys(self.kind, self.rp_uuid)

    @property
    def order(self) -> tuple[int, int]:
        """What pools of a host are sorted by."""
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
#: Texts in the cache: some kilobytes each; a poll reads most of them again.
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
    """Return one object for equal kinds: hosts of a cloud are much alike."""
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
        counts = {(p.kind, p.rp_uuid, p.index): p.count for p in left.pools}
        remaining = [(p, counts.get((p.kind, p.rp_uuid, p.index))) for p in self.pools]
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

    Of equal pools it is the one at their index. A newer report can have them at another
    index, which then is some other pool's.
    """
    here = next((i for i, pool in enumerate(pools) if pool.index == back.index), None)
    if here is None or _are_alike(pools[here], back):
        return here
    return next((i for i, pool in enumerate(pools) if _are_alike(pool, back)), None)


def _are_alike(one: Pool, other: Pool) -> bool:
    return one.kind == other.kind and one.rp_uuid == other.rp_uuid


def are_split(pools: Iterable[Pool]) -> bool:
    """Return whether some provider's devices are in several pools."""
    uuids = [pool.rp_uuid for pool in pools if pool.rp_uuid is not None]
    return len(set(uuids)) < len(uuids)
