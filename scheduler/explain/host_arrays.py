# SPDX-License-Identifier: Apache-2.0
"""The condition of each host, and how full each resource of it is, as arrays."""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..hosts import HostBatch

_MIB_PER_GIB: Final = 1024
#: The resources of hosts, in the order in which they are shown.
RESOURCES: Final = ("vcpus", "memory_mb", "disk_gb")


class HostCondition(enum.StrEnum):
    """Whether a host can take instances; if several members apply, the first one."""

    FORCED_DOWN = "forced down"
    DISABLED = "disabled"
    DOWN = "down"
    UP = "up"


_FORCED_DOWN, _DISABLED, _DOWN, _UP = range(len(HostCondition))
_CONDITIONS: Final = np.array(list(HostCondition), dtype=object)


@dataclasses.dataclass(frozen=True, slots=True)
class ResourceFill:
    """One resource of some hosts; arrays of shape (n_hosts,).

    Attributes
    ----------
    used : ndarray of int64
        The amount that instances and pending claims use.
    capacity : ndarray of float64
        The total with the allocation ratio of the host.
    """

    used: npt.NDArray[np.int64]
    capacity: npt.NDArray[np.float64]

    @property
    def shares(self) -> npt.NDArray[np.float64]:
        """The used share of the capacity of each host; NaN: it has none."""
        with np.errstate(divide="ignore", invalid="ignore"):
            shares: npt.NDArray[np.float64] = self.used / self.capacity
        shares[self.capacity <= 0] = np.nan
        return shares

    @property
    def share(self) -> float:
        """The used share of the capacity of the hosts that have one; NaN: none has."""
        # A node of bare metal has no vCPUs, and uses those of its instance's flavor.
        has_some = self.capacity > 0
        capacity = float(self.capacity[has_some].sum())
        return float(self.used[has_some].sum()) / capacity if capacity else math.nan


def host_conditions(
    hosts: HostBatch, now: float, down_after_s: int
) -> npt.NDArray[Any]:
    """Return the `HostCondition` of each host, shape (n_hosts,)."""
    seen_at = hosts.last_seen_up
    # As in ComputeFilter: infinity means that the source has no heartbeats, and NaN
    # that the host has sent none.
    with np.errstate(invalid="ignore"):
        is_up = np.isposinf(seen_at) | (np.abs(now - seen_at) <= down_after_s)
    codes = np.where(is_up, _UP, _DOWN)
    codes[hosts.disabled] = _DISABLED
    codes[hosts.forced_down] = _FORCED_DOWN
    return _CONDITIONS[codes]


def host_resources(hosts: HostBatch) -> dict[str, ResourceFill]:
    """Return the fill of each resource of hosts, in the order of `RESOURCES`."""
    free_gb = hosts.free_disk_mb // _MIB_PER_GIB
    ram_mb, disk_gb = hosts.total_usable_ram_mb, hosts.total_usable_disk_gb
    return {
        "vcpus": ResourceFill(
            hosts.vcpus_used, hosts.vcpus_total * hosts.cpu_allocation_ratio
        ),
        "memory_mb": ResourceFill(
            ram_mb - hosts.free_ram_mb, ram_mb * hosts.ram_allocation_ratio
        ),
        "disk_gb": ResourceFill(
            disk_gb - free_gb, disk_gb * hosts.disk_allocation_ratio
        ),
    }
