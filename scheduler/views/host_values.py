# SPDX-License-Identifier: Apache-2.0
"""Convert values of interned columns to plain data and back, without any loss.

The fields of a topology or pool are written, so that reading them gives an equal value
also if claims have changed it. Pinned CPUs are the bits of an integer of any size, in
hexadecimal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from ..hosts import HostPools, HostTopology
from ..hosts.columns import (
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

    The function raises TypeError, ValueError or LookupError for invalid data.
    """
    _, read = _KINDS.get(column.kind, _OF_TEXTS)
    return read


def _same(value: Any) -> Any:  # noqa: ANN401 - text or None
    return value


def _text(value: Any) -> str | None:  # noqa: ANN401 - untrusted
    if value is None or type(value) is str:
        return value
    raise TypeError(f"a {type(value).__name__} where a text is needed")


def _write_mapping(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if value is None else dict(value)


def _read_texts(value: Any) -> Mapping[str, str]:  # noqa: ANN401 - untrusted
    return MappingProxyType({str(key): str(text) for key, text in value.items()})


def _read_numbers(value: Any) -> Mapping[str, float] | None:  # noqa: ANN401 - as above
    if value is None:
        return None
    if not all(type(number) in (int, float) for number in value.values()):
        raise TypeError("a metric is no number")
    return MappingProxyType({str(key): v for key, v in value.items()})


def _read_tuples(value: Any) -> tuple[tuple[str, ...], ...]:  # noqa: ANN401 - as above
    return tuple(tuple(map(str, pair)) for pair in value)


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


def _read_topology(value: Any) -> HostTopology | None:  # noqa: ANN401 - untrusted
    return None if value is None else HostTopology(tuple(map(_read_cell, value)))


def _read_cell(value: Sequence[Any]) -> HostCell:
    hardware, cpu_usage, memory_usage, pinned, pages = value
    id_, cpus, pcpus, siblings, memory_mb, socket, physnets, is_tunneled = hardware
    return HostCell(
        CellHardware(
            int(id_),
            _cpus(cpus),
            _cpus(pcpus),
            tuple(map(_cpus, siblings)),
            int(memory_mb),
            None if socket is None else int(socket),
            frozenset(map(str, physnets)),
            bool(is_tunneled),
        ),
        int(cpu_usage),
        int(memory_usage),
        int(pinned, 16),
        tuple(Pages(*map(int, page)) for page in pages),
    )


def _cpus(value: Sequence[Any]) -> tuple[int, ...]:
    cpus = tuple(map(int, value))
    if not all(0 <= cpu < _MAX_CPUS for cpu in cpus):
        raise ValueError("a CPU's number is out of range")
    return cpus


#: The lowest CPU number that is refused. A set of CPUs is the bits of an integer, so
#: that a high number needs much memory.
_MAX_CPUS: Final = 1 << 16


# -- PCI devices -----------------------------------------------------------------------


def _write_pools(pools: HostPools) -> list[Any]:
    return [
        [pool.kind.items, pool.count, pool.rp_uuid, pool.index] for pool in pools.pools
    ]


def _read_pools(value: Any) -> HostPools:  # noqa: ANN401 - untrusted
    return HostPools(tuple(map(_read_pool, value)))


def _read_pool(value: Sequence[Any]) -> Pool:
    items, count, rp_uuid, index = value
    pairs = tuple((str(key), _hashable(text)) for key, text in items)
    return Pool(PoolKind(pairs), int(count), _text(rp_uuid), int(index))


def _hashable(value: Any) -> Any:  # noqa: ANN401 - untrusted
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    if value is None or isinstance(value, str | int):
        return value
    raise TypeError(f"a {type(value).__name__} in a PCI device pool")


_OF_TEXTS: Final[tuple[Convert, Convert]] = (_same, _text)
_KINDS: Final[Mapping[ColumnType, tuple[Convert, Convert]]] = {
    TEXTS: (_write_mapping, _read_texts),
    NUMBERS: (_write_mapping, _read_numbers),
    TRIPLES: (_same, _read_tuples),
    PLACES: (_same, _read_tuples),
    TOPOLOGY: (_write_topology, _read_topology),
    POOLS: (_write_pools, _read_pools),
}
