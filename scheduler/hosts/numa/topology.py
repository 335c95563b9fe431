# SPDX-License-Identifier: Apache-2.0
"""All NUMA cells of a host: read from its compute's report, checked, and written."""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, SupportsInt

import msgspec

from ....objects import NetworkMetadata, NUMACell, NUMAPagesTopology, NUMATopology
from ....objects.base import WireObject
from ....objects.image_names import parse_cpus
from ...decoding import loads
from .cells import CellHardware, Cpus, HostCell, Pages, cpus_of, mask_of
from .guest import FittedGuest

#: A choice of cells is a 64-bit word, a bit for each cell.
_MAX_CELLS: Final = 64
#: Each page size is a column for all hosts; no architecture has as many.
_MAX_PAGE_SIZES: Final = 16
#: CPUs are bits of an integer; Linux knows 8192 CPUs at most.
_MAX_CPU: Final = 2**16 - 1
#: The product of two amounts has to fit an int64.
_MAX_AMOUNT: Final = 2**31 - 1
#: The most texts in the cache: a text has some kilobytes, and many hosts report it.
_MAX_TEXTS: Final = 1024

_encode: Final = msgspec.json.encode


def read_cells(value: object) -> tuple[HostCell, ...]:
    """Return the cells of a report; see `HostTopology.read`."""
    return _read_text(value) if isinstance(value, str) else _read(value)


@functools.lru_cache(_MAX_TEXTS)
def _read_text(text: str) -> tuple[HostCell, ...]:
    try:
        return _read(loads(text))
    except json.JSONDecodeError as e:
        raise ValueError(f"The NUMA topology is not JSON: {e}") from e


def _read(value: object) -> tuple[HostCell, ...]:
    if isinstance(value, NUMATopology):
        value = value.obj_to_primitive()
    if not isinstance(value, Mapping):
        raise ValueError(f"The NUMA topology is {type(value).__name__}, not cells")
    return _checked(map(_cell, _fields_of_cells(value)))


def _fields_of_cells(value: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    data = value.get("nova_object.data")
    if data is None:
        yield from map(_fields_of_old_cell, value["cells"])
    else:
        yield from (cell["nova_object.data"] for cell in data["cells"])


def _fields_of_old_cell(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a cell that was reported before nova had objects.

    The same as nova's ``from_legacy_object``.
    """
    memory = cell.get("mem") or {}
    return {
        "id": cell["id"],
        "cpuset": sorted(parse_cpus(cell.get("cpus") or "")),
        "memory": memory.get("total", 0),
        "cpu_usage": cell.get("cpu_usage"),
        "memory_usage": memory.get("used"),
    }


def _checked(cells_read: Iterator[HostCell]) -> tuple[HostCell, ...]:
    try:
        cells = tuple(cells_read)
        if len(cells) > _MAX_CELLS:
            raise ValueError(f"{len(cells)} cells, more than {_MAX_CELLS}")
        _refuse_duplicates("cells of id", (cell.id for cell in cells))
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as e:
        raise ValueError(f"The NUMA topology is not a NUMATopology: {e!r}") from e
    return cells


def _refuse_duplicates(what: str, numbers: Iterable[int]) -> None:
    all_numbers = list(numbers)
    if len(set(all_numbers)) < len(all_numbers):
        number, count = Counter(all_numbers).most_common(1)[0]
        raise ValueError(f"{count} {what} {number}")


def _cell(data: Mapping[str, Any]) -> HostCell:
    return HostCell(
        hardware=_hardware(
            data["id"],
            data["memory"],
            data.get("socket"),
            _encode([data["cpuset"], *map(data.get, _LONG_FIELDS)]),
        ),
        cpu_usage=_amount(data.get("cpu_usage") or 0),
        memory_usage=_amount(data.get("memory_usage") or 0),
        pinned=mask_of(_cpus(data.get("pinned_cpus") or ())),
        pages=_distinct(
            _pages(entry["nova_object.data"]) for entry in data.get("mempages") or ()
        ),
    )


#: Fields of a cell that are long and never change: their JSON is a key of a cache.
_LONG_FIELDS: Final = ("pcpuset", "siblings", "network_metadata")


@functools.lru_cache(4096)
def _hardware(
    cell_id: SupportsInt | str,
    memory_mb: SupportsInt | str,
    socket: SupportsInt | str | None,
    encoded: bytes,
) -> CellHardware:
    """Return one shared object for equal hardware, which many hosts have."""
    cpuset, pcpuset, siblings, metadata = loads(encoded)
    networks = (metadata or {}).get("nova_object.data", {})
    return CellHardware(
        _amount(cell_id),
        _cpus(cpuset),
        _cpus(pcpuset or ()),
        _siblings(siblings or ()),
        _amount(memory_mb),
        _socket(socket),
        frozenset(networks.get("physnets") or ()),
        bool(networks.get("tunneled")),
    )


def _distinct(entries: Iterable[Pages]) -> tuple[Pages, ...]:
    pages = tuple(entries)
    if len(pages) > _MAX_PAGE_SIZES:
        raise ValueError(f"{len(pages)} sizes of pages, more than {_MAX_PAGE_SIZES}")
    _refuse_duplicates("entries for pages of KiB", (entry.size_kb for entry in pages))
    return pages


def _pages(data: Mapping[str, Any]) -> Pages:
    used, reserved = data.get("used") or 0, data.get("reserved") or 0
    return _counted(data["size_kb"], data["total"], used, reserved)


@functools.lru_cache(4096)
def _counted(size_kb: SupportsInt | str, *counts: SupportsInt | str) -> Pages:
    """Return one shared object for equal pages, which many hosts have."""
    return Pages(_between(1, size_kb, _MAX_AMOUNT), *map(_amount, counts))


def _cpus(values: Iterable[Any]) -> Cpus:
    cpus = tuple(map(int, values))
    _check_cpus(cpus)
    return cpus


def _siblings(values: Iterable[Iterable[Any]]) -> tuple[Cpus, ...]:
    cores = tuple([tuple(map(int, threads)) for threads in values])
    _check_cpus(tuple(itertools.chain.from_iterable(cores)))
    return cores


def _check_cpus(cpus: Cpus) -> None:
    if cpus:
        _between(0, min(cpus), _MAX_CPU)
        _between(0, max(cpus), _MAX_CPU)


def _socket(value: SupportsInt | str | None) -> int | None:
    # Linux reports -1 for an unknown socket, which nova treats as a socket.
    return None if value is None else _between(-1, value, _MAX_AMOUNT)


def _amount(value: SupportsInt | str) -> int:
    return _between(0, value, _MAX_AMOUNT)


def _between(least: int, value: SupportsInt | str, most: int) -> int:
    number = int(value)
    if not least <= number <= most:
        raise ValueError(f"{number} is not between {least} and {most}")
    return number


def write_cells(cells: Iterable[HostCell]) -> str:
    """Return the JSON text that computes report: that of `to_object`, but faster."""
    data = {"cells": list(map(_written_cell, cells))}
    return _encode(_written(NUMATopology, data)).decode()


def _written_cell(cell: HostCell) -> dict[str, Any]:
    data = {
        **_written_hardware(cell.hardware),
        "cpu_usage": cell.cpu_usage,
        "memory_usage": cell.memory_usage,
        "pinned_cpus": cpus_of(cell.pinned),
        "mempages": [
            _written(NUMAPagesTopology, pages._asdict()) for pages in cell.pages
        ],
    }
    return _written(NUMACell, data)


@functools.lru_cache(4096)
def _written_hardware(hardware: CellHardware) -> Mapping[str, Any]:
    data: dict[str, Any] = {
        "id": hardware.id,
        "cpuset": sorted(hardware.cpus),
        "pcpuset": sorted(hardware.pcpus),
        "siblings": [sorted(threads) for threads in hardware.siblings],
        "memory": hardware.memory_mb,
        "socket": hardware.socket,
    }
    if hardware.physnets or hardware.is_tunneled:
        networks = {
            "physnets": sorted(hardware.physnets),
            "tunneled": hardware.is_tunneled,
        }
        data["network_metadata"] = _written(NetworkMetadata, networks)
    return data


def _written(kind: type[WireObject], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the primitive of a versioned object with this data."""
    return {
        "nova_object.name": kind.__name__,
        "nova_object.namespace": "nova",
        "nova_object.version": kind.VERSION,
        "nova_object.data": data,
    }


def to_object(cells: Iterable[HostCell]) -> NUMATopology:
    """Return the object that computes report."""
    return NUMATopology(cells=list(map(_cell_object, cells)))


def _cell_object(cell: HostCell) -> NUMACell:
    hardware = cell.hardware
    numa_cell = NUMACell(
        id=hardware.id,
        cpuset=set(hardware.cpus),
        pcpuset=set(hardware.pcpus),
        siblings=[set(threads) for threads in hardware.siblings],
        memory=hardware.memory_mb,
        socket=hardware.socket,
        cpu_usage=cell.cpu_usage,
        memory_usage=cell.memory_usage,
        pinned_cpus=set(cpus_of(cell.pinned)),
        mempages=[NUMAPagesTopology(**pages._asdict()) for pages in cell.pages],
    )
    if hardware.physnets or hardware.is_tunneled:
        numa_cell.network_metadata = NetworkMetadata(
            physnets=set(hardware.physnets), tunneled=hardware.is_tunneled
        )
    return numa_cell


@dataclass(frozen=True, slots=True)
class HostTopology:
    """All NUMA cells of a host, in the order of its report."""

    cells: tuple[HostCell, ...]

    @classmethod
    def read(cls, value: object) -> HostTopology:
        """Read what a nova compute reports.

        Parameters
        ----------
        value : str, mapping or NUMATopology
            JSON text of ``compute_nodes.numa_topology``; the same decoded, also in the
            form of before nova had objects; or the object.

        Raises
        ------
        ValueError
            The value is none of these, or is not valid; the message says why.
        """
        return cls(read_cells(value))

    @property
    def has_threads(self) -> bool:
        """Whether a core of the host has more than one thread."""
        return any(cell.hardware.n_threads > 1 for cell in self.cells)

    def bits_of(self, ids: Collection[int]) -> int:
        """Return the cells of these ids, as bits."""
        return sum(1 << i for i, cell in enumerate(self.cells) if cell.id in ids)

    def with_guest(self, guest: FittedGuest) -> HostTopology:
        """Return the cells with a guest on them (``numa_usage_from_instance_numa``)."""
        return self._changed_by(guest, 1)

    def without_guest(self, guest: FittedGuest) -> HostTopology:
        """Return the cells without a guest that was on them."""
        return self._changed_by(guest, -1)

    def _changed_by(self, guest: FittedGuest, sign: int) -> HostTopology:
        by_id = {cell.host_cell_id: cell for cell in guest.cells}
        return HostTopology(
            tuple(
                cell.changed_by(by_id[cell.id], sign) if cell.id in by_id else cell
                for cell in self.cells
            )
        )

    def to_object(self) -> NUMATopology:
        """Return the object that computes report."""
        return to_object(self.cells)

    def write(self) -> str:
        """Return what a nova compute reports, as JSON text."""
        return write_cells(self.cells)

    def describe(self) -> str:
        """Return what is free in each cell, for users."""
        return "; ".join(cell.describe() for cell in self.cells) or "no cells"
