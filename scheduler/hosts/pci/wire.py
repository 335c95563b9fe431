# SPDX-License-Identifier: Apache-2.0
"""PCI device pools as computes report them: read and checked."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, SupportsInt

import msgspec

from ....objects import PciDevicePoolList
from ...decoding import loads
from ...request.pci import hashable
from .pool import Pool, PoolKind, n_keys

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
    fields.sort(key=lambda each: n_keys(each[0], each[2]))
    return tuple(Pool(*each, place=i) for i, each in enumerate(fields))


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
