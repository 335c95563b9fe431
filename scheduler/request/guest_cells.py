# SPDX-License-Identifier: Apache-2.0
"""The NUMA cells of a flavor's guest, as nova's API computes them for a boot.

The rules are those of nova 34 (``nova.virt.hardware.numa_get_constraints``) for an
image without properties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from oslo_utils import strutils

from ...objects import Flavor, InstanceNUMACell, InstanceNUMATopology
from ..errors import InvalidRequest, excerpt
from .flavor_and_image import (
    MAX_CPUS,
    CPUPolicy,
    FlavorAndImage,
    cpu_policy,
    dedicated_cpus,
    emulator_policy,
    get_field,
    parse_cpu_mask,
    thread_policy,
)
from .numa import ANY_PAGES, LARGE_PAGES, SMALL_PAGES

_PAGE_NAMES: Final[Mapping[str, int]] = {
    "small": SMALL_PAGES,
    "large": LARGE_PAGES,
    "any": ANY_PAGES,
}
_MAX_CELLS: Final = 64
_KIB: Final = 1024


def cells_of_flavor(flavor: Flavor) -> InstanceNUMATopology | None:
    """Return the NUMA cells of a flavor's guest; None: the guest has none.

    Raises
    ------
    InvalidRequest
        nova's API would refuse the flavor.
    """
    specs = get_field(flavor, "extra_specs") or {}
    guest = FlavorAndImage(flavor.vcpus, specs, {})
    policy = cpu_policy(guest)
    if policy is None and _is_positive(specs.get("resources:PCPU") or ""):
        policy = CPUPolicy.DEDICATED
    pages = _page_size(specs.get("hw:mem_page_size"))
    n_cells = _count("hw:numa_nodes", specs.get("hw:numa_nodes"))
    is_pinned = policy in (CPUPolicy.DEDICATED, CPUPolicy.MIXED)
    if n_cells is None:
        if pages is None and not is_pinned:
            return None
        n_cells = 1
    if flavor.vcpus > MAX_CPUS:
        raise InvalidRequest(f"vcpus is {flavor.vcpus}; it must be at most {MAX_CPUS}")
    pinned: set[int] = set()
    if policy is CPUPolicy.MIXED:
        pinned = dedicated_cpus(guest)
    elif policy is CPUPolicy.DEDICATED:
        pinned = set(range(flavor.vcpus))
    threads = thread_policy(guest) if is_pinned else None
    cells = [
        InstanceNUMACell(
            id=number,
            cpuset=cpus - pinned,
            pcpuset=cpus & pinned,
            memory=memory_mb,
            pagesize=pages,
            cpu_policy=policy.value if policy is not None else None,
            cpu_thread_policy=threads.value if threads is not None else None,
            cpu_topology=None,
        )
        for number, (cpus, memory_mb) in enumerate(_divided(flavor, specs, n_cells))
    ]
    emulator = emulator_policy(guest)
    return InstanceNUMATopology(
        cells=cells,
        emulator_threads_policy=None if emulator is None else emulator.value,
    )


def _divided(
    flavor: Flavor, specs: Mapping[str, str], n_cells: int
) -> list[tuple[set[int], int]]:
    """Return the CPUs of each cell, and its memory in MiB."""
    cpu_masks = [specs.get(f"hw:numa_cpus.{i}") for i in range(n_cells)]
    memory_texts = [specs.get(f"hw:numa_mem.{i}") for i in range(n_cells)]
    if any(cpu_masks) or any(memory_texts):
        if not (all(cpu_masks) and all(memory_texts)):
            raise InvalidRequest(
                "hw:numa_cpus and hw:numa_mem must be set for each of hw:numa_nodes"
            )
        try:
            cpu_sets = [parse_cpu_mask(mask or "") for mask in cpu_masks]
            cells = list(
                zip(cpu_sets, map(int, filter(None, memory_texts)), strict=True)
            )
        except ValueError as e:
            raise InvalidRequest(f"hw:numa_cpus and hw:numa_mem: {e}") from e
        _check_sums(flavor, cells)
        return cells
    if flavor.vcpus % n_cells or flavor.memory_mb % n_cells:
        raise InvalidRequest(
            f"hw:numa_nodes is {n_cells}; it must divide the vCPUs and the memory"
        )
    n_cpus, memory_mb = flavor.vcpus // n_cells, flavor.memory_mb // n_cells
    return [
        (set(range(i * n_cpus, (i + 1) * n_cpus)), memory_mb) for i in range(n_cells)
    ]


def _check_sums(flavor: Flavor, cells: Sequence[tuple[set[int], int]]) -> None:
    """Reject cells that do not have exactly the CPUs and the memory of the flavor."""
    cpus = sorted(cpu for cpus_of_cell, _ in cells for cpu in cpus_of_cell)
    if cpus != list(range(flavor.vcpus)):
        raise InvalidRequest(
            "hw:numa_cpus must have each of the flavor's vCPUs, 0 to "
            f"{flavor.vcpus - 1}, in one cell"
        )
    memory = [memory_mb for _, memory_mb in cells]
    if min(memory) <= 0 or sum(memory) != flavor.memory_mb:
        raise InvalidRequest(
            f"hw:numa_mem must be above 0, and {flavor.memory_mb} in all: the flavor's "
            "memory"
        )


def _is_positive(text: str) -> bool:
    return text.isascii() and text.isdigit() and bool(text.strip("0"))


def _count(key: str, text: str | None) -> int | None:
    if not text:
        return None
    is_short = _is_positive(text) and len(text) <= len(str(_MAX_CELLS))
    if not is_short or int(text) > _MAX_CELLS:
        raise InvalidRequest(f"{key} is {excerpt(text)}; it must be a number from 1")
    return int(text)


def _page_size(text: str | None) -> int | None:
    """Return a page size in KiB, or the constant of ``small``, ``large`` or ``any``."""
    if not text:
        return None
    if text in _PAGE_NAMES:
        return _PAGE_NAMES[text]
    try:
        if text.isascii() and text.isdigit():
            size_kb = int(text)
        else:
            size_kb = int(strutils.string_to_bytes(text, return_int=True)) // _KIB
    except ValueError:
        size_kb = 0
    if size_kb <= 0:
        raise InvalidRequest(
            f"hw:mem_page_size is {excerpt(text)}; it must be small, large, any or a "
            "size such as 2048 or 1GB"
        )
    return size_kb
