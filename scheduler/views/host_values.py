# SPDX-License-Identifier: Apache-2.0
"""Convert values of interned columns to plain data and back, without any loss.

The fields of a topology or pool are written, so that reading them gives an equal value
also if claims have changed it. Pinned CPUs are the bits of an integer of any size, in
hexadecimal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, Final

from msgspec import Meta, convert

from ..hosts import HostPools, HostTopology, Launches
from ..hosts.columns import (
    LAUNCHES,
    NUMBERS,
    PLACES,
    POOLS,
    TEXTS,
    TOPOLOGY,
    TRIPLES,
    Column,
    ColumnType,
)
from ..hosts.numa.cells import CellHardware, HostCell, Pages
from ..hosts.pci.pools import Pool, PoolKind

Convert = Callable[[Any], Any]


def writer_of(column: Column) -> Convert:
    """Return the function that converts a column's value to plain data."""
    write, _ = _KINDS.get(column.kind, _OF_TEXTS)
    return write


def reader_of(column: Column) -> Convert:
    """Return the function that converts plain data to a column's value.

    The function raises ValueError for invalid data.
    """
    _, read = _KINDS.get(column.kind, _OF_TEXTS)
    return read


def _same(value: Any) -> Any:  # noqa: ANN401 - text or None
    return value


def _write_mapping(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if value is None else dict(value)


def _read_texts(value: object) -> Mapping[str, str]:
    return MappingProxyType(convert(value, dict[str, str]))


def _read_numbers(value: object) -> Mapping[str, float] | None:
    numbers = convert(value, dict[str, int | float] | None)
    return None if numbers is None else MappingProxyType(numbers)


# -- NUMA cells ----------------------------------------------------------------------


def _write_topology(topology: HostTopology | None) -> list[Any] | None:
    if topology is None:
        return None
    return [_write_cell(cell) for cell in topology.cells]


def _write_cell(cell: HostCell) -> list[Any]:
    hardware = cell.hardware
    hardware_fields = [
        hardware.id, hardware.cpus, hardware.pcpus, hardware.siblings,
        hardware.memory_mb, hardware.socket, sorted(hardware.physnets),
        hardware.is_tunneled,
    ]  # fmt: skip
    return [
        hardware_fields, cell.cpu_usage, cell.memory_usage, f"{cell.pinned:x}",
        cell.pages,
    ]  # fmt: skip


def _read_topology(value: object) -> HostTopology | None:
    cells = convert(value, list[_Cell] | None)
    return None if cells is None else HostTopology(tuple(map(_read_cell, cells)))


def _read_cell(cell: _Cell) -> HostCell:
    hardware, cpu_usage, memory_usage, pinned, pages = cell
    return HostCell(
        CellHardware(*hardware), cpu_usage, memory_usage, int(pinned, 16), pages
    )


#: A set of CPUs is the bits of an integer, so that a high number needs much memory.
_Cpu = Annotated[int, Meta(ge=0, lt=1 << 16)]
_Cpus = tuple[_Cpu, ...]
#: The lists that `_write_cell` returns.
_Hardware = tuple[
    int, _Cpus, _Cpus, tuple[_Cpus, ...], int, int | None, frozenset[str], bool
]
_Cell = tuple[_Hardware, int, int, str, tuple[Pages, ...]]


# -- PCI devices -----------------------------------------------------------------------


def _write_pools(pools: HostPools) -> list[Any]:
    return [
        [pool.kind.items, pool.count, pool.rp_uuid, pool.index] for pool in pools.pools
    ]


def _read_pools(value: object) -> HostPools:
    pools = convert(
        value, list[tuple[tuple[tuple[str, Any], ...], int, str | None, int]]
    )
    return HostPools(
        tuple(
            Pool(
                PoolKind(tuple((key, _hashable(text)) for key, text in items)),
                count, rp_uuid, index,
            )
            for items, count, rp_uuid, index in pools
        )
    )  # fmt: skip


def _hashable(value: Any) -> Any:  # noqa: ANN401 - untrusted
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    return convert(value, str | int | bool | None)


_OF_TEXTS: Final[tuple[Convert, Convert]] = (_same, partial(convert, type=str | None))
_KINDS: Final[Mapping[ColumnType, tuple[Convert, Convert]]] = {
    TEXTS: (_write_mapping, _read_texts),
    NUMBERS: (_write_mapping, _read_numbers),
    LAUNCHES: (_same, partial(convert, type=Launches | None)),
    TRIPLES: (_same, partial(convert, type=tuple[tuple[str, ...], ...])),
    PLACES: (_same, partial(convert, type=tuple[tuple[str, ...], ...])),
    TOPOLOGY: (_write_topology, _read_topology),
    POOLS: (_write_pools, _read_pools),
}
