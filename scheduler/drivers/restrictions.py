# SPDX-License-Identifier: Apache-2.0
"""The restrictions to hosts that a request names: requested, forced, ignored."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ...objects import RequestSpec
from ..errors import NoValidHost
from ..hosts import HostBatch, HostTable
from ..placement.query import Requirements
from .record import FilterStep

_CHECK_TYPE = "_nova_check_type"


def is_rebuild(spec_obj: RequestSpec) -> bool:
    """Return whether a request checks if an instance can be rebuilt on its host."""
    return _check_types(spec_obj) == ["rebuild"]


def skips_filters(spec_obj: RequestSpec) -> bool:
    """Return whether hosts are forced, so that no filter runs (nova's rule)."""
    is_forced = bool(_names(spec_obj, "force_hosts") or _names(spec_obj, "force_nodes"))
    return is_forced and not _check_types(spec_obj)


def _check_types(spec_obj: RequestSpec) -> list[str]:
    hints = spec_obj.scheduler_hints or {}
    return list(hints.get(_CHECK_TYPE) or [])


def _names(spec_obj: RequestSpec, field: str) -> list[str]:
    return list(getattr(spec_obj, field) or []) if field in spec_obj else []


def _requested(spec_obj: RequestSpec) -> tuple[str | None, str | None, str | None]:
    """Return the host, node and cell of the requested destination."""
    destination = spec_obj.requested_destination
    if destination is None:
        return None, None, None
    host = destination.host if "host" in destination else None
    node = destination.node if "node" in destination else None
    may_leave = destination.allow_cross_cell_move
    cell = destination.cell if "cell" in destination and not may_leave else None
    return host, node, cell.uuid if cell else None


def restrict_to_requested_host(
    spec_obj: RequestSpec,
    table: HostTable,
    requirements: Requirements,
    poll: Callable[[], object],
) -> None:
    """Restrict the query for Placement to the host that a request names.

    A single compute node becomes ``in_tree``; for a host with several, the query has no
    limit, so that it returns all of them.

    Parameters
    ----------
    poll : callable
        Refreshes the table; called if no compute node has that name yet.

    Raises
    ------
    NoValidHost
        No compute node has that name.
    """
    host, node, cell = _requested(spec_obj)
    if not host and not node:
        host = next(iter(_names(spec_obj, "force_hosts")), None)
        node = next(iter(_names(spec_obj, "force_nodes")), None)
    if not host and not node:
        return
    requested = host or None, node or None, cell
    nodes = table.nodes_of(*requested)
    if not nodes:
        poll()
        nodes = table.nodes_of(*requested)
    if not nodes:
        # The wording, with the trailing space, is nova's: API users see it.
        raise NoValidHost(f"No such host - host: {host} node: {node} ")
    if len(nodes) == 1:
        requirements.in_tree = nodes[0]
    else:
        requirements.is_limited = False


def restrict_hosts(
    hosts: HostBatch, spec_obj: RequestSpec, steps: list[FilterStep]
) -> HostBatch:
    """Return the hosts that the request allows; append their numbers to `steps`.

    The order is nova's: the requested destination, ``ignore_hosts``, ``force_hosts``,
    ``force_nodes``. Names of ignored and forced hosts are case-insensitive, all others
    are case-sensitive.
    """
    host, node, cell = _requested(spec_obj)
    exact = (("host", host), ("nodename", node), ("cell_uuid", cell))
    for column, value in exact:
        if value:
            mask = hosts.matches(column, [value])
            hosts = _step(hosts, mask, f"requested_destination {column}", steps)
    if ignored := _names(spec_obj, "ignore_hosts"):
        hosts = _step(hosts, ~_named(hosts, ignored), "ignore_hosts", steps)
    if forced := _names(spec_obj, "force_hosts"):
        hosts = _step(hosts, _named(hosts, forced), "force_hosts", steps)
    if nodes := _names(spec_obj, "force_nodes"):
        hosts = _step(hosts, hosts.matches("nodename", nodes), "force_nodes", steps)
    return hosts


def _named(hosts: HostBatch, names: Iterable[str]) -> np.ndarray:
    folded = {name.lower() for name in names}
    return hosts.map_distinct("host", lambda host: host.lower() in folded, bool)


def _step(
    hosts: HostBatch, mask: np.ndarray, name: str, steps: list[FilterStep]
) -> HostBatch:
    left = hosts.take(mask)
    steps.append(FilterStep(name, len(hosts), len(left), "required by the request"))
    return left


def evacuated_from(spec_obj: RequestSpec, table: HostTable) -> frozenset[str]:
    """Return the providers of the host from which an instance may be evacuated.

    A conductor that evacuates leaves the instance's allocations there in place, and
    puts the host into ``ignore_hosts``.
    """
    ignored = _names(spec_obj, "ignore_hosts")
    if not ignored:
        return frozenset()
    hosts = table.batch()
    return frozenset(hosts.take(hosts.matches("host", ignored)).uuid)
