# SPDX-License-Identifier: Apache-2.0
"""How full all hosts are, by availability zone and cell."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from oslo_config import cfg

from ..hosts import HostBatch, HostTable
from .host_list import HostCondition
from .zones import zones_of

_MIB_PER_GIB: Final = 1024
#: The resources of `FillGroup`, in the order in which they are shown.
RESOURCES: Final = ("vcpus", "memory_mb", "disk_gb")


@dataclasses.dataclass(frozen=True, slots=True)
class ResourceFill:
    """One resource of some hosts; arrays of shape (n_hosts,).

    Attributes
    ----------
    used : ndarray of int64
        By instances and pending claims.
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
        """The used share of the capacity of all; NaN: there is none."""
        capacity = float(self.capacity.sum())
        return float(self.used.sum()) / capacity if capacity > 0 else math.nan


@dataclasses.dataclass(frozen=True, slots=True)
class FillGroup:
    """The compute nodes of one availability zone and cell, by host and node.

    Attributes
    ----------
    hosts, conditions : list
        The service host and the condition of each compute node.
    resources : mapping
        By the names in `RESOURCES`.
    """

    zone: str
    cell_uuid: str
    hosts: list[str]
    conditions: list[HostCondition]
    resources: Mapping[str, ResourceFill]


@dataclasses.dataclass(frozen=True, slots=True)
class CloudFill:
    """All compute nodes in groups, by zone and cell."""

    groups: tuple[FillGroup, ...]
    n_hosts: int
    n_instances: int
    n_claims: int
    conditions: Mapping[HostCondition, int]


def cloud_fill(table: HostTable, conf: cfg.ConfigOpts, now: float) -> CloudFill:
    """Return how full the hosts of a table are at `now`, seconds since the epoch."""
    hosts = table.batch()
    conditions = _conditions(hosts, now, conf.service_down_time)
    counted = Counter(conditions.tolist())
    return CloudFill(
        tuple(_groups(hosts, conditions, conf.default_availability_zone)),
        len(hosts),
        int(hosts.num_instances.sum()) if len(hosts) else 0,
        len(table.claims()),
        {each: counted[each] for each in HostCondition},
    )


def _conditions(hosts: HostBatch, now: float, down_after_s: int) -> npt.NDArray[Any]:
    seen_at = hosts.last_seen_up
    # As in ComputeFilter: infinity is a source without heartbeats, NaN never seen.
    with np.errstate(invalid="ignore"):
        is_up = np.isposinf(seen_at) | (np.abs(now - seen_at) <= down_after_s)
    found = np.full(len(hosts), HostCondition.DOWN, dtype=object)
    found[is_up] = HostCondition.UP
    found[hosts.disabled] = HostCondition.DISABLED
    found[hosts.forced_down] = HostCondition.FORCED_DOWN
    return found


def _groups(
    hosts: HostBatch, conditions: npt.NDArray[Any], default_zone: str
) -> Iterator[FillGroup]:
    zones = zones_of(hosts, default_zone)
    resources = _resources(hosts)
    keys = zip(
        zones.tolist(),
        hosts.cell_uuid.tolist(),
        hosts.host.tolist(),
        hosts.nodename.tolist(),
        range(len(hosts)),
        strict=True,
    )
    members: dict[tuple[str, str], list[int]] = {}
    for zone, cell, _, _, index in sorted(keys):
        members.setdefault((zone, cell), []).append(index)
    for (zone, cell), at in members.items():
        yield FillGroup(
            zone,
            cell,
            hosts.host[at].tolist(),
            conditions[at].tolist(),
            {
                name: ResourceFill(each.used[at], each.capacity[at])
                for name, each in resources.items()
            },
        )


def _resources(hosts: HostBatch) -> dict[str, ResourceFill]:
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
