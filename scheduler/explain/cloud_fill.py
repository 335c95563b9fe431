# SPDX-License-Identifier: Apache-2.0
"""Sum up how full hosts are, by availability zone and cell, by cell, or by place."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy.typing as npt
from oslo_config import cfg

from ..errors import InvalidRequest, excerpt
from ..hosts import HostBatch, HostTable
from ..locality import Places
from .host_arrays import (
    HostCondition,
    ResourceFill,
    host_conditions,
    host_resources,
)
from .zones import zones_of

#: Groupings of hosts, in addition to the levels of ``[locality] levels``, which cannot
#: have these names.
BY_ZONE: Final = "availability-zone"
BY_CELL: Final = "cell"


#: What identifies a group: whether it is a zone, cell or place (False: its hosts are in
#: no place), its kind, its name, and the cell of a zone.
_GroupKey = tuple[bool, str, str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class FillGroup:
    """The compute nodes of a zone in a cell, of a cell, or of a place.

    They are ordered by host and node.

    Attributes
    ----------
    kind, name : str
        Such as "rack" and "r7"; "" and "no rack" for hosts without a place.
    cell_uuid : str
        The cell of a zone; "" for other groups.
    hosts, conditions : list
        The service host and the condition of each compute node.
    resources : mapping
        The fill of each resource, by the names in `RESOURCES`.
    """

    kind: str
    name: str
    cell_uuid: str
    hosts: list[str]
    conditions: list[HostCondition]
    resources: Mapping[str, ResourceFill]

    @property
    def label(self) -> str:
        """The group's kind and name."""
        return f"{self.kind} {self.name}".strip()


@dataclasses.dataclass(frozen=True, slots=True)
class CloudFill:
    """All compute nodes in groups.

    Attributes
    ----------
    by : str
        What the compute nodes are grouped by: one of `groupings`.
    n_cells : int
        The number of cells that have hosts.
    """

    groups: tuple[FillGroup, ...]
    by: str
    groupings: tuple[str, ...]
    n_cells: int
    n_hosts: int
    n_instances: int
    n_claims: int
    conditions: Mapping[HostCondition, int]


def cloud_fill(
    table: HostTable, conf: cfg.ConfigOpts, now: float, by: str = BY_ZONE
) -> CloudFill:
    """Return how full the hosts of a table are at `now`, seconds since the epoch.

    Parameters
    ----------
    by : str
        `BY_ZONE`: by availability zone and cell; `BY_CELL`; or a configured level.

    Raises
    ------
    InvalidRequest
        `by` is neither of these nor a configured level.
    """
    groupings = (BY_ZONE, BY_CELL, *dict.fromkeys(conf.locality.levels))
    if by not in groupings:
        raise InvalidRequest(f"by: {excerpt(by)} is none of {', '.join(groupings)}")
    hosts = table.batch()
    conditions = host_conditions(hosts, now, conf.service_down_time)
    n_hosts_of = Counter(conditions.tolist())
    return CloudFill(
        tuple(_groups(hosts, conditions, _group_keys(hosts, conf, by))),
        by,
        groupings,
        len(set(hosts.cell_uuid.tolist())),
        len(hosts),
        int(hosts.num_instances.sum()) if len(hosts) else 0,
        len(table.claims.unreported()),
        {condition: n_hosts_of[condition] for condition in HostCondition},
    )


def _group_keys(hosts: HostBatch, conf: cfg.ConfigOpts, by: str) -> list[_GroupKey]:
    """Return the kind, the name and the cell of each host's group."""
    cells = hosts.cell_uuid.tolist()
    if by == BY_ZONE:
        zones = zones_of(hosts, conf.default_availability_zone).tolist()
        return [
            (True, "zone", zone, cell) for zone, cell in zip(zones, cells, strict=True)
        ]
    if by == BY_CELL:
        return [(True, "cell", cell, "") for cell in cells]
    places = Places(hosts, tuple(dict.fromkeys(conf.locality.levels)))
    codes = places.at(by)
    names = {
        code: (code >= 0, by if code >= 0 else "", places.name(by, code), "")
        for code in set(codes.tolist())
    }
    return [names[code] for code in codes.tolist()]


def _groups(
    hosts: HostBatch, conditions: npt.NDArray[Any], names: Sequence[_GroupKey]
) -> Iterator[FillGroup]:
    resources = host_resources(hosts)
    keys = zip(
        names,
        hosts.host.tolist(),
        hosts.nodename.tolist(),
        range(len(hosts)),
        strict=True,
    )
    members: dict[_GroupKey, list[int]] = {}
    for name, _, _, index in sorted(keys):
        members.setdefault(name, []).append(index)
    # Hosts that are in no place, or in several, come last.
    for name, indices in sorted(members.items(), key=lambda item: not item[0][0]):
        yield FillGroup(
            *name[1:],
            hosts.host[indices].tolist(),
            conditions[indices].tolist(),
            {
                name: ResourceFill(fill.used[indices], fill.capacity[indices])
                for name, fill in resources.items()
            },
        )
