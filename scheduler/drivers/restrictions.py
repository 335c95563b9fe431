# SPDX-License-Identifier: Apache-2.0
"""Restrict hosts to those that a request names: requested, forced, not ignored."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np
import numpy.typing as npt

from ..errors import NoValidHost
from ..hosts import HostBatch, HostTable
from ..placement.query import Requirements
from ..request import Request
from .record import FilterStep

#: The reason of the steps that a request's own restrictions leave in the record.
REQUIRED: Final = "required by the request"


def restrict_to_requested_host(
    request: Request,
    table: HostTable,
    requirements: Requirements,
    poll: Callable[[HostTable], object],
) -> None:
    """Restrict the query for Placement to the host that a request names, if any.

    If the host has a single compute node, the query has its UUID as ``in_tree``. If the
    host has several, the query has no limit, so that Placement returns all of them.

    Parameters
    ----------
    poll : callable
        Refreshes the table; called if the table has no such compute node.

    Raises
    ------
    NoValidHost
        No compute node has the requested names of host and node.
    """
    if request.requested_host is None:
        return
    nodes = table.nodes_of(*request.requested_host)
    if not nodes:
        poll(table)
        nodes = table.nodes_of(*request.requested_host)
    if not nodes:
        host, node, _ = request.requested_host
        # The wording, with the trailing space, is nova's: API users see it.
        raise NoValidHost(f"No such host - host: {host} node: {node} ")
    if len(nodes) == 1:
        requirements.in_tree = nodes[0]
    else:
        requirements.is_limited = False


def restrict_hosts(
    hosts: HostBatch, request: Request, steps: list[FilterStep]
) -> HostBatch:
    """Return the hosts that the request allows; append their numbers to `steps`.

    The order is nova's: the requested destination, ``ignore_hosts``, ``force_hosts``,
    ``force_nodes``. Names of ignored and forced hosts are case-insensitive, all others
    are case-sensitive.
    """
    for restriction in restrictions(request):
        allowed = hosts.take(restriction.allows(hosts))
        steps.append(FilterStep(restriction.name, len(hosts), len(allowed), REQUIRED))
        hosts = allowed
    return hosts


@dataclasses.dataclass(frozen=True, slots=True)
class Restriction:
    """One restriction of a request to some hosts.

    Attributes
    ----------
    column : str
        The column of the host table that is compared with `values`.
    values : sequence of str
        The values that hosts must have or, if `is_forbidding`, must not have.
    """

    name: str
    column: str
    values: Sequence[str]
    ignores_case: bool = False
    is_forbidding: bool = False

    def allows(self, hosts: HostBatch) -> npt.NDArray[np.bool_]:
        """Return which hosts the restriction allows, shape (n_hosts,)."""
        if self.ignores_case:
            names = {name.lower() for name in self.values}
            lowered = hosts.map_distinct("host", str.lower, object, cache_key=str.lower)
            mask = np.fromiter((name in names for name in lowered), bool, len(hosts))
        else:
            mask = hosts.matches(self.column, self.values)
        return ~mask if self.is_forbidding else mask


def restrictions(request: Request) -> Iterator[Restriction]:
    """Yield the restrictions of a request in nova's order."""
    destination = request.destination
    exact = {
        "host": destination.host,
        "nodename": destination.node,
        "cell_uuid": destination.cell,
    }
    for column, value in exact.items():
        if value:
            yield Restriction(f"requested_destination {column}", column, [value])
    if names := request.ignore_hosts:
        yield Restriction(
            "ignore_hosts", "host", names, ignores_case=True, is_forbidding=True
        )
    if names := request.force_hosts:
        yield Restriction("force_hosts", "host", names, ignores_case=True)
    if names := request.force_nodes:
        yield Restriction("force_nodes", "nodename", names)


def evacuated_from(
    request: Request, table: HostTable, held: Iterable[AbstractSet[str]]
) -> frozenset[str]:
    """Return the providers of hosts from which an instance may be evacuated.

    A conductor that evacuates an instance leaves its allocations on the source host in
    place, and adds the source host to ``ignore_hosts``. A host that has been down for
    long may have no row any more: then its providers are those of the instance, if none
    of them has one.

    Parameters
    ----------
    held : iterable of set of str
        The providers from which each instance has allocations; read where needed only.
    """
    names = {name.lower() for name in request.ignore_hosts or ()}
    if not names:
        return frozenset()
    hosts = table.batch()
    ignored = Restriction("ignore_hosts", "host", [*names], ignores_case=True)
    hosts = hosts.take(ignored.allows(hosts))
    providers = set(hosts.uuid)
    if not names <= {host.lower() for host in hosts.host}:
        for of_instance in held:
            if not any(map(table.has_node, of_instance)):
                providers |= of_instance
    return frozenset(providers)
