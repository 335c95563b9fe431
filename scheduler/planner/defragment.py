# SPDX-License-Identifier: Apache-2.0
"""Plan the moves that empty the most hosts.

hosts by what they use, or by instances ─▶ as many of the first ones as could be emptied
    at best are kept free ─▶ host by host: all its instances find hosts that stay, or
    none moves, and the next host is tried in its place
    ─▶ again in the other order, and with fewer hosts kept free, or none, which leaves
    more destinations
    ─▶ the plan that empties the most hosts, of those the one with the least memory
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Collection
from typing import Final

import numpy as np

from ..drivers.parts import Parts
from ..explain import HostCondition, host_conditions
from ..placement.providers import ProviderView
from .cloud import FindRequests, PlannedCloud
from .moves import (
    Attempt,
    Instances,
    KnownInstance,
    check_failure,
    plan_of,
    used_mb_of,
)
from .plan import Goal, Plan

#: The shares of the hosts that could be emptied at best which are kept free of
#: instances, in order. Weighers that spread would choose the very hosts that are
#: emptied next; with those that pack, more hosts are emptied if none is kept free.
_SHARES: Final = (1.0, 0.75, 0.5, 0.25, 0.0)
#: A try ends after so many hosts in a row that cannot be emptied.
_MAX_FAILURES: Final = 20
#: The same if none is kept free: requests that were refused are not decided again.
_MAX_FAILURES_OF_NONE_KEPT: Final = 200
#: So many sources of equal requests that were refused: a second one, as an instance can
#: fit on the source of the first.
_MAX_REFUSALS: Final = 2
_MIB_PER_GIB: Final = 1024


def plan_defragment(
    parts: Parts,
    view: ProviderView,
    find_requests: FindRequests,
    *,
    max_moves: int = 200,
    max_gib: float | None = None,
    seconds: float = 60.0,
    parallel: int = 1,
) -> Plan:
    """Return the moves that empty the most hosts, for the least memory moved.

    A host is emptied or none of its instances moves; the instances go to no host that
    is empty. Hosts that are down are not emptied: nothing can be moved from them. The
    same state of the cloud gives the same plan unless the time ends it.

    Parameters
    ----------
    max_gib : float or None
        The most memory that is moved, GiB; None: any.
    seconds : float
        When the search ends; the best plan so far is returned.

    Raises
    ------
    SchedulerError
        A component failed.
    """
    ends_at = time.monotonic() + seconds
    cloud = PlannedCloud(parts, view)
    max_mb = np.inf if max_gib is None else max_gib * _MIB_PER_GIB
    used_mb, instances_of = used_mb_of(cloud), cloud.table.instances.of_host
    hosts = cloud.table.batch()
    down_time = parts.conf.service_down_time
    conditions = host_conditions(hosts, parts.clock(), down_time)
    is_down = np.isin(conditions, [HostCondition.DOWN, HostCondition.FORCED_DOWN])
    down = set(hosts.host[is_down].tolist())
    empty = sorted(host for host in used_mb if not instances_of(host))
    with_instances = [h for h in used_mb if instances_of(h) and h not in down]
    n_on = {host: len(instances_of(host)) for host in with_instances}
    orders = (
        sorted(with_instances, key=lambda host: (used_mb[host], n_on[host], host)),
        sorted(with_instances, key=lambda host: (n_on[host], used_mb[host], host)),
    )
    n_bound = min(
        _most_emptied(cloud, with_instances),
        _most_within(list(n_on.values()), max_moves),
        _most_within([used_mb[host] for host in with_instances], max_mb),
    )
    instances = Instances(cloud, find_requests)
    best, best_emptied, best_mb = Attempt(cloud), list[str](), 0
    is_cut_short = False
    n_tried = dict.fromkeys(round(n_bound * share) for share in _SHARES)
    for n_kept, order in itertools.product(n_tried, orders):
        if is_cut_short:
            break
        if 0 < n_kept <= len(best_emptied):
            continue
        attempt, emptied = Attempt(PlannedCloud(parts, view)), list[str]()
        moved_mb = n_failed = 0
        # Those that are emptied or may be, of which the first ones take no instances.
        chosen = order.copy()
        destinations = set[str]()
        # By the first decision that equal requests share: sources of refused ones.
        n_refused = Counter[int]()
        n_wanted = n_kept or n_bound
        max_failures = _MAX_FAILURES if n_kept else _MAX_FAILURES_OF_NONE_KEPT
        for host in order:
            is_cut_short = time.monotonic() >= ends_at
            if is_cut_short or n_failed == max_failures or len(emptied) == n_wanted:
                break
            if host in destinations or len(attempt.steps) + n_on[host] > max_moves:
                chosen.remove(host)
                continue
            found = _movable(cloud, host, instances)
            is_refused = any(n_refused[id(i.first)] == _MAX_REFUSALS for i in found)
            memory_mb = sum(instance.spec.flavor.memory_mb for instance in found)
            if not found or is_refused or moved_mb + memory_mb > max_mb:
                chosen.remove(host)
                n_failed += 1
                continue
            kept_free = (h for h in chosen if h not in destinations)
            ignored = {*empty, *emptied, *itertools.islice(kept_free, n_kept)}
            tried = attempt.copied()
            if all(tried.move(instance, ignored) for instance in found):
                attempt, n_failed = tried, 0
                moved_mb += memory_mb
                emptied.append(host)
                destinations = {step.destination for step in attempt.steps}
                continue
            chosen.remove(host)
            n_failed += 1
            # If hosts are kept free, this one takes instances from now on.
            if not n_kept:
                n_refused.update(id(instance.first) for instance in tried.left)
        if (-len(emptied), moved_mb) < (-len(best_emptied), best_mb):
            best, best_emptied, best_mb = attempt, emptied, moved_mb
    moved = set(best_emptied)
    return plan_of(
        cloud,
        best.steps,
        kind="defragment",
        parallel=parallel,
        hosts=sorted(moved),
        failure=check_failure(best.cloud, moved, find_requests, instances.known)
        if moved
        else None,
        goal=Goal(
            flavor="",
            n_wanted=len(empty) + n_bound,
            n_before=len(empty),
            n_after=len(empty) + len(moved),
            n_least_moves=sum(sorted(n_on.values())[: len(moved)]),
            n_searched=n_bound,
            is_cut_short=is_cut_short,
        ),
    )


def _movable(
    cloud: PlannedCloud, host: str, instances: Instances
) -> list[KnownInstance]:
    """Return a host's instances, fewest choices first; none: not all of them can move.

    Parameters
    ----------
    cloud : PlannedCloud
        The cloud before any move.
    """
    on_host = cloud.table.instances.of_host(host)
    found = [instances.known[uuid] for uuid in on_host if uuid in instances.known]
    if len(found) < len(on_host):
        found = instances.read([host])
    if len(found) < len(on_host) or not all(i.n_choices for i in found):
        return []
    return sorted(found, key=lambda instance: instance.first_order)


def _most_within(amounts: list[int], limit: float) -> int:
    """Return how many of the amounts, the smallest first, are within a limit."""
    return int(np.searchsorted(np.cumsum(sorted(amounts)), limit, side="right"))


def _most_emptied(cloud: PlannedCloud, with_instances: Collection[str]) -> int:
    """Return how many hosts with instances could be emptied at best.

    The vCPUs that the instances use, and their memory, each alone have to fit into the
    largest of these hosts.
    """
    hosts = cloud.table.batch()
    hosts = hosts.take(hosts.matches("host", sorted(with_instances)))
    n_least = 0
    for capacity, used in (
        (hosts.vcpus_total * hosts.cpu_allocation_ratio, hosts.vcpus_used),
        (
            hosts.total_usable_ram_mb * hosts.ram_allocation_ratio,
            hosts.total_usable_ram_mb - hosts.free_ram_mb,
        ),
    ):
        largest = np.cumsum(-np.sort(-np.maximum(capacity, used)))
        n_least = max(n_least, int(np.searchsorted(largest, used.sum())) + 1)
    return max(0, len(with_instances) - n_least)
