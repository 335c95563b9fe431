# SPDX-License-Identifier: Apache-2.0
"""A host's NUMA cells, as its compute reports them, and what guests take of them."""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import msgspec

from ....objects import NUMATopology
from ...decoding import Primitive, loads
from .guest import FittedCell, FittedGuest

_KIB: Final = 1024
#: A choice of cells is a word of bits.
_MAX_CELLS: Final = 64
#: Each is a column of its own, for all hosts; no architecture has as many.
_MAX_PAGE_SIZES: Final = 16
#: CPUs are bits; Linux knows 8192 at most.
_MAX_CPU: Final = 2**16 - 1
#: Two amounts, multiplied, are an int64.
_MAX_AMOUNT: Final = 2**31 - 1
#: Texts that are remembered: some kilobytes each, and many hosts report the same.
_MAX_TEXTS: Final = 1024

Cpus = tuple[int, ...]


class Pages(NamedTuple):
    """Memory pages of one size in one cell; counts of pages."""

    size_kb: int
    total: int
    used: int = 0
    reserved: int = 0

    @property
    def free_kb(self) -> int:
        """What is neither used nor reserved, KiB."""
        return (self.total - self.used - self.reserved) * self.size_kb

    @property
    def total_kb(self) -> int:
        """All of it, KiB."""
        return self.total * self.size_kb


@dataclass(frozen=True, slots=True)
class CellHardware:
    """What never changes of a cell.

    Attributes
    ----------
    cpus, pcpus : tuple of int
        CPUs for floating guests and for pinning, as reported.
    siblings : tuple of tuple of int
        CPUs by the core they are threads of, as reported.
    physnets, is_tunneled
        The networks that are near to it; none and False where it declares none.
    cpu_mask, pcpu_mask : int
        The same CPUs as bits.
    cores : tuple of int
        The threads of each core as bits; each CPU for pinning is a core where nothing
        is reported.
    n_threads : int
        Threads of its largest core, at least 1.
    """

    id: int
    cpus: Cpus
    pcpus: Cpus
    siblings: tuple[Cpus, ...]
    memory_mb: int
    socket: int | None = None
    physnets: frozenset[str] = frozenset()
    is_tunneled: bool = False
    cpu_mask: int = field(init=False, compare=False, repr=False)
    pcpu_mask: int = field(init=False, compare=False, repr=False)
    cores: tuple[int, ...] = field(init=False, compare=False, repr=False)
    n_threads: int = field(init=False, compare=False, repr=False)
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Once: it is long, and many cells have the same.
        told = (self.id, self.cpus, self.pcpus, self.siblings, self.memory_mb)
        networks = (self.socket, self.physnets, self.is_tunneled)
        object.__setattr__(self, "_hash", hash((told, networks)))
        cores = self.siblings or tuple((cpu,) for cpu in self.pcpus)
        object.__setattr__(self, "cpu_mask", mask_of(self.cpus))
        object.__setattr__(self, "pcpu_mask", mask_of(self.pcpus))
        object.__setattr__(self, "cores", tuple(map(mask_of, cores)))
        object.__setattr__(self, "n_threads", max(map(len, cores), default=1) or 1)

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class HostCell:
    """One cell and what is used of it.

    Attributes
    ----------
    cpu_usage : int
        Floating guest CPUs.
    memory_usage : int
        MiB.
    pinned : int
        Host CPUs that guests are pinned to, as bits.
    """

    hardware: CellHardware
    cpu_usage: int = 0
    memory_usage: int = 0
    pinned: int = 0
    pages: tuple[Pages, ...] = ()

    @property
    def id(self) -> int:
        """The cell's number on its host."""
        return self.hardware.id

    @property
    def free_pcpus(self) -> int:
        """CPUs for pinning that nobody holds, as bits."""
        return self.hardware.pcpu_mask & ~self.pinned

    @property
    def free_memory_mb(self) -> int:
        """Memory that is not in use, MiB."""
        return self.hardware.memory_mb - self.memory_usage

    @property
    def smallest_page_kb(self) -> int | None:
        """The smallest page size; None where the host reports no pages."""
        return min((pages.size_kb for pages in self.pages), default=None)

    def changed_by(self, cell: FittedCell, sign: int) -> HostCell:
        """Return the cell after a guest's cell has come (1) or gone (-1)."""
        guest = cell.guest
        held = _held(cell)
        return replace(
            self,
            cpu_usage=max(0, self.cpu_usage + sign * guest.n_shared),
            memory_usage=max(0, self.memory_usage + sign * guest.memory_mb),
            pinned=self.pinned | held if sign > 0 else self.pinned & ~held,
            pages=tuple(self._paged(cell, sign)),
        )

    def _paged(self, cell: FittedCell, sign: int) -> Iterable[Pages]:
        size_kb = cell.page_size or self.smallest_page_kb
        for pages in self.pages:
            if pages.size_kb == size_kb:
                taken = cell.guest.memory_mb * _KIB / size_kb * sign
                yield pages._replace(used=int(max(0, pages.used + taken)))
            else:
                yield pages

    def describe(self) -> str:
        """Return what is free, for people."""
        cell, n_free = self.hardware, self.free_pcpus.bit_count()
        pages = "".join(
            f", {p.free_kb // p.size_kb} of {p.total} pages of {p.size_kb} KiB free"
            for p in self.pages
        )
        return (
            f"cell {cell.id}: {n_free} of {len(cell.pcpus)} CPUs for pinning free, "
            f"{self.cpu_usage} floating on {len(cell.cpus)}, "
            f"{self.free_memory_mb} of {cell.memory_mb} MiB free{pages}"
        )


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
            form from before there were objects; or the object.

        Raises
        ------
        ValueError
            It is none of these; the message says what is wrong.
        """
        return _read_text(value) if isinstance(value, str) else _read(value)

    @property
    def has_threads(self) -> bool:
        """Whether some core has more than one thread."""
        return any(cell.hardware.n_threads > 1 for cell in self.cells)

    def in_sockets_of(self, ids: frozenset[int]) -> frozenset[int]:
        """Return the ids of all cells in the sockets of these cells.

        None where some cell does not tell its socket (nova's
        ``_filter_pools_for_socket_affinity``).
        """
        cells = [cell.hardware for cell in self.cells]
        if any(cell.socket is None for cell in cells):
            return frozenset()
        sockets = {cell.socket for cell in cells if cell.id in ids}
        return frozenset(cell.id for cell in cells if cell.socket in sockets)

    def with_guest(self, guest: FittedGuest) -> HostTopology:
        """Return the cells with a guest on them (``numa_usage_from_instance_numa``)."""
        return self._changed_by(guest, 1)

    def without_guest(self, guest: FittedGuest) -> HostTopology:
        """Return the cells after a guest has gone."""
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
        return NUMATopology.obj_from_primitive(written(self))

    def describe(self) -> str:
        """Return what is free in each cell, for people."""
        return "; ".join(cell.describe() for cell in self.cells) or "no cells"


def _held(cell: FittedCell) -> int:
    """Return the CPUs that a guest's cell keeps from others, as bits."""
    pins = mask_of(pcpu for _, pcpu in cell.pins)
    return pins | mask_of(cell.reserved) | mask_of(cell.idle)


def mask_of(cpus: Iterable[int]) -> int:
    """Return CPU numbers as bits."""
    mask = 0
    for cpu in cpus:
        mask |= 1 << cpu
    return mask


def cpus_of(mask: int) -> list[int]:
    """Return the CPU numbers of bits, ascending."""
    return [cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1]


# -- reading ---------------------------------------------------------------------------


class _Pages(msgspec.Struct, gc=False):
    size_kb: int
    total: int
    used: int | None = 0
    reserved: int | None = 0


class _Cell(msgspec.Struct, gc=False):
    """A cell of a text; what never changes of it, and is long, is not decoded."""

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


@functools.lru_cache(_MAX_TEXTS)
def _read_text(text: str) -> HostTopology:
    try:
        told = _decoded(text).data.cells
    except msgspec.MsgspecError:  # not as it is written today
        return _read_any_text(text)
    return _topology_of(_as_written(cell.data) for cell in told)


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
    """Return the hardware that JSON texts tell of: hosts of a cloud are much alike."""
    names = ("cpuset", "pcpuset", "siblings", "network_metadata")
    told = {name: loads(text) for name, text in zip(names, texts, strict=True)}
    return _hardware_of({"id": cell_id, "memory": memory, "socket": socket, **told})


def _read_any_text(text: str) -> HostTopology:
    try:
        return _read(loads(text))
    except json.JSONDecodeError as e:
        raise ValueError(f"The NUMA topology is no JSON: {e}") from e


def _read(value: object) -> HostTopology:
    if isinstance(value, NUMATopology):
        value = value.obj_to_primitive()
    if not isinstance(value, Mapping):
        raise ValueError(f"The NUMA topology is {type(value).__name__}, not cells")
    return _topology_of(_cells(value))


def _cells(value: Mapping[str, Any]) -> Iterator[HostCell]:
    data = value.get("nova_object.data")
    if data is None:
        yield from map(_legacy_cell, value["cells"])
    else:
        yield from (_cell(cell["nova_object.data"]) for cell in data["cells"])


def _topology_of(found: Iterator[HostCell]) -> HostTopology:
    try:
        cells = tuple(found)
        if len(cells) > _MAX_CELLS:
            raise ValueError(f"{len(cells)} cells, more than {_MAX_CELLS}")
        _refuse_twins("cells of id", (cell.id for cell in cells))
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as e:
        raise ValueError(f"The NUMA topology is no NUMATopology: {e!r}") from e
    return HostTopology(cells)


def _refuse_twins(what: str, numbers: Iterable[int]) -> None:
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


@functools.lru_cache(4096)
def _hardware(*fields: Any) -> CellHardware:
    """Return one object for equal hardware: hosts of a cloud are much alike."""
    return CellHardware(*fields)


def _distinct(every: Iterable[Pages]) -> tuple[Pages, ...]:
    pages = tuple(every)
    if len(pages) > _MAX_PAGE_SIZES:
        raise ValueError(f"{len(pages)} sizes of pages, more than {_MAX_PAGE_SIZES}")
    _refuse_twins("entries for pages of KiB", (each.size_kb for each in pages))
    return pages


def _pages_of_size(data: Mapping[str, Any]) -> Pages:
    counts = (data["total"], data.get("used") or 0, data.get("reserved") or 0)
    return _counted(data["size_kb"], *counts)


@functools.lru_cache(4096)
def _counted(size_kb: Any, *counts: Any) -> Pages:
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
        low = _cpu(first)
        cpus = range(low, _between(low, last or first, _MAX_CPU) + 1)
        (excluded if rule.startswith("^") else named).update(cpus)
    return named - excluded


def _cpus(values: Iterable[Any]) -> Cpus:
    cpus = tuple(map(int, values))
    _refuse_odd(cpus)
    return cpus


def _siblings(values: Iterable[Iterable[Any]]) -> tuple[Cpus, ...]:
    cores = tuple([tuple(map(int, threads)) for threads in values])
    _refuse_odd(tuple(itertools.chain.from_iterable(cores)))
    return cores


def _refuse_odd(cpus: Cpus) -> None:
    if cpus:
        _between(0, min(cpus), _MAX_CPU)
        _between(0, max(cpus), _MAX_CPU)


def _cpu(value: Any) -> int:
    return _between(0, value, _MAX_CPU)


def _socket(value: Any) -> int | None:
    # -1 is how Linux says that it does not know; to nova that is a socket, too.
    return None if value is None else _between(-1, value, _MAX_AMOUNT)


def _amount(value: Any) -> int:
    return _between(0, value, _MAX_AMOUNT)


def _between(least: int, value: Any, most: int) -> int:
    number = int(value)
    if not least <= number <= most:
        raise ValueError(f"{number} is not between {least} and {most}")
    return number


# -- writing ---------------------------------------------------------------------------


def written(topology: HostTopology) -> dict[str, Any]:
    """Return the primitive of the object that computes report."""
    cells = [_written_cell(cell) for cell in topology.cells]
    return _object("NUMATopology", "1.2", cells=cells)


def _written_cell(cell: HostCell) -> dict[str, Any]:
    hardware = cell.hardware
    told = {}
    if hardware.physnets or hardware.is_tunneled:
        told["network_metadata"] = _object(
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
        **told,
    )  # fmt: skip


def _object(name: str, version: str, **data: Any) -> dict[str, Any]:
    return {
        "nova_object.name": name,
        "nova_object.namespace": "nova",
        "nova_object.version": version,
        "nova_object.data": data,
    }
