# SPDX-License-Identifier: Apache-2.0
"""The NUMA cells that a guest requests, and the networks that they must be near to."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from ...objects import (
        InstanceNUMACell,
        InstanceNUMATopology,
        NUMATopologyLimits,
        RequestSpec,
    )

#: Page sizes that are not a number of KiB (nova's MEMPAGES_SMALL, _LARGE and _ANY).
SMALL_PAGES: Final = -1
LARGE_PAGES: Final = -2
ANY_PAGES: Final = -3
#: Thread policies (nova's CPUThreadAllocationPolicy).
ISOLATE: Final = "isolate"
REQUIRE: Final = "require"

_SHARED: Final = (None, "shared")
_NAMES: Final = {SMALL_PAGES: "small", LARGE_PAGES: "large", ANY_PAGES: "any"}


@dataclass(frozen=True, slots=True)
class GuestCell:
    """One cell of a guest.

    Attributes
    ----------
    n_shared : int
        How many guest CPUs float: they are not pinned.
    pcpus : tuple of int
        Guest CPUs to be pinned, ascending.
    page_size : int or None
        KiB, or SMALL_PAGES, LARGE_PAGES, ANY_PAGES; None: no page size is requested.
    """

    memory_mb: int
    n_shared: int = 0
    pcpus: tuple[int, ...] = ()
    cpu_policy: str | None = None
    thread_policy: str | None = None
    page_size: int | None = None

    @classmethod
    def read(cls, cell: InstanceNUMACell) -> Self:
        """Read the InstanceNUMACell of a request; an unset field becomes None."""
        return cls(
            memory_mb=cell.memory,
            n_shared=len(cell.cpuset),
            pcpus=tuple(sorted(cell.pcpuset)),
            cpu_policy=cell.cpu_policy if "cpu_policy" in cell else None,
            thread_policy=(
                cell.cpu_thread_policy if "cpu_thread_policy" in cell else None
            ),
            page_size=(cell.pagesize if "pagesize" in cell else None) or None,
        )

    @property
    def is_pinned(self) -> bool:
        """Whether CPUs are pinned: the policy is dedicated or mixed."""
        return self.cpu_policy in ("dedicated", "mixed")

    @property
    def is_floating(self) -> bool:
        """Whether CPUs may float: the policy is shared or mixed."""
        return self.cpu_policy != "dedicated"

    @property
    def is_shared(self) -> bool:
        """Whether all CPUs float."""
        return self.cpu_policy in _SHARED

    def describe(self) -> str:
        """Return a description for users."""
        cpus = [f"{len(self.pcpus)} pinned"] if self.is_pinned else []
        cpus += [f"{self.n_shared} floating"] if self.is_floating else []
        threads = f" ({self.thread_policy} threads)" if self.thread_policy else ""
        pages = ""
        if self.page_size is not None:
            size = _NAMES.get(self.page_size, f"{self.page_size} KiB")
            pages = f" in {size} pages"
        return f"{' and '.join(cpus)} CPUs{threads}, {self.memory_mb} MiB{pages}"


@dataclass(frozen=True, slots=True)
class Guest:
    """All cells of a guest, in their order.

    Attributes
    ----------
    is_isolated_emulator : bool
        Whether the emulator's threads get a CPU of their own, in addition to those of
        the first cell.
    """

    cells: tuple[GuestCell, ...]
    is_isolated_emulator: bool = False

    @classmethod
    def read(cls, topology: InstanceNUMATopology) -> Self:
        """Read the InstanceNUMATopology of a request."""
        is_set = "emulator_threads_policy" in topology
        policy = topology.emulator_threads_policy if is_set else None
        cells = tuple(map(GuestCell.read, topology.cells))
        return cls(cells, policy == ISOLATE)

    def reserved(self, index: int) -> int:
        """Return how many CPUs the emulator gets in addition to a cell's, 0 or 1."""
        return int(self.is_isolated_emulator and index == 0)

    @property
    def is_dedicated(self) -> bool:
        """Whether no CPU floats, so that overcommit limits do not apply."""
        return not any(cell.is_floating for cell in self.cells)

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The indices of the cells, in one group for each distinct request."""
        groups: defaultdict[tuple[GuestCell, int], list[int]] = defaultdict(list)
        for index, cell in enumerate(self.cells):
            # Whether a cell fits does not depend on the numbers of its CPUs.
            groups[_without_cpu_numbers(cell), self.reserved(index)].append(index)
        return tuple(map(tuple, groups.values()))

    def describe(self) -> str:
        """Return a description for users."""
        parts = [self.cells[indices[0]].describe() for indices in self.groups]
        counts = [len(indices) for indices in self.groups]
        cells = "; ".join(
            f"{count} x {part}" for count, part in zip(counts, parts, strict=True)
        )
        emulator = ", one more CPU for the emulator" * self.is_isolated_emulator
        return f"{len(self.cells)} cells: {cells}{emulator}"


def _without_cpu_numbers(cell: GuestCell) -> GuestCell:
    return GuestCell(
        cell.memory_mb,
        cell.n_shared,
        tuple(range(len(cell.pcpus))),
        cell.cpu_policy,
        cell.thread_policy,
        cell.page_size,
    )


@dataclass(frozen=True, slots=True)
class Networks:
    """The networks that a guest has to be near to.

    Attributes
    ----------
    is_tunneled : bool
        Whether the guest has tunneled networks.
    """

    physnets: frozenset[str] = frozenset()
    is_tunneled: bool = False

    @classmethod
    def read(cls, source: RequestSpec | NUMATopologyLimits) -> Self:
        """Read the networks of a request, or of a selection's limits."""
        metadata = source.network_metadata if "network_metadata" in source else None
        if not metadata:
            return cls()
        return cls(
            frozenset(metadata.physnets if "physnets" in metadata else ()),
            bool("tunneled" in metadata and metadata.tunneled),
        )

    def __bool__(self) -> bool:
        return bool(self.physnets) or self.is_tunneled

    def names(self) -> list[str | None]:
        """Return the physical networks, and None for the tunneled ones."""
        tunnels: list[str | None] = [None] if self.is_tunneled else []
        return [*sorted(self.physnets), *tunnels]


NO_NETWORKS: Final = Networks()
