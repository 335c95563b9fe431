# SPDX-License-Identifier: Apache-2.0
"""The room of hosts for recent flavors, and the room that none of them can use.

Free memory is of no use on a host without free vCPUs, and a host that is nearly full
may have less than any flavor needs. Such room is stranded: of each resource, what is
left if the host is filled with the recent flavor that uses most of it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ..drivers.parts import Parts
from ..hosts import HostBatch
from ..placement.providers import ProviderView
from .capacity import HostCounter
from .flavors import FlavorRequest
from .host_arrays import RESOURCES, HostCondition, host_conditions, host_resources

#: The largest recent flavors, which are counted host by host.
MAX_SHOWN: Final = 3
#: The most recently requested flavors, with which hosts are filled.
MAX_FLAVORS: Final = 20

#: No more instances are counted on a host.
MAX_COUNT: Final = 1_000_000
#: What a note begins with that says why the room is unknown.
UNKNOWN_ROOM: Final = "How many more instances of recent flavors fit is unknown: "

Int64s = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class FlavorRoom:
    """How many more instances of a recent flavor fit, if no other flavor comes.

    Attributes
    ----------
    is_exact : bool
        Whether `n_instances` is exact; otherwise fewer may fit, because hosts share
        storage, or because it matters which candidate is claimed.
    """

    name: str
    vcpus: int
    memory_mb: int
    disk_gb: int
    n_instances: int
    n_hosts: int
    is_exact: bool


@dataclasses.dataclass(frozen=True, slots=True)
class CloudRoom:
    """The room of all hosts together.

    Attributes
    ----------
    flavors : tuple of FlavorRoom
        The largest recent flavors: by memory, then by vCPUs, then by disk.
    n_flavors : int
        The number of recent flavors with which hosts were filled.
    stranded : dict
        By the names in `RESOURCES`: the share of what is free on the hosts that are up
        that no recent flavor can use; NaN: nothing is free.
    """

    flavors: tuple[FlavorRoom, ...]
    n_flavors: int
    stranded: dict[str, float]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class HostRoom:
    """The room of each host of a batch.

    Attributes
    ----------
    fits : dict of str to ndarray of int64, shape (n_hosts,)
        How many more instances fit, by the names of the largest recent flavors.
    stranded : ndarray of int64, shape (3, n_hosts)
        By the order of `RESOURCES`: what no recent flavor can use.
    is_up : ndarray of bool, shape (n_hosts,)
        Other hosts take no instances: nothing of them is stranded.
    """

    hosts: HostBatch
    cloud: CloudRoom
    fits: dict[str, Int64s]
    stranded: Int64s
    is_up: npt.NDArray[np.bool_]

    def fits_on(self, index: int) -> dict[str, int]:
        """Return how many instances of each of the largest flavors fit on a host."""
        return {name: int(counts[index]) for name, counts in self.fits.items()}

    def stranded_on(self, index: int) -> tuple[int, int, int] | None:
        """Return the vCPUs, the MiB and the GB of a host that no flavor can use."""
        if not self.is_up[index]:
            return None
        vcpus, memory_mb, disk_gb = self.stranded[:, index].tolist()
        return vcpus, memory_mb, disk_gb


def find_room(
    parts: Parts,
    view: ProviderView,
    flavors: Sequence[FlavorRequest],
    hosts: HostBatch,
) -> HostRoom:
    """Return the room of hosts for recent flavors.

    Parameters
    ----------
    flavors : sequence of FlavorRequest
        At least one; the most recently requested come first.
    """
    conditions = host_conditions(hosts, parts.clock(), parts.conf.service_down_time)
    is_up = conditions == HostCondition.UP
    flavors = flavors[:MAX_FLAVORS]
    shown = _largest(flavors)
    fills = host_resources(hosts).values()
    free = np.array([np.maximum(fill.capacity - fill.used, 0) for fill in fills])
    free = free.astype(np.int64)
    usable = np.zeros_like(free)
    counter = HostCounter(parts, view, hosts)
    rooms, fits = [], {}
    for flavor in flavors:
        counts = counter.upper_bounds(flavor)
        memory_mb, vcpus, disk_gb = flavor.sizes
        sizes = np.array([[vcpus], [memory_mb], [disk_gb]])
        # Nothing limits a flavor without amounts, whose count is huge.
        n_on_host = np.minimum(counts.n_on_host, MAX_COUNT)
        np.maximum(usable, n_on_host * sizes, out=usable)
        if any(flavor is one for one in shown):
            fits[flavor.name] = n_on_host
            n_instances = int(n_on_host.sum())
            n_hosts = int(np.count_nonzero(n_on_host))
            rooms.append(FlavorRoom(
                flavor.name, vcpus, memory_mb, disk_gb, n_instances, n_hosts,
                counts.is_exact,
            ))  # fmt: skip
    names = [flavor.name for flavor in shown]
    rooms.sort(key=lambda room: names.index(room.name))
    stranded = np.maximum(free - usable, 0)
    sums = zip(
        RESOURCES, stranded[:, is_up].sum(axis=1), free[:, is_up].sum(axis=1),
        strict=True,
    )  # fmt: skip
    shares = {
        name: float(lost / total) if total else math.nan for name, lost, total in sums
    }
    return HostRoom(
        hosts,
        CloudRoom(tuple(rooms), len(flavors), shares),
        {name: fits[name] for name in names},
        stranded,
        is_up,
    )


def _largest(flavors: Sequence[FlavorRequest]) -> list[FlavorRequest]:
    """Return the largest flavors: of each name the newest, on local disk if any is."""
    by_name: dict[str, FlavorRequest] = {}
    for flavor in sorted(flavors, key=lambda flavor: flavor.is_volume_backed):
        if flavor.name:
            by_name.setdefault(flavor.name, flavor)
    largest = sorted(by_name.values(), key=lambda flavor: flavor.sizes, reverse=True)
    return largest[:MAX_SHOWN]
