# SPDX-License-Identifier: Apache-2.0
"""NUMA cells as computes report them: read, checked, and written."""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, SupportsInt

import msgspec

from ....objects import NUMATopology
from ...decoding import Primitive, loads
from .cells import CellHardware, Cpus, HostCell, Pages, cpus_of, mask_of

#: A choice of cells is a 64-bit word.
_MAX_CELLS: Final = 64
#: Each is a column for all hosts; no architecture has as many.
_MAX_PAGE_SIZES: Final = 16
#: CPUs are bits; Linux knows 8192 at most.
_MAX_CPU: Final = 2**16 - 1
#: The product of two amounts has to fit an int64.
_MAX_AMOUNT: Final = 2**31 - 1
#: Texts in the cache: some kilobytes each, and many hosts report the same.
_MAX_TEXTS: Final = 1024


class _Pages(msgspec.Struct, gc=False):
    size_kb: int
    total: int
    used: int | None = 0
    reserved: int | None = 0


class _Cell(msgspec.Struct, gc=False):
    """A cell in JSON; the long parts that never change stay encoded."""

    id: int
    memory: int
    cpuset: msgspec.Raw
    pcpuset: msgspec.Raw = msgspec.Raw(b"null")
    siblings: msgspec.Raw = msgspec.Raw(b"null")
    network_metadata: msgspec.Raw = msgspec.Raw(b"null")
    socket: int | None = None
    cpu_usage: int | None = 0
    memory_usage: int | None = 0
    pinned_cpus: list[int] | None = None
    mempages: list[Primitive[_Pages]] | None = None


class _Cells(msgspec.Struct, gc=False):
    cells: list[Primitive[_Cell]]


_decoded = msgspec.json.Decoder(Primitive[_Cells]).decode


def read_cells(value: object) -> tuple[HostCell, ...]:
    """Return the cells of a report; see `HostTopology.read`."""
    return _read_text(value) if isinstance(value, str) else _read(value)


@functools.lru_cache(_MAX_TEXTS)
def _read_text(text: str) -> tuple[HostCell, ...]:
    try:
        cells = _decoded(text).data.cells
    except msgspec.MsgspecError:  # an older form
        return _read_any_text(text)
    return _checked(_as_written(cell.data) for cell in cells)


def _as_written(cell: _Cell) -> HostCell:
    return HostCell(
        hardware=_hardware_as_written(
            cell.id,
            cell.memory,
            cell.socket,
            bytes(cell.cpuset),
            bytes(cell.pcpuset),
            bytes(cell.siblings),
            bytes(cell.network_metadata),
        ),
        cpu_usage=_amount(cell.cpu_usage or 0),
        memory_usage=_amount(cell.memory_usage or 0),
        pinned=mask_of(_cpus(cell.pinned_cpus or ())),
        pages=_distinct(_pages_as_written(each.data) for each in cell.mempages or ()),
    )


def _pages_as_written(pages: _Pages) -> Pages:
    return _counted(pages.size_kb, pages.total, pages.used or 0, pages.reserved or 0)


@functools.lru_cache(4096)
def _hardware_as_written(
    cell_id: int, memory: int, socket: int | None, *texts: bytes
) -> CellHardware:
    """Return one object for equal JSON texts: hosts of a cloud are much alike."""
    names = ("cpuset", "pcpuset", "siblings", "network_metadata")
    data = {name: loads(text) for name, text in zip(names, texts, strict=True)}
    return _hardware_of({"id": cell_id, "memory": memory, "socket": socket, **data})


def _read_any_text(text: str) -> tuple[HostCell, ...]:
    try:
        return _read(loads(text))
    except json.JSONDecodeError as e:
        raise ValueError(f"The NUMA topology is not JSON: {e}") from e


def _read(value: object) -> tuple[HostCell, ...]:
    if isinstance(value, NUMATopology):
        value = value.obj_to_primitive()
    if not isinstance(value, Mapping):
        raise ValueError(f"The NUMA topology is {type(value).__name__}, not cells")
    return _checked(_cells(value))


def _cells(value: Mapping[str, Any]) -> Iterator[HostCell]:
    data = value.get("nova_object.data")
    if data is None:
        yield from map(_legacy_cell, value["cells"])
    else:
        yield from (_cell(cell["nova_object.data"]) for cell in data["cells"])


def _checked(found: Iterator[HostCell]) -> tuple[HostCell, ...]:
    try:
        cells = tuple(found)
        if len(cells) > _MAX_CELLS:
            raise ValueError(f"{len(cells)} cells, more than {_MAX_CELLS}")
        _refuse_duplicates("cells of id", (cell.id for cell in cells))
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as e:
        raise ValueError(f"The NUMA topology is not a NUMATopology: {e!r}") from e
    return cells


def _refuse_duplicates(what: str, numbers: Iterable[int]) -> None:
    every = list(numbers)
    if len(set(every)) < len(every):
        number, count = Counter(every).most_common(1)[0]
        raise ValueError(f"{count} {what} {number}")


def _cell(data: Mapping[str, Any]) -> HostCell:
    return HostCell(
        hardware=_hardware_of(data),
        cpu_usage=_amount(data.get("cpu_usage") or 0),
        memory_usage=_amount(data.get("memory_usage") or 0),
        pinned=mask_of(_cpus(data.get("pinned_cpus") or ())),
        pages=_distinct(
            _pages_of_size(each["nova_object.data"])
            for each in data.get("mempages") or ()
        ),
    )


def _hardware_of(data: Mapping[str, Any]) -> CellHardware:
    networks = (data.get("network_metadata") or {}).get("nova_object.data", {})
    return _hardware(
        _amount(data["id"]),
        _cpus(data["cpuset"]),
        _cpus(data.get("pcpuset") or ()),
        _siblings(data.get("siblings") or ()),
        _amount(data["memory"]),
        _socket(data.get("socket")),
        frozenset(networks.get("physnets") or ()),
        bool(networks.get("tunneled")),
    )


#: Returns one object for equal hardware: hosts of a cloud are much alike.
_hardware = functools.lru_cache(4096)(CellHardware)


def _distinct(every: Iterable[Pages]) -> tuple[Pages, ...]:
    pages = tuple(every)
    if len(pages) > _MAX_PAGE_SIZES:
        raise ValueError(f"{len(pages)} sizes of pages, more than {_MAX_PAGE_SIZES}")
    _refuse_duplicates("entries for pages of KiB", (each.size_kb for each in pages))
    return pages


def _pages_of_size(data: Mapping[str, Any]) -> Pages:
    counts = (data["total"], data.get("used") or 0, data.get("reserved") or 0)
    return _counted(data["size_kb"], *counts)


@functools.lru_cache(4096)
def _counted(size_kb: SupportsInt | str, *counts: SupportsInt | str) -> Pages:
    """Return one object for equal pages: hosts of a cloud are much alike."""
    return Pages(_between(1, size_kb, _MAX_AMOUNT), *map(_amount, counts))


def _legacy_cell(data: Mapping[str, Any]) -> HostCell:
    """Read a cell from before there were objects (``from_legacy_object``)."""
    memory = data.get("mem") or {}
    cpus = tuple(sorted(_parsed(data.get("cpus") or "")))
    memory_mb = _amount(memory.get("total", 0))
    return HostCell(
        hardware=_hardware(_amount(data["id"]), cpus, (), (), memory_mb),
        cpu_usage=_amount(data.get("cpu_usage") or 0),
        memory_usage=_amount(memory.get("used", 0)),
    )


def _parsed(text: str) -> set[int]:
    """Return the CPUs of a text such as ``0-3,^2,8`` (``parse_cpu_spec``)."""
    named: set[int] = set()
    excluded: set[int] = set()
    for rule in filter(None, map(str.strip, text.split(","))):
        first, _, last = rule.removeprefix("^").partition("-")
        low = _between(0, first, _MAX_CPU)
        cpus = range(low, _between(low, last or first, _MAX_CPU) + 1)
        (excluded if rule.startswith("^") else named).update(cpus)
    return named - excluded


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
    # Linux reports -1 for unknown; to nova that is a socket, too.
    return None if value is None else _between(-1, value, _MAX_AMOUNT)


def _amount(value: SupportsInt | str) -> int:
    return _between(0, value, _MAX_AMOUNT)


def _between(least: int, value: SupportsInt | str, most: int) -> int:
    number = int(value)
    if not least <= number <= most:
        raise ValueError(f"{number} is not between {least} and {most}")
    return number


# -- writing ---------------------------------------------------------------------------


def to_primitive(cells: Iterable[HostCell]) -> dict[str, Any]:
    """Return the primitive of the object that computes report."""
    return _object("NUMATopology", "1.2", cells=list(map(_cell_primitive, cells)))


def _cell_primitive(cell: HostCell) -> dict[str, Any]:
    hardware = cell.hardware
    networks = {}
    if hardware.physnets or hardware.is_tunneled:
        networks["network_metadata"] = _object(
            "NetworkMetadata", "1.0",
            physnets=sorted(hardware.physnets), tunneled=hardware.is_tunneled,
        )  # fmt: skip
    return _object(
        "NUMACell",
        "1.5",
        id=hardware.id,
        cpuset=list(hardware.cpus),
        pcpuset=list(hardware.pcpus),
        siblings=[list(threads) for threads in hardware.siblings],
        memory=hardware.memory_mb,
        socket=hardware.socket,
        cpu_usage=cell.cpu_usage,
        memory_usage=cell.memory_usage,
        pinned_cpus=cpus_of(cell.pinned),
        mempages=[
            _object(
                "NUMAPagesTopology", "1.1",
                size_kb=p.size_kb, total=p.total, used=p.used, reserved=p.reserved,
            )
            for p in cell.pages
        ],
        **networks,
    )  # fmt: skip


def _object(name: str, version: str, **data: object) -> dict[str, Any]:
    return {
        "nova_object.name": name,
        "nova_object.namespace": "nova",
        "nova_object.version": version,
        "nova_object.data": data,
    }
