# SPDX-License-Identifier: Apache-2.0
"""One cell of a guest on one cell of a host, CPU by CPU."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

from .cells import CellHardware, HostCell, Pages, cpus_of
from .guest import ANY_PAGES, LARGE_PAGES, SMALL_PAGES, FittedCell, GuestCell, Limits

_KIB: Final = 1024

Pins = list[tuple[int, int]]
Cores = list[set[int]]


def fit_cell(
    host: HostCell, guest: GuestCell, n_reserved: int, limits: Limits | None
) -> FittedCell | None:
    """Return how a guest's cell fits a host's cell, None if it does not.

    nova's ``_numa_fit_instance_cell``, but with nothing left behind by an earlier try.

    Parameters
    ----------
    n_reserved : int
        CPUs for the emulator beside those of the cell.
    limits : Limits or None
        None: floating CPUs and memory may be overcommitted without end.
    """
    page_size = chosen_pages(host, guest)
    if page_size is None and not (guest.page_size is None and has_memory(host, guest)):
        return None
    if not (_has_cpus(host, guest, n_reserved) and _is_within(host, guest, limits)):
        return None
    if not guest.is_pinned:
        return FittedCell(host.id, guest, page_size)
    pinned = _pinned(host, guest, n_reserved)
    if pinned is None:
        return None
    pins, reserved = pinned
    return FittedCell(
        host.id,
        guest,
        page_size,
        tuple(pins),
        frozenset(reserved),
        _idle(host, guest, reserved.union(pcpu for _, pcpu in pins)),
    )


# -- memory ----------------------------------------------------------------------------


def chosen_pages(host: HostCell, guest: GuestCell) -> int | None:
    """Return the page size that was asked for and fits, KiB, the largest first."""
    if guest.page_size is None:
        return None
    sizes = sorted({pages.size_kb for pages in host.pages}, reverse=True)
    match guest.page_size:
        case x if x == SMALL_PAGES:
            wanted = sizes[-1:]
        case x if x == LARGE_PAGES:
            wanted = sizes[:-1]
        case x if x == ANY_PAGES:
            wanted = sizes
        case size:
            wanted = [size]
    return next((s for s in wanted if _fits_pages(host, guest, s, True)), None)


def has_memory(host: HostCell, guest: GuestCell) -> bool:
    """Return whether there is memory for a cell that asks for no page size.

    A pinned one needs it free; a floating one may share it, but not with itself.
    """
    smallest = host.smallest_page_kb
    if smallest is not None:
        return _fits_pages(host, guest, smallest, guest.is_pinned)
    if guest.is_pinned:
        return host.free_memory_mb >= guest.memory_mb
    return host.hardware.memory_mb >= guest.memory_mb


def _fits_pages(
    host: HostCell, guest: GuestCell, size_kb: int, must_be_free: bool
) -> bool:
    memory_kb = guest.memory_mb * _KIB
    pages: Pages | None = next((p for p in host.pages if p.size_kb == size_kb), None)
    if pages is None or memory_kb % size_kb:
        return False
    return memory_kb <= (pages.free_kb if must_be_free else pages.total_kb)


# -- counts ----------------------------------------------------------------------------


def _has_cpus(host: HostCell, guest: GuestCell, n_reserved: int) -> bool:
    """Return whether there are as many: no guest shares a CPU with itself."""
    hardware = host.hardware
    if guest.is_floating and guest.n_shared > len(hardware.cpus):
        return False
    n_pinned = len(guest.pcpus) + n_reserved
    return not guest.is_pinned or n_pinned <= min(
        len(hardware.pcpus), host.free_pcpus.bit_count()
    )


def _is_within(host: HostCell, guest: GuestCell, limits: Limits | None) -> bool:
    if limits is None or not guest.is_floating:
        return True
    hardware = host.hardware
    n_cpus, memory_mb = host.cpu_usage + guest.n_shared, host.memory_usage
    memory_mb += guest.memory_mb
    return (
        n_cpus <= len(hardware.cpus) * limits.cpu_allocation_ratio
        and memory_mb <= hardware.memory_mb * limits.ram_allocation_ratio
    )


# -- pinning ---------------------------------------------------------------------------


def _pinned(
    host: HostCell, guest: GuestCell, n_reserved: int
) -> tuple[Pins, set[int]] | None:
    """Return pins and CPUs for the emulator (nova's ``_pack_instance_onto_cores``)."""
    free = _free_cores(host)
    if guest.thread_policy == "isolate":
        return _isolated(host.hardware, guest, free, n_reserved)
    for n_threads, cores in _by_threads(free):
        if guest.thread_policy == "require" and n_threads < 2:
            break
        pins = _pins(guest, cores, n_threads)
        found = pins is not None and _with_reserved(pins, free, n_reserved)
        if found:
            return found
    if guest.thread_policy == "require":
        return None
    # Rather any CPUs than none: each thread as if it were a core.
    threads = [{cpu} for core in free for cpu in core]
    pins = _pins(guest, threads, 1)
    return None if pins is None else _with_reserved(pins, threads, n_reserved)


def _free_cores(host: HostCell) -> Cores:
    """Return the free threads of each core that has one.

    Which threads of a core are used first is, in nova, a matter of the order of
    CPython's sets. The same sets, made the same way, have it here, so that the CPUs
    reckoned with are those of nova's scheduler. (A compute copies its sets whenever
    its usage changes, which may turn the order of two threads round.)
    """
    hardware = host.hardware
    free = _as_read(hardware.pcpus) - set(cpus_of(host.pinned))
    siblings = hardware.siblings or [(cpu,) for cpu in hardware.pcpus]
    return [core for core in (_as_read(s) & free for s in siblings) if core]


def _as_read(cpus: Sequence[int]) -> set[int]:
    """Return a set as reading it leaves it: oslo's objects fill a second from a first.

    Numbers that share a place of the small table change places on each way.
    """
    read: set[int] = set()
    read.update(set(iter(set(cpus))))
    return read


def _idle(host: HostCell, guest: GuestCell, used: set[int]) -> frozenset[int]:
    """Return the other free threads of an isolated guest's cores.

    A thread that another guest holds already is not among them: nova pins it twice
    (``pin_cpus_with_siblings``) and raises CPUPinningInvalid.
    """
    if guest.thread_policy != "isolate":
        return frozenset()
    return frozenset().union(*(c for c in _free_cores(host) if c & used)) - used


def _by_threads(free: Cores) -> Iterator[tuple[int, Cores]]:
    """Yield thread counts, the highest first, with the cores that have so many."""
    for n_threads in range(max(map(len, free), default=0), 0, -1):
        yield n_threads, [core for core in free if len(core) >= n_threads]


def _pins(guest: GuestCell, cores: Cores, n_threads: int) -> Pins | None:
    if n_threads * len(cores) < len(guest.pcpus):
        return None
    cpus = itertools.chain.from_iterable(list(core)[:n_threads] for core in cores)
    return list(zip(guest.pcpus, cpus, strict=False))


def _with_reserved(
    pins: Pins, cores: Cores, n_reserved: int
) -> tuple[Pins, set[int]] | None:
    """Return the pins with CPUs for the emulator that are left beside them."""
    used = {pcpu for _, pcpu in pins}
    return _reserved(pins, ([c for c in core if c not in used] for core in cores),
                     n_reserved)  # fmt: skip


def _reserved(
    pins: Pins, left: Iterator[Sequence[int]], n_reserved: int
) -> tuple[Pins, set[int]] | None:
    if not n_reserved:
        return pins, set()
    cpus = list(itertools.chain.from_iterable(left))
    # nova reserves nothing beside a cell that pins nothing, and then rejects it.
    return (pins, set(cpus[:n_reserved])) if pins and cpus else None


def _isolated(
    hardware: CellHardware, guest: GuestCell, free: Cores, n_reserved: int
) -> tuple[Pins, set[int]] | None:
    """Pin one thread a core that is free as a whole, and leave the others idle.

    With threads, only where all CPUs are for pinning and floating alike, as under
    nova's old ``vcpu_pin_set``: elsewhere Placement has not counted the idle ones
    (nova's bug 1889633).
    """
    n_threads = hardware.n_threads
    if n_threads > 1 and hardware.pcpu_mask != hardware.cpu_mask:
        return None
    pins = _pins(guest, [core for core in free if len(core) >= n_threads], 1)
    if not pins:
        return None
    used = {pcpu for _, pcpu in pins}
    left = (list(core) for core in free if not core & used)
    return _reserved(pins, left, n_reserved)
