# SPDX-License-Identifier: Apache-2.0
"""List hosts for an operator: state, age, fill, pending claims."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from oslo_config import cfg

from ..hosts import HostBatch, HostTable
from ..hosts.instances import InstanceMap
from ..locality import places_of_host
from .host_arrays import HostCondition, host_conditions
from .host_room import CloudRoom, HostRoom
from .zones import zone_of

_MIB_PER_GIB = 1024


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
    seen_at : float or None
        The time of that heartbeat, seconds since the epoch.
    vcpus, memory_mb, disk_gb : tuple of (int, int)
        The amount that instances and pending claims use, and the total without
        overcommitment.
    allocation_ratios : tuple of (float, float, float)
        The factors by which the totals of vCPUs, memory and disk are multiplied.
    n_instances : int or None
        None: the source reports no instances, and none was claimed.
    n_claims : int
        Claims that no report of the host includes yet.
    places : mapping
        The names of its places by level of ``[locality] levels``: one name a level,
        unless the host has no place there, or its places conflict.
    fits : mapping or None
        How many more instances of each of the largest recent flavors fit, by name, if
        no other flavor comes; None: unknown.
    stranded : tuple of (int, int, int) or None
        Free vCPUs, MiB and GB that no recent flavor can use; None: unknown, or the host
        takes no instances at all.
    instances : tuple of str or None
        The known instances of the service host; None: they were not asked for.
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
    seen_at: float | None
    vcpus: tuple[int, int]
    memory_mb: tuple[int, int]
    disk_gb: tuple[int, int]
    allocation_ratios: tuple[float, float, float]
    n_instances: int | None
    n_claims: int
    places: Mapping[str, Sequence[str]]
    fits: Mapping[str, int] | None = None
    stranded: tuple[int, int, int] | None = None
    instances: tuple[str, ...] | None = None


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
    room : CloudRoom or None
        The room of all hosts for recent flavors; None: unknown, and a note says why.
    notes : tuple of str
        What is unknown of the hosts.
    """

    hosts: tuple[HostSummary, ...]
    n_hosts: int
    next: str | None
    room: CloudRoom | None = None
    notes: tuple[str, ...] = ()


def summarize(  # noqa: PLR0913 - all but three by name
    table: HostTable,
    conf: cfg.ConfigOpts,
    now: float,
    *,
    after: str = "",
    limit: int | None = None,
    room: HostRoom | None = None,
    is_reporting: bool = True,
    has_instances: bool = False,
    node_uuids: Collection[str] | None = None,
    notes: Sequence[str] = (),
) -> HostPage:
    """Return compute nodes of a table, ordered by the text HOST/NODE.

    Parameters
    ----------
    now : float
        Seconds since the epoch.
    after : str
        `HostPage.next` of the previous page.
    room : HostRoom, optional
        The room of all hosts of the table.
    is_reporting : bool
        Whether the source reports the instances of hosts.
    has_instances : bool
        Whether to list the instances of each host.
    node_uuids : collection of str, optional
        Only these compute nodes.
    """
    hosts = table.batch() if room is None else room.hosts
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
    summaries = [
        _summary(
            hosts,
            i,
            conditions[i],
            conf,
            now,
            claims,
            table.cell_names,
            room=room,
            is_reporting=is_reporting,
            instances=table.instances if has_instances else None,
        )
        for i in page
    ]
    return HostPage(
        tuple(summaries),
        len(hosts),
        keys[page[-1]] if len(following) > len(page) else None,
        None if room is None else room.cloud,
        tuple(notes),
    )


def _summary(  # noqa: PLR0913 - what `summarize` has read of all hosts
    hosts: HostBatch,
    index: int,
    condition: HostCondition,
    conf: cfg.ConfigOpts,
    now: float,
    claims: Counter[str],
    cell_names: Mapping[str, str],
    *,
    room: HostRoom | None,
    is_reporting: bool,
    instances: InstanceMap | None,
) -> HostSummary:
    def value(name: str) -> int:
        return int(hosts.value(name, index))

    seen_at: float | None = hosts.value("last_seen_up", index)
    if seen_at is not None and not math.isfinite(seen_at):
        seen_at = None
    node_uuid = str(hosts.value("uuid", index))
    cell_uuid: str = hosts.value("cell_uuid", index)
    memory_mb, disk_gb = value("total_usable_ram_mb"), value("total_usable_disk_gb")
    free_gb = value("free_disk_mb") // _MIB_PER_GIB
    host, n_instances = hosts.value("host", index), value("num_instances")
    return HostSummary(
        host=host,
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
        seen_s=None if seen_at is None else now - seen_at,
        seen_at=seen_at,
        vcpus=(value("vcpus_used"), value("vcpus_total")),
        memory_mb=(memory_mb - value("free_ram_mb"), memory_mb),
        disk_gb=(disk_gb - free_gb, disk_gb),
        allocation_ratios=(
            hosts.value("cpu_allocation_ratio", index),
            hosts.value("ram_allocation_ratio", index),
            hosts.value("disk_allocation_ratio", index),
        ),
        n_instances=n_instances if is_reporting or n_instances else None,
        n_claims=claims[node_uuid],
        places=places_of_host(
            hosts.value("aggregates", index),
            hosts.value("places", index),
            conf.locality.levels,
            hosts.value("placement_places", index),
        ),
        fits=None if room is None else room.fits_on(index),
        stranded=None if room is None else room.stranded_on(index),
        instances=(
            None if instances is None else tuple(sorted(instances.of_host(host)))
        ),
    )
