# SPDX-License-Identifier: Apache-2.0
"""Find compute nodes by name, state, zone or place, and sort them, on arrays."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from oslo_config import cfg

from ..errors import InvalidRequest, excerpt
from ..hosts import HostBatch, HostTable
from ..locality import Places
from .host_arrays import HostCondition, host_conditions, host_resources
from .zones import zones_of

_RESOURCES: Final = {"vcpu": "vcpus", "ram": "memory_mb", "disk": "disk_gb"}
#: What hosts can be sorted by; the names are those of `moorage hosts --sort`.
SORTS: Final = ("host", "zone", "state", "seen", *_RESOURCES, "instances", "claims")
#: A state besides those of `HostCondition`: all but up.
NOT_UP: Final = "not up"

_Values = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True, slots=True)
class HostSearch:
    """What compute nodes are searched by; "" matches all of them.

    Attributes
    ----------
    text : str
        A part of the name of the host or of the node, in any case.
    state : str
        A value of `HostCondition`, or `NOT_UP`.
    place : str
        A level and the name of a place: "rack=r1".
    sort : str
        One of `SORTS`; after "-", the largest is the first. Unknown numbers come last.
    """

    text: str = ""
    state: str = ""
    zone: str = ""
    place: str = ""
    sort: str = "host"


def find_hosts(
    table: HostTable, conf: cfg.ConfigOpts, now: float, search: HostSearch
) -> list[str]:
    """Return the UUIDs of the compute nodes that match, in order.

    Parameters
    ----------
    now : float
        Seconds since the epoch.

    Raises
    ------
    InvalidRequest
        There is no such state, level or order.
    """
    hosts = table.batch()
    if not len(hosts):
        return []
    conditions = host_conditions(hosts, now, conf.service_down_time)
    zones = zones_of(hosts, conf.default_availability_zone)
    matches = np.ones(len(hosts), dtype=bool)
    if search.text:
        matches &= _named(hosts, search.text.casefold())
    if search.state:
        matches &= _in_state(conditions, search.state)
    if search.zone:
        matches &= zones == search.zone
    if search.place:
        matches &= _in_place(hosts, conf, search.place)
    order = _order(table, hosts, conditions, zones, search.sort)
    uuids = hosts.uuid
    return [str(uuids[i]) for i in order.tolist() if matches[i]]


def _named(hosts: HostBatch, text: str) -> npt.NDArray[np.bool_]:
    names = zip(hosts.host.tolist(), hosts.nodename.tolist(), strict=True)
    return np.array(
        [text in host.casefold() or text in node.casefold() for host, node in names],
        dtype=bool,
    )


def _in_state(conditions: _Values, state: str) -> npt.NDArray[np.bool_]:
    if state == NOT_UP:
        return np.asarray(conditions != HostCondition.UP, dtype=bool)
    if state not in {*HostCondition}:
        states = ", ".join([*HostCondition, NOT_UP])
        raise InvalidRequest(f"state: {excerpt(state)} is none of {states}")
    return np.asarray(conditions == HostCondition(state), dtype=bool)


def _in_place(
    hosts: HostBatch, conf: cfg.ConfigOpts, place: str
) -> npt.NDArray[np.bool_]:
    level, _, name = place.partition("=")
    levels = tuple(dict.fromkeys(conf.locality.levels))
    if level not in levels or not name:
        forms = ", ".join(f"{level}=NAME" for level in levels)
        known = forms or "no level is configured"
        raise InvalidRequest(f"place: {excerpt(place)} is not a place: {known}")
    places = Places(hosts, levels)
    codes = places.at(level)
    named = [
        code for code in set(codes.tolist())
        if code >= 0 and places.name(level, code) == name
    ]  # fmt: skip
    return np.isin(codes, named)


def _order(
    table: HostTable,
    hosts: HostBatch,
    conditions: _Values,
    zones: _Values,
    sort: str,
) -> npt.NDArray[np.int64]:
    """Return the indices of the hosts in order; equal hosts are ordered by name."""
    name = sort.removeprefix("-")
    keys = zip(hosts.host.tolist(), hosts.nodename.tolist(), strict=True)
    by_name = np.array(
        [i for _, i in sorted((key, i) for i, key in enumerate(keys))], dtype=np.int64
    )
    if name == "host":
        return by_name[::-1] if sort.startswith("-") else by_name
    sorted_by: Mapping[str, Callable[[], _Values]] = {
        "zone": lambda: np.unique(zones.astype(str), return_inverse=True)[1],
        "state": lambda: np.unique(conditions.astype(str), return_inverse=True)[1],
        "seen": lambda: -hosts.last_seen_up,  # the time since then
        "instances": lambda: hosts.num_instances,
        "claims": lambda: _n_claims(table, hosts),
        **{key: _shares(hosts, column) for key, column in _RESOURCES.items()},
    }
    if name not in sorted_by:
        raise InvalidRequest(f"sort: {excerpt(sort)} is none of {', '.join(SORTS)}")
    values = np.asarray(sorted_by[name](), dtype=float)[by_name]
    values = np.where(np.isfinite(values), values, np.nan)
    # NaN is sorted to the end in both directions.
    return by_name[
        np.argsort(-values if sort.startswith("-") else values, kind="stable")
    ]


def _shares(hosts: HostBatch, column: str) -> Callable[[], _Values]:
    return lambda: host_resources(hosts)[column].shares


def _n_claims(table: HostTable, hosts: HostBatch) -> _Values:
    n_claims = Counter(claim.node_uuid for claim in table.claims.unreported())
    return np.array([n_claims[uuid] for uuid in hosts.uuid.tolist()])
