# SPDX-License-Identifier: Apache-2.0
"""List hosts for an operator: state, age, fill, pending claims."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from oslo_config import cfg

from ..hosts import HostBatch, HostTable
from ..locality import places_of_host
from .zones import zone_of

_MIB_PER_GIB = 1024


class HostCondition(enum.StrEnum):
    """Whether a host can take instances; if several members apply, the first one."""

    FORCED_DOWN = "forced down"
    DISABLED = "disabled"
    DOWN = "down"
    UP = "up"


_FORCED_DOWN, _DISABLED, _DOWN, _UP = range(len(HostCondition))
_CONDITIONS: Final = np.array(list(HostCondition), dtype=object)


@dataclasses.dataclass(frozen=True, slots=True)
class HostSummary:
    """One compute node.

    Attributes
    ----------
    cell : str
        The name of its cell; the cell's UUID if the source of hosts knows no name.
    disabled_reason : str
        Why the host is disabled; empty if it is enabled, or if no reason was given.
    seen_s : float or None
        Seconds since the last heartbeat of its service; None: no heartbeat is known.
    vcpus, memory_mb, disk_gb : tuple of (int, int)
        The amount that instances and pending claims use, and the total without
        overcommitment.
    allocation_ratios : tuple of (float, float, float)
        The factors by which the totals of vCPUs, memory and disk are multiplied.
    n_claims : int
        Claims that no report of the host includes yet.
    places : mapping
        The names of its places by level of ``[locality] levels``: one name a level,
        unless the host has no place there, or its places conflict.
    """

    host: str
    node: str
    node_uuid: str
    cell_uuid: str
    cell: str
    zone: str
    condition: HostCondition
    disabled_reason: str
    seen_s: float | None
    vcpus: tuple[int, int]
    memory_mb: tuple[int, int]
    disk_gb: tuple[int, int]
    allocation_ratios: tuple[float, float, float]
    n_instances: int
    n_claims: int
    places: Mapping[str, Sequence[str]]


@dataclasses.dataclass(frozen=True, slots=True)
class HostPage:
    """One page of the list of compute nodes.

    Attributes
    ----------
    n_hosts : int
        The number of all compute nodes, on all pages.
    next : str or None
        The argument `after` of `summarize` for the next page; None: this page is the
        last one.
    """

    hosts: tuple[HostSummary, ...]
    n_hosts: int
    next: str | None


def summarize(
    table: HostTable,
    conf: cfg.ConfigOpts,
    now: float,
    *,
    after: str = "",
    limit: int | None = None,
    node_uuids: Collection[str] | None = None,
) -> HostPage:
    """Return compute nodes of a table, ordered by the text HOST/NODE.

    Parameters
    ----------
    now : float
        Seconds since the epoch.
    after : str
        `HostPage.next` of the previous page.
    node_uuids : collection of str, optional
        Only these compute nodes.
    """
    hosts = table.batch()
    names = zip(hosts.host.tolist(), hosts.nodename.tolist(), strict=True)
    keys = [f"{host}/{node}" for host, node in names]
    following = [i for i, key in enumerate(keys) if key > after]
    if node_uuids is not None:
        uuids = hosts.uuid
        following = [i for i in following if uuids[i] in node_uuids]
    following.sort(key=keys.__getitem__)
    claims = Counter(claim.node_uuid for claim in table.claims.unreported())
    page = following[:limit]
    conditions = host_conditions(hosts, now, conf.service_down_time)
    return HostPage(
        tuple(
            _summary(hosts, i, conditions[i], conf, now, claims, table.cell_names)
            for i in page
        ),
        len(hosts),
        keys[page[-1]] if len(following) > len(page) else None,
    )


def _summary(
    hosts: HostBatch,
    index: int,
    condition: HostCondition,
    conf: cfg.ConfigOpts,
    now: float,
    claims: Counter[str],
    cell_names: Mapping[str, str],
) -> HostSummary:
    def value(name: str) -> int:
        return int(hosts.value(name, index))

    seen_at: float = hosts.value("last_seen_up", index)
    seen_s = now - seen_at if math.isfinite(seen_at) else None
    node_uuid = str(hosts.value("uuid", index))
    cell_uuid: str = hosts.value("cell_uuid", index)
    memory_mb, disk_gb = value("total_usable_ram_mb"), value("total_usable_disk_gb")
    free_gb = value("free_disk_mb") // _MIB_PER_GIB
    return HostSummary(
        host=hosts.value("host", index),
        node=hosts.value("nodename", index),
        node_uuid=node_uuid,
        cell_uuid=cell_uuid,
        cell=cell_names.get(cell_uuid, cell_uuid),
        zone=zone_of(hosts.value("aggregates", index), conf.default_availability_zone),
        condition=condition,
        disabled_reason=(
            (hosts.value("disabled_reason", index) or "")
            if hosts.value("disabled", index)
            else ""
        ),
        seen_s=seen_s,
        vcpus=(value("vcpus_used"), value("vcpus_total")),
        memory_mb=(memory_mb - value("free_ram_mb"), memory_mb),
        disk_gb=(disk_gb - free_gb, disk_gb),
        allocation_ratios=(
            hosts.value("cpu_allocation_ratio", index),
            hosts.value("ram_allocation_ratio", index),
            hosts.value("disk_allocation_ratio", index),
        ),
        n_instances=value("num_instances"),
        n_claims=claims[node_uuid],
        places=places_of_host(
            hosts.value("aggregates", index),
            hosts.value("places", index),
            conf.locality.levels,
            hosts.value("placement_places", index),
        ),
    )


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
