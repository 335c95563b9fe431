# SPDX-License-Identifier: Apache-2.0
"""The host CPUs of a guest's cell that fits a host's cell."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ...request.numa import ISOLATE, GuestCell
from .cells import HostCell, cpus_of
from .guest import FittedCell

Cores = list[set[int]]


def pin(
    host: HostCell, guest: GuestCell, n_reserved: int, page_size: int | None
) -> FittedCell:
    """Return a guest's cell on a host's cell, which it fits according to `matching`.

    Parameters
    ----------
    n_reserved : int
        CPUs for the emulator, in addition to those of the cell.
    page_size : int or None
        KiB; None: the guest requests no page size.
    """
    if not guest.is_pinned:
        return FittedCell(host.id, guest, page_size)
    cores = _free_cores(host)
    pcpus = _in_order(cores, guest, host.hardware.n_threads)[: len(guest.pcpus)]
    used = set(pcpus)
    is_isolated = guest.thread_policy == ISOLATE
    open_cores = (core for core in cores if not (is_isolated and core & used))
    free_cpus = [cpu for core in open_cores for cpu in core if cpu not in used]
    reserved = frozenset(free_cpus[:n_reserved])
    idle: frozenset[int] = frozenset()
    if is_isolated:
        # Idle are the other free threads of the guest's cores. A thread that another
        # guest holds is not idle: nova pins it twice (``pin_cpus_with_siblings``), and
        # raises CPUPinningInvalid.
        used |= reserved
        idle = idle.union(*(core for core in cores if core & used)) - used
    pins = tuple(zip(guest.pcpus, pcpus, strict=True))
    return FittedCell(host.id, guest, page_size, pins, reserved, idle)


def _in_order(cores: Cores, guest: GuestCell, n_host_threads: int) -> list[int]:
    """Return host CPUs, at least as many as needed, in the order of their use.

    The rule is nova's ``_pack_instance_onto_cores``: the most threads of each core with
    which the cores suffice. An isolated guest gets one thread of each core that is
    entirely free.
    """
    if guest.thread_policy == ISOLATE:
        return [next(iter(core)) for core in cores if len(core) == n_host_threads]
    for n_threads in range(max(map(len, cores), default=0), 0, -1):
        open_cores = (list(core) for core in cores if len(core) >= n_threads)
        cpus = [cpu for core in open_cores for cpu in core[:n_threads]]
        if len(cpus) >= len(guest.pcpus):
            return cpus
    return list(itertools.chain.from_iterable(cores))


def _free_cores(host: HostCell) -> Cores:
    """Return the free threads of each core that has one.

    Which threads of a core nova uses first depends on the order of CPython's sets. Here
    the same sets are made in the same way, so that the CPUs are those that nova's
    scheduler expects. (A compute copies its sets whenever its usage changes, which may
    reverse the order of two threads.)
    """
    hardware = host.hardware
    free = _as_read(hardware.pcpus) - set(cpus_of(host.pinned))
    siblings = hardware.siblings or [(cpu,) for cpu in hardware.pcpus]
    return [core for core in (_as_read(threads) & free for threads in siblings) if core]


def _as_read(cpus: Sequence[int]) -> set[int]:
    """Return a set as oslo's objects read it: they fill a second set from a first.

    Numbers that collide in the set's small hash table change their order on each copy.
    """
    copied: set[int] = set()
    copied.update(set(iter(set(cpus))))
    return copied
