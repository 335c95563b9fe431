# SPDX-License-Identifier: Apache-2.0
"""What PCI devices a host has free: pools of like devices, as its compute reports."""

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
from ...decoding import Primitive, loads

#: What a property of a pool or of a request's spec can be; a list is a tuple of these.
Value = str | int | None | tuple["Value", ...]
#: A mapping that can be hashed: (key, value) pairs by ascending key.
Items = tuple[tuple[str, Value], ...]

_FIELDS: Final = ("product_id", "vendor_id", "numa_node", "count")
_MAX_COUNT: Final = 2**31 - 1
#: Texts that are remembered: some kilobytes each, read again at each look.
_MAX_TEXTS: Final = 1024


@dataclass(frozen=True, slots=True)
class PoolKind:
    """All that the devices of a pool have in common, but their resource provider.

    Attributes
    ----------
    items : tuple of (str, value)
        nova's flat form of a pool without ``count`` and ``rp_uuid``, by ascending key.
    """

    items: Items
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Once: it is long, and many pools are of the same kind.
        object.__setattr__(self, "_hash", hash(self.items))

    def __hash__(self) -> int:
        return self._hash

    @property
    def numa_node(self) -> int | None:
        """The NUMA node that the devices are at; None: they are at none, or unknown."""
        node = dict(self.items).get("numa_node")
        return node if isinstance(node, int) else None

    def describe(self) -> str:
        """Return the properties that are set, for people."""
        return ", ".join(f"{k} {v}" for k, v in self.items if v is not None)


@dataclass(frozen=True, slots=True)
class Pool:
    """Some free devices of one kind.

    Attributes
    ----------
    rp_uuid : str or None
        The resource provider that stands for the devices in Placement; None: none does.
    place : int
        Where the report had the pool, once sorted: a pool that was used up and is given
        back returns there.
    """

    kind: PoolKind
    count: int
    rp_uuid: str | None = None
    place: int = 0

    @property
    def n_keys(self) -> int:
        """How many keys nova's flat form has: pools with fewer come first."""
        return _n_keys((self.kind, self.count, self.rp_uuid))

    @property
    def order(self) -> tuple[int, int]:
        """What pools of a host are sorted by."""
        return self.n_keys, self.place

    def to_dict(self) -> dict[str, Any]:
        """Return nova's flat form."""
        provider = {} if self.rp_uuid is None else {"rp_uuid": self.rp_uuid}
        kind = {k: list(v) if isinstance(v, tuple) else v for k, v in self.kind.items}
        return {**kind, "count": self.count, **provider}

    def describe(self) -> str:
        """Return count, kind and provider, for people."""
        provider = f", provider {self.rp_uuid}" if self.rp_uuid else ""
        return f"{self.count} of {self.kind.describe()}{provider}"


#: A pool as it is read: kind, count and resource provider.
_Told = tuple[PoolKind, int, str | None]
#: What was taken of a host's pools: each with the count that was taken of it.
Taken = tuple[Pool, ...]


@dataclass(frozen=True, slots=True)
class HostPools:
    """The pools of one host, in the order in which they are consumed.

    That is nova's: the fewest properties first (``PciDeviceStats.__init__``), then as
    reported.
    """

    pools: tuple[Pool, ...] = ()

    @classmethod
    def read(cls, value: object) -> HostPools:
        """Read what a nova compute reports, in any of the forms it ever had.

        Parameters
        ----------
        value : str, mapping, list of mapping, PciDevicePoolList or None
            JSON text of ``compute_nodes.pci_stats``; the primitive of a
            PciDevicePoolList, or the object; flat pools, or a single one, from before
            there were objects (nova's ``from_pci_stats``).

        Raises
        ------
        ValueError
            The value has none of these forms.
        """
        return _read_text(value) if isinstance(value, str) else _read(value)

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

    def plus(self, taken: Taken) -> HostPools:
        """Return the pools with what `support.taken` told given back."""
        pools = list(self.pools)
        for back in taken:
            at = _index_of(pools, back)
            if at is None:
                bisect.insort(pools, back, key=lambda pool: pool.order)
            else:
                pools[at] = replace(pools[at], count=pools[at].count + back.count)
        return HostPools(tuple(pools))

    def describe(self) -> str:
        """Return one line for people."""
        return "; ".join(pool.describe() for pool in self.pools) or "no PCI devices"


NO_POOLS: Final = HostPools()


def _index_of(pools: list[Pool], back: Pool) -> int | None:
    """Return the pool that devices go back to; None: it was used up, or is unknown.

    Of pools that are alike it is the one at their place; a newer report can have it at
    another, which then is some other pool's.
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


# -- reading -------------------------------------------------------------------------


class _WrittenPool(msgspec.Struct, gc=False):
    """A pool as it is written today."""

    vendor_id: str | None
    product_id: str | None
    numa_node: int | None
    count: int
    tags: dict[str, str] | None


class _WrittenPools(msgspec.Struct, gc=False):
    objects: list[Primitive[_WrittenPool]]


_decoded = msgspec.json.Decoder(Primitive[_WrittenPools]).decode


@functools.lru_cache(_MAX_TEXTS)
def _read_text(text: str) -> HostPools:
    try:
        told = _decoded(text).data.objects
    except msgspec.MsgspecError:  # not as it is written today
        return _read_any_text(text)
    pools = [each.data for each in told]
    if any("count" in (pool.tags or ()) for pool in pools):
        return _read_any_text(text)
    return _sorted(_told_as_written(i, pool) for i, pool in enumerate(pools))


def _told_as_written(index: int, pool: _WrittenPool) -> _Told:
    tags = pool.tags or {}
    provider = tags.pop("rp_uuid", None)
    try:
        kind = _kind_as_written(
            pool.product_id, pool.vendor_id, pool.numa_node, *tags.items()
        )
        return kind, _integer(pool.count, 0), provider
    except ValueError as e:
        raise ValueError(f"PCI pool {index}: {e}") from e


@functools.lru_cache(2**14)
def _kind_as_written(
    product_id: str | None,
    vendor_id: str | None,
    numa_node: int | None,
    *tags: tuple[str, str],
) -> PoolKind:
    flat = {"product_id": product_id, "vendor_id": vendor_id, "numa_node": numa_node}
    return _kind_of({**flat, **dict(tags)})


def _read_any_text(text: str) -> HostPools:
    try:
        return _read(loads(text) if text else None)
    except json.JSONDecodeError as e:
        raise ValueError(f"The PCI pools are no JSON: {e}") from e


def _read(value: object) -> HostPools:
    return _sorted(_told(i, flat) for i, flat in enumerate(_flat_pools(value)))


def _sorted(told: Iterable[_Told]) -> HostPools:
    found = sorted(told, key=_n_keys)
    pools = tuple(Pool(*each, place=i) for i, each in enumerate(found))
    return HostPools(pools) if pools else NO_POOLS


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
        raise ValueError(f"The PCI pools are no PciDevicePoolList: {e!r}") from e


def _flattened(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return nova's ``PciDevicePool.to_dict``: an unset field has no key."""
    flat = {key: data[key] for key in _FIELDS if key in data}
    flat.update(data.get("tags") or {})
    return flat


def _of_old(pool: object) -> dict[str, Any]:
    if not isinstance(pool, Mapping):
        raise ValueError(f"A PCI pool is {type(pool).__name__}, not a mapping")
    return {"numa_node": None, **pool}


def _n_keys(told: _Told) -> int:
    kind, _, provider = told
    return len(kind.items) + (1 if provider is None else 2)


def _told(index: int, flat: dict[str, Any]) -> _Told:
    try:
        count = _integer(flat.pop("count"), 0)
        provider = flat.pop("rp_uuid", None)
        return _kind_of(flat), count, _text(provider)
    except KeyError as e:
        raise ValueError(f"PCI pool {index} has no {e}") from e
    except (TypeError, ValueError, OverflowError) as e:
        raise ValueError(f"PCI pool {index}: {e}") from e


def _kind_of(flat: dict[str, Any]) -> PoolKind:
    if flat.get("numa_node") is not None:
        # -1 is how Linux says that a device is at no node.
        flat["numa_node"] = _integer(flat["numa_node"], -1)
    return _kind(_items(flat))


def _integer(value: SupportsInt | str, least: int) -> int:
    number = int(value)
    if not least <= number <= _MAX_COUNT:
        raise ValueError(f"{number} is not between {least} and {_MAX_COUNT}")
    return number


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"{value!r} is no text")


def _items(flat: Mapping[str, Any]) -> Items:
    return tuple(
        [
            # Nearly all are texts, and a call costs more than to see that.
            (k, v if type(v) is str or k == "numa_node" else hashable(v))
            for k, v in sorted(flat.items())
        ]
    )


def hashable(value: object) -> Value:
    """Return a property as versioned objects have it: a text or None, lists as tuples.

    Raises
    ------
    TypeError
        It is neither a text, a number, None, nor a list of these.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return tuple(hashable(each) for each in value)
    if isinstance(value, int | float):
        return str(value)
    raise TypeError(f"{value!r} is no property of PCI devices")


@functools.lru_cache(2**14)
def _kind(items: Items) -> PoolKind:
    """Return one kind for equal ones: hosts of a cloud have much the same."""
    return PoolKind(items)
