# SPDX-License-Identifier: Apache-2.0
"""What nova-compute assigns to guests and reports: pinned CPUs, NUMA cells, devices.

    accepted ─▶ take: fits ─▶ built, and reported ─▶ leave
                    │             moved: keep on the source until confirmed
                    └─ refused

A compute assigns by its own rule, in the order in which instances arrive; a scheduler
reads of it what was reported.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

from moorage.objects import InstanceNUMACell, InstanceNUMATopology, NUMACell
from moorage.scheduler.hosts import HostPools, HostTopology
from moorage.testing.builders import (
    guest_cell,
    guest_topology,
    numa_cell,
    numa_topology,
    pages,
    pci_pool,
    pci_pools,
)

CELLS_A_HOST: Final = 2
#: CPUs for pinning, of which Placement knows the sum of a host.
PCPUS_A_CELL: Final = 2
PCPUS_A_HOST: Final = CELLS_A_HOST * PCPUS_A_CELL
#: PCI devices, of which Placement does not know.
DEVICES_A_HOST: Final = 1

PAGE_KB: Final = 2048
#: Pages that a guest with cells has in all, and that a cell has: Placement knows
#: neither.
_PAGES_A_GUEST: Final = 512
_PAGES_A_CELL: Final = 2 * _PAGES_A_GUEST
_SHARED_A_CELL: Final = 4

#: The pools of a host by its number of free devices.
_POOLS: Final = [
    HostPools.read(pci_pools(pci_pool(n)).obj_to_primitive())
    for n in range(DEVICES_A_HOST + 1)
]


@dataclasses.dataclass(frozen=True)
class Guest:
    """What an instance needs of a compute.

    Attributes
    ----------
    cpus : tuple of int
        The CPUs in each of its NUMA cells; (): it has no cells.
    is_pinned : bool
        Whether its CPUs are dedicated, else shared.
    """

    cpus: tuple[int, ...] = ()
    is_pinned: bool = False
    n_devices: int = 0

    @classmethod
    def of(
        cls, n_vcpus: int, n_cells: int, *, is_pinned: bool, n_devices: int
    ) -> Guest:
        """Return the guest whose CPUs are divided evenly among its cells."""
        if not n_cells:
            return cls(n_devices=n_devices)
        return cls((n_vcpus // n_cells,) * n_cells, is_pinned, n_devices)

    @property
    def is_plain(self) -> bool:
        """Whether it needs neither cells nor devices."""
        return not self.cpus and not self.n_devices

    @property
    def described(self) -> str:
        """What it needs, for the log."""
        what = "pinned" if self.is_pinned else "shared"
        cells = f"{' + '.join(map(str, self.cpus))} {what} CPUs in cells, "
        return f"{cells * bool(self.cpus)}{self.n_devices} devices"

    @property
    def n_pages(self) -> int:
        """The pages in each of its cells."""
        return _PAGES_A_GUEST // len(self.cpus)

    @property
    def extra_specs(self) -> dict[str, str]:
        """The extra specs of its flavor."""
        if not self.cpus:
            return {}
        return {
            "hw:cpu_policy": "dedicated" if self.is_pinned else "shared",
            "hw:numa_nodes": str(len(self.cpus)),
            "hw:mem_page_size": str(PAGE_KB),
        }

    def topology(self) -> InstanceNUMATopology | None:
        """Return its cells as nova's API requests them."""
        if not self.cpus:
            return None
        numbers = itertools.count()
        return guest_topology(
            *(
                self._cell(i, set(itertools.islice(numbers, n)))
                for i, n in enumerate(self.cpus)
            )
        )

    def _cell(self, number: int, cpus: set[int]) -> InstanceNUMACell:
        return guest_cell(
            number,
            cpuset=set() if self.is_pinned else cpus,
            pcpuset=cpus if self.is_pinned else set(),
            cpu_policy="dedicated" if self.is_pinned else "shared",
            memory=self.n_pages * PAGE_KB // 1024,
            pagesize=PAGE_KB,
        )


#: The part of a guest in a cell of its host: the cell, its pinned CPUs, shared ones and
#: pages.
Part = tuple[int, frozenset[int], int, int]


@dataclasses.dataclass(eq=False)
class Holder:
    """A guest on a host, which has what it needs.

    Attributes
    ----------
    parts : tuple of Part
        The cells and CPUs that nova-compute chose.
    answered_by : str
        The scheduler process that has claimed it; "": none knows it by that.
    asked_at : float
        When it was requested, on the virtual clock.
    built_at, known_at : float
        When nova-compute reports it, and when every scheduler has read that; infinite:
        that is not certain.
    is_leaving : bool
        Whether Placement or nova's database may say that it has left.
    """

    guest: Guest
    parts: tuple[Part, ...]
    answered_by: str
    asked_at: float
    built_at: float
    known_at: float
    is_leaving: bool = False

    @property
    def described(self) -> str:
        """What it has, for the log."""
        cells = (
            f"{sorted(pinned) or f'{n_shared} shared CPUs'} of cell {cell}"
            for cell, pinned, n_shared, _ in self.parts
        )
        return ", ".join([*cells, f"{self.guest.n_devices} devices"])


class Computes:
    """The compute of each host.

    Parameters
    ----------
    clock : callable
        Returns the virtual time.
    forgotten_at : callable
        Returns until when schedulers may have dropped a host with its claims.
    """

    def __init__(
        self, clock: Callable[[], float], forgotten_at: Callable[[str], float]
    ) -> None:
        self._clock = clock
        self._forgotten_at = forgotten_at
        #: By host, and by UUID of the instance or of the migration that keeps it.
        self._holders: dict[str, dict[str, Holder]] = {}

    def take(self, host: str, uuid: str, holder: Holder) -> bool:
        """Assign what a guest needs; return whether the host has it."""
        holders = self._holders.setdefault(host, {})
        parts = next(_choices(holder.guest, holders.values()), None)
        if parts is None:
            return False
        holder.parts = parts
        holders[uuid] = holder
        return True

    def let_go(self, host: str, uuid: str) -> None:
        """Have a guest begin to leave a host: Placement and the host may differ."""
        if holder := self._holders.get(host, {}).get(uuid):
            holder.is_leaving = True

    def free(self, host: str, uuid: str) -> None:
        """Free what a guest had on a host, if it had anything."""
        self._holders.get(host, {}).pop(uuid, None)

    def rename(self, host: str, uuid: str, new_uuid: str, known_at: float) -> bool:
        """Have a migration keep what an instance has; return whether it has any.

        The scheduler that claimed it forgets the claim, which Placement has no more;
        all know it once they have read the report.
        """
        holder = self._holders.get(host, {}).pop(uuid, None)
        if holder is not None:
            holder.answered_by = ""
            holder.known_at = min(holder.known_at, known_at)
            self._holders[host][new_uuid] = holder
        return holder is not None

    def is_known(self, host: str, asker: str, asked_at: float, guest: Guest) -> bool:
        """Return whether a scheduler that gave a host to a guest knew that it is full.

        What a scheduler can know of a host when it is asked:

        - Of a guest whose report it has read: its cells and CPUs.
        - Of a guest that it has claimed itself, until then: how much that needs, and
          not in which cells nova-compute puts it. It is full for certain if no choice
          of cells for these leaves room.
        - Of a guest that another scheduler has claimed: nothing for certain, as
          announcements are lost and late.
        - Of one that leaves: that it is there, until Placement has deleted its
          allocations, which can be before nova-compute frees what it has.
        """
        reported, claimed = [], []
        for each in self._holders.get(host, {}).values():
            if each.is_leaving:
                continue
            if each.known_at < asked_at:
                reported.append(each)
            elif each.answered_by == asker and each.asked_at > self._forgotten_at(host):
                claimed.append(each)
        return not _can_hold(reported, [*(each.guest for each in claimed), guest])

    def finish_builds(self) -> None:
        """Have every guest be built, and reported from now on."""
        for holders in self._holders.values():
            for each in holders.values():
                each.built_at = min(each.built_at, self._clock())

    def report(self, host: str) -> tuple[HostTopology, HostPools]:
        """Return the cells and the devices as nova-compute reports them."""
        now = self._clock()
        built = [
            each
            for each in self._holders.get(host, {}).values()
            if each.built_at <= now
        ]
        n_devices = sum(each.guest.n_devices for each in built)
        used = tuple(_used(number, built) for number in range(CELLS_A_HOST))
        return _topology(used), _POOLS[DEVICES_A_HOST - n_devices]


def _can_hold(holders: Sequence[Holder], guests: Sequence[Guest]) -> bool:
    """Return whether guests can be added in some choice of cells."""
    if not guests:
        return True
    first, *others = guests
    return any(
        _can_hold([*holders, Holder(first, parts, "", 0, 0, 0)], others)
        for parts in _choices(first, holders)
    )


def _choices(guest: Guest, holders: Collection[Holder]) -> Iterator[tuple[Part, ...]]:
    """Return the choices of cells that a guest fits, the emptiest cells first."""
    n_devices = sum(each.guest.n_devices for each in holders)
    if n_devices + guest.n_devices > DEVICES_A_HOST:
        return
    if not guest.cpus:
        yield ()
        return
    used = [_used(number, holders) for number in range(CELLS_A_HOST)]
    in_order = sorted(range(CELLS_A_HOST), key=lambda i: (len(used[i][0]), used[i][2]))
    for cells in itertools.permutations(in_order, len(guest.cpus)):
        parts = [
            _part(guest, n_cpus, cell, *used[cell])
            for cell, n_cpus in zip(cells, guest.cpus, strict=True)
        ]
        fitting = tuple(part for part in parts if part is not None)
        if len(fitting) == len(parts):
            yield fitting


def _part(
    guest: Guest, n_cpus: int, cell: int, pinned: frozenset[int], _: int, n_pages: int
) -> Part | None:
    if n_pages + guest.n_pages > _PAGES_A_CELL:
        return None
    if not guest.is_pinned:
        return (cell, frozenset(), n_cpus, guest.n_pages)
    free = sorted(_pcpus(cell) - pinned)
    if len(free) < n_cpus:
        return None
    return (cell, frozenset(free[:n_cpus]), 0, guest.n_pages)


def _pcpus(cell: int) -> frozenset[int]:
    first = cell * (PCPUS_A_CELL + _SHARED_A_CELL)
    return frozenset(range(first, first + PCPUS_A_CELL))


def _used(number: int, holders: Iterable[Holder]) -> tuple[frozenset[int], int, int]:
    """Return the pinned CPUs of a cell, and its numbers of shared ones and pages."""
    parts = [part for each in holders for part in each.parts if part[0] == number]
    pinned = frozenset().union(*(part[1] for part in parts))
    return pinned, sum(part[2] for part in parts), sum(part[3] for part in parts)


@functools.cache
def _topology(used: tuple[tuple[frozenset[int], int, int], ...]) -> HostTopology:
    return HostTopology.read(numa_topology(*itertools.starmap(_cell, enumerate(used))))


def _cell(number: int, used: tuple[frozenset[int], int, int]) -> NUMACell:
    pinned, n_shared, n_pages = used
    pcpus = set(_pcpus(number))
    shared = {max(pcpus) + 1 + n for n in range(_SHARED_A_CELL)}
    return numa_cell(
        number,
        cpuset=shared,
        pcpuset=pcpus,
        siblings=[{cpu} for cpu in sorted(pcpus | shared)],
        pinned_cpus=set(pinned),
        cpu_usage=n_shared,
        memory=_PAGES_A_CELL * PAGE_KB // 1024,
        memory_usage=n_pages * PAGE_KB // 1024,
        mempages=[pages(4, 0), pages(PAGE_KB, _PAGES_A_CELL, used=n_pages)],
    )
