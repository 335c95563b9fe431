# SPDX-License-Identifier: Apache-2.0
"""Small cells of hosts and guests, by hand and by chance, and what fits what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import hypothesis.strategies as st

from moorage.objects import (
    InstanceNUMACell,
    InstancePCIRequests,
    NetworkMetadata,
    PciDevicePool,
)
from moorage.scheduler.hosts.fitting.need import Need
from moorage.scheduler.hosts.numa import (
    CellHardware,
    FittedCell,
    FittedGuest,
    HostCell,
    HostTopology,
    Limits,
    Pages,
)
from moorage.scheduler.hosts.pci import HostPools
from moorage.scheduler.request.numa import Guest, GuestCell, Networks
from moorage.scheduler.request.pci import read_requests
from moorage.testing import builders as b

from ....interop.reference_fit import numa_fits
from ....strategies.offers import Report

SMALL, LARGE, ANY = -1, -2, -3
SMALL_KB, LARGE_KB, HUGE_KB = 4, 2048, 1048576


def mask(*cpus: int) -> int:
    """Return CPUs as bits."""
    return sum(1 << cpu for cpu in cpus)


def cpus(bits: int) -> set[int]:
    """Return the CPUs of a mask."""
    return {cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1}


def host_cell(
    number: int = 0,
    siblings: Sequence[Sequence[int]] = ((0, 4), (1, 5), (2, 6), (3, 7)),
    **changes: Any,
) -> HostCell:
    """A cell of 8 threads in 4 cores, for pinning only, and 4 GiB without pages."""
    threads = tuple(sorted(cpu for core in siblings for cpu in core))
    hardware = {
        "id": number,
        "cpus": (),
        "pcpus": threads,
        "siblings": tuple(map(tuple, siblings)),
        "memory_mb": 4096,
    }
    kept = {
        name: changes.pop(name)
        for name in ("cpu_usage", "memory_usage", "pinned", "pages")
        if name in changes
    }
    return HostCell(CellHardware(**{**hardware, **changes}), **kept)


def host(*cells: HostCell) -> HostTopology:
    """A host of these cells."""
    return HostTopology(tuple(cells))


def pinned(n_cpus: int = 2, **changes: Any) -> GuestCell:
    """A guest's cell with so many pinned CPUs and 1 GiB."""
    plain = {
        "memory_mb": 1024,
        "pcpus": tuple(range(n_cpus)),
        "cpu_policy": "dedicated",
    }
    return GuestCell(**{**plain, **changes})


def shared(n_cpus: int = 2, **changes: Any) -> GuestCell:
    """A guest's cell with so many floating CPUs and 1 GiB."""
    return GuestCell(**{"memory_mb": 1024, "n_shared": n_cpus, **changes})


# -- what fits what ------------------------------------------------------------------

Nodes = Mapping[int, int]


def _pools(nodes: Nodes) -> list[PciDevicePool]:
    return [b.pci_pool(count, numa_node=node) for node, count in nodes.items()]


def _near_device() -> InstancePCIRequests:
    return b.pci_requests(b.pci_request(numa_policy="required"))


def fit(
    topology: HostTopology,
    guest: Guest,
    limits: Limits | None = None,
    *,
    nodes: Nodes = MappingProxyType({}),
    wants_device: bool = False,
    is_packed: bool = False,
) -> FittedGuest | None:
    """Return how a guest fits a host with so many free devices at each NUMA node."""
    requests = read_requests(_near_device() if wants_device else None)
    need = Need(guest, requests, ((),) * len(requests), limits, is_packed)
    return need.fits(topology, HostPools.read(b.pci_pools(*_pools(nodes))))


def fit_cell(
    cell: HostCell, guest: GuestCell, n_reserved: int, limits: Limits | None
) -> FittedCell | None:
    """Return how a guest of one cell fits a host of one cell."""
    fitted = fit(host(cell), Guest((guest,), bool(n_reserved)), limits)
    return None if fitted is None else fitted.cells[0]


def fits_by_reference(
    topology: HostTopology,
    guest: Guest,
    limits: Limits | None,
    nodes: Nodes = MappingProxyType({}),
    *,
    wants_device: bool = False,
) -> bool:
    """Return the reference's result, which tries every choice."""
    reported = topology.to_object()
    if limits is None:
        limits = Limits(1e9, 1e9)
        for cell in reported.cells:
            cell.cpu_usage = 0  # matters to the limits only
    networks = limits.networks
    spec_obj = b.spec(
        numa_topology=b.guest_topology(
            *(_guest_cell(number, cell) for number, cell in enumerate(guest.cells)),
            emulator_threads_policy="isolate" if guest.is_isolated_emulator else None,
        ),
        network_metadata=NetworkMetadata(
            physnets=set(networks.physnets), tunneled=networks.is_tunneled
        ),
        pci_requests=_near_device() if wants_device else b.pci_requests(),
    )
    ratios = (limits.cpu_allocation_ratio, limits.ram_allocation_ratio)
    return numa_fits(Report("h", reported, _pools(nodes), *ratios), spec_obj, {})


def _guest_cell(number: int, cell: GuestCell) -> InstanceNUMACell:
    return b.guest_cell(
        number,
        cpuset=set(range(100, 100 + cell.n_shared)),
        pcpuset=set(cell.pcpus),
        memory=cell.memory_mb,
        pagesize=cell.page_size,
        cpu_policy=cell.cpu_policy,
        cpu_thread_policy=cell.thread_policy,
    )


# -- by chance -----------------------------------------------------------------------

_sizes = st.sampled_from([SMALL_KB, LARGE_KB, HUGE_KB])
_fractions = st.sampled_from([0, 0, 1, 2, 3, 4])


@st.composite
def page_sets(draw: st.DrawFn) -> tuple[Pages, ...]:
    """Pages of up to three sizes that hold 4 GiB each, partly used or reserved."""
    made = []
    for size in draw(st.lists(_sizes, max_size=3, unique=True)):
        total = 4 * 1048576 // size
        used, kept = (draw(_fractions) * total // 4 for _ in range(2))
        made.append(Pages(size, total, used=used, reserved=kept))
    return tuple(made)


@st.composite
def host_cells(draw: st.DrawFn, number: int) -> HostCell:
    """A cell of up to 8 CPUs; some hosts have threads, some the old single set."""
    n_threads = draw(st.sampled_from([1, 2, 4]))
    n_cpus = n_threads * draw(st.integers(0, 8 // n_threads))
    first = 16 * number
    every = range(first, first + n_cpus)
    step = n_cpus // n_threads if draw(st.booleans()) else 1
    siblings = tuple(
        tuple(every[core * (1 if step > 1 else n_threads) :: step or 1][:n_threads])
        for core in range(n_cpus // n_threads)
    )
    is_old = draw(st.booleans())
    split = n_cpus if is_old else draw(st.integers(0, n_cpus))
    pcpus = tuple(every[:split])
    held = draw(st.sets(st.sampled_from(pcpus or (0,)))) if pcpus else set()
    tells = draw(st.integers(0, 9)) > 0
    return host_cell(
        number,
        siblings if tells else (),
        pcpus=pcpus,
        cpus=pcpus if is_old else tuple(every[split:]),
        pinned=mask(*held),
        cpu_usage=draw(st.integers(0, 8)),
        memory_usage=1024 * draw(_fractions),
        pages=draw(page_sets()),
        physnets=draw(st.sampled_from([frozenset(), frozenset({"a"})])),
        is_tunneled=draw(st.booleans()),
    )


@st.composite
def hosts(draw: st.DrawFn, max_cells: int = 4) -> HostTopology:
    """A host of one to four cells."""
    n_cells = draw(st.integers(1, max_cells))
    return host(*(draw(host_cells(number)) for number in range(n_cells)))


@st.composite
def guest_cells(draw: st.DrawFn) -> GuestCell:
    """A cell of at most 4 pinned and 4 floating CPUs."""
    policy = draw(st.sampled_from([None, "shared", "dedicated", "dedicated", "mixed"]))
    is_pinned = policy in ("dedicated", "mixed")
    return GuestCell(
        memory_mb=draw(st.sampled_from([1, 512, 1024, 2048])),
        n_shared=0 if policy == "dedicated" else draw(st.integers(0, 4)),
        pcpus=tuple(range(draw(st.integers(0, 4)) if is_pinned else 0)),
        cpu_policy=policy,
        thread_policy=draw(st.sampled_from([None, "prefer", "require", "isolate"])),
        page_size=draw(st.sampled_from([None, None, SMALL, LARGE, ANY, 4, 2048])),
    )


@st.composite
def guests(draw: st.DrawFn, max_cells: int = 3) -> Guest:
    """A guest of cells that are often equal."""
    kinds = draw(st.lists(guest_cells(), min_size=1, max_size=2))
    n_cells = draw(st.integers(1, max_cells))
    cells = tuple(draw(st.sampled_from(kinds)) for _ in range(n_cells))
    return Guest(cells, is_isolated_emulator=draw(st.booleans()))


limits = st.builds(
    Limits,
    cpu_allocation_ratio=st.sampled_from([0.5, 1.0, 4.0]),
    ram_allocation_ratio=st.sampled_from([0.5, 1.0, 1.5]),
    networks=st.builds(
        Networks,
        st.sampled_from([frozenset(), frozenset({"a"}), frozenset({"a", "b"})]),
        st.booleans(),
    ),
)
