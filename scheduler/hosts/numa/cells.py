# SPDX-License-Identifier: Apache-2.0
"""NUMA cells of a host, and what guests use of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from .guest import FittedCell

_KIB: Final = 1024

Cpus = tuple[int, ...]


class Pages(NamedTuple):
    """Memory pages of one size in one cell; counts of pages."""

    size_kb: int
    total: int
    used: int = 0
    reserved: int = 0

    @property
    def free_kb(self) -> int:
        """Memory in pages that are neither used nor reserved, KiB."""
        return (self.total - self.used - self.reserved) * self.size_kb

    @property
    def total_kb(self) -> int:
        """Memory in all pages, KiB."""
        return self.total * self.size_kb


@dataclass(frozen=True, slots=True)
class CellHardware:
    """The part of a cell that never changes.

    Attributes
    ----------
    cpus, pcpus : tuple of int
        CPUs for floating guests and for pinning, as reported.
    siblings : tuple of tuple of int
        The CPUs of each core: its threads, as reported.
    physnets, is_tunneled
        The networks near to the cell; none and False where the cell declares none.
    cpu_mask, pcpu_mask : int
        `cpus` and `pcpus`, as bits.
    cores : tuple of int
        The threads of each core as bits; where the report names no cores, each CPU
        for pinning is a core.
    n_threads : int
        Threads of the cell's largest core, at least 1.
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
        # The hash is computed once: it takes long, and many cells share their hardware.
        cpus = (self.id, self.cpus, self.pcpus, self.siblings, self.memory_mb)
        networks = (self.socket, self.physnets, self.is_tunneled)
        object.__setattr__(self, "_hash", hash((cpus, networks)))
        cores = self.siblings or tuple((cpu,) for cpu in self.pcpus)
        object.__setattr__(self, "cpu_mask", mask_of(self.cpus))
        object.__setattr__(self, "pcpu_mask", mask_of(self.pcpus))
        object.__setattr__(self, "cores", tuple(map(mask_of, cores)))
        object.__setattr__(self, "n_threads", max(map(len, cores), default=1) or 1)

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class HostCell:
    """One cell of a host, and what guests use of it.

    Attributes
    ----------
    cpu_usage : int
        The number of guest CPUs that float on the cell.
    memory_usage : int
        Memory of guests, MiB.
    pinned : int
        Host CPUs that guests hold, pinned or for their emulators or idle, as bits.
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
        """CPUs for pinning that no guest holds, as bits."""
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
        """Return the cell with a guest's cell added (`sign` 1) or removed (-1)."""
        guest = cell.guest
        held_cpus = _held(cell)
        return replace(
            self,
            cpu_usage=max(0, self.cpu_usage + sign * guest.n_shared),
            memory_usage=max(0, self.memory_usage + sign * guest.memory_mb),
            pinned=self.pinned | held_cpus if sign > 0 else self.pinned & ~held_cpus,
            pages=tuple(self._paged(cell, sign)),
        )

    def _paged(self, cell: FittedCell, sign: int) -> Iterable[Pages]:
        """Yield the pages with those of a guest's cell added or removed."""
        size_kb = cell.page_size or self.smallest_page_kb
        for pages in self.pages:
            if pages.size_kb == size_kb:
                n_pages = cell.guest.memory_mb * _KIB / size_kb * sign
                yield pages._replace(used=int(max(0, pages.used + n_pages)))
            else:
                yield pages

    def describe(self) -> str:
        """Return what is free, for users."""
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
