# SPDX-License-Identifier: Apache-2.0
"""Plan how to empty hosts.

instances on the hosts ─▶ their requests ─▶ hosts that each could go to
    ─▶ those with the fewest choices first: decide, count, next
    ─▶ one that others left without a host goes first, and all are decided again
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ..drivers.parts import Parts
from ..errors import InvalidRequest, excerpt
from ..explain import HostSearch, UnknownHost
from ..explain.explainer import similar_names
from ..explain.host_search import find_hosts
from ..placement.providers import ProviderView
from .cloud import FindRequests, PlannedCloud
from .moves import Attempt, Instances, check_failure, plan_of, used_mb_of
from .plan import Plan

#: The most instances of one plan.
MAX_INSTANCES: Final = 4000
#: No further order is tried once a plan would need more decisions than this: some ten
#: seconds in a cloud of 10,000 hosts.
_MAX_DECISIONS: Final = 1200


def hosts_to_drain(
    parts: Parts,
    *,
    hosts: Collection[str] = (),
    place: str = "",
    aggregate: str = "",
) -> list[str]:
    """Return the service hosts that are named, in a place, or in a host aggregate.

    Parameters
    ----------
    hosts : collection of str
        Names of service hosts or of compute nodes.
    place : str
        A level and the name of a place: "rack=r1".
    aggregate : str
        The name or UUID of a host aggregate.

    Raises
    ------
    UnknownHost
    InvalidRequest
        There is no such place or aggregate, or it has no hosts.
    """
    table = parts.table
    known = sorted(set(table.batch().host.tolist()))
    if place:
        search = HostSearch(place=place)
        nodes = find_hosts(table, parts.conf, parts.clock(), search)
        named = {host for node in nodes if (host := table.host_of(node))}
        if not named:
            raise InvalidRequest(f"place: no host is in {excerpt(place)}")
        return sorted(named)
    if aggregate:
        found = [a for a in table.aggregates if aggregate in (a.name, a.uuid)]
        if not found:
            similar = similar_names(aggregate, [a.name for a in table.aggregates])
            hint = f"; similar: {', '.join(similar)}" if similar else ""
            raise InvalidRequest(
                f"aggregate: there is no host aggregate {excerpt(aggregate)}{hint}"
            )
        named = {host for a in found for host in a.hosts}.intersection(known)
        if not named:
            raise InvalidRequest(f"aggregate: {excerpt(aggregate)} has no known host")
        return sorted(named)
    named = set()
    for name in hosts:
        nodes_of_name = table.nodes_of(name) or table.nodes_of(None, name)
        if not nodes_of_name:
            similar = similar_names(name, known)
            hint = f"; similar: {', '.join(similar)}" if similar else ""
            raise UnknownHost(
                f"There is no host {excerpt(name)} among {len(known)}{hint}"
            )
        named |= {host for node in nodes_of_name if (host := table.host_of(node))}
    return sorted(named)


def plan_drain(
    parts: Parts,
    view: ProviderView,
    hosts: Collection[str],
    find_requests: FindRequests,
    *,
    keep_up: int = 0,
    parallel: int = 1,
) -> Plan:
    """Return the moves that empty service hosts.

    The instances of a host that is emptied go to none of the others. The same state of
    the cloud gives the same plan.

    Parameters
    ----------
    keep_up : int
        How many of the hosts are not emptied: those whose instances use the most
        memory. They may take instances.
    parallel : int
        The most moves at the same time.

    Raises
    ------
    InvalidRequest
        Nothing is left to empty, or there are too many instances.
    SchedulerError
        A component failed.
    """
    cloud = PlannedCloud(parts, view)
    drained, kept_up = _chosen(cloud, hosts, keep_up)
    n_named = len({u for h in drained for u in cloud.table.instances.of_host(h)})
    if n_named > MAX_INSTANCES:
        raise InvalidRequest(
            f"The {len(drained)} hosts have {n_named:,} instances: a plan moves "
            f"at most {MAX_INSTANCES:,}; name fewer hosts"
        )
    batch = cloud.table.batch()
    batch = batch.take(batch.matches("host", drained))
    n_counted = int(batch.num_instances.sum()) if parts.source.is_reporting else 0
    instances = Instances(cloud, find_requests, drained)
    order = sorted(instances.read(drained), key=lambda instance: instance.first_order)
    n_decisions = instances.n_decisions
    best: Attempt | None = None
    tried = set[str]()
    while True:
        attempt = Attempt(PlannedCloud(parts, view))
        for instance in order:
            attempt.move(instance, drained)
        n_decisions += len(order)
        if best is None or len(attempt.left) < len(best.left):
            best = attempt
        first = [i for i in attempt.left if i.n_choices and i.uuid not in tried]
        if not first or n_decisions + len(order) > _MAX_DECISIONS:
            break
        tried |= {instance.uuid for instance in first}
        order = [*first, *(i for i in order if i not in first)]
    n_unplaceable = sum(not instance.n_choices for instance in order)
    return plan_of(
        cloud,
        best.steps,
        kind="drain",
        parallel=parallel,
        hosts=drained,
        kept_up=kept_up,
        stuck=[*instances.stuck, *best.explained()],
        unknown=instances.unknown,
        n_unnamed=max(0, n_counted - n_named),
        n_never_fit=len(instances.stuck) + n_unplaceable,
        failure=check_failure(best.cloud, drained, find_requests, instances.known),
    )


def _chosen(
    cloud: PlannedCloud, hosts: Collection[str], keep_up: int
) -> tuple[list[str], list[str]]:
    """Return the hosts to empty and those that stay up, each sorted."""
    if keep_up >= len(hosts):
        raise InvalidRequest(
            f"keep_up: {keep_up} of {len(hosts)} host(s) stay up: nothing is left to "
            "empty"
        )
    used_mb = used_mb_of(cloud)
    by_use = sorted(hosts, key=lambda host: (-used_mb.get(host, 0), host))
    return sorted(by_use[keep_up:]), sorted(by_use[:keep_up])
