# SPDX-License-Identifier: Apache-2.0
"""Plan how to empty hosts.

instances on the hosts ─▶ their requests ─▶ hosts that each could go to
    ─▶ those with the fewest choices first: decide, count, next
    ─▶ one that others left without a host goes first, and all are decided again
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Sequence
from typing import Final

from ...objects import RequestSpec
from ..drivers.parts import Parts
from ..errors import InvalidRequest, excerpt
from ..explain import Explainer, FailedCheck, HostSearch, UnknownHost
from ..explain.explainer import similar_names
from ..explain.host_search import find_hosts
from ..placement.providers import ProviderView
from ..request import set_field
from .cloud import SHARED, DecidedMove, FindRequests, KnownRequest, PlannedCloud
from .plan import (
    VERSION,
    FailureCheck,
    Plan,
    Step,
    StuckInstance,
    UnknownInstance,
    changes_of,
    counted_step,
    in_waves,
    names_of_rules,
    sizes_of,
)

#: The most instances of one plan.
MAX_INSTANCES: Final = 4000
#: No further order is tried once a plan would need more decisions than this: some ten
#: seconds in a cloud of 10,000 hosts.
_MAX_DECISIONS: Final = 1200
#: Different requests for which every failed check is found; it takes tens of
#: milliseconds in a cloud of 10,000 hosts.
_MAX_EXPLAINED: Final = 20
_BARE_METAL: Final = "ironic"


@dataclasses.dataclass(frozen=True, slots=True)
class _Instance:
    """An instance to move, and how many hosts it could go to before any move."""

    uuid: str
    host: str
    request: KnownRequest
    n_choices: int

    @property
    def spec(self) -> RequestSpec:
        """Its request as it was read."""
        return self.request.spec

    @property
    def first_order(self) -> tuple[int, int, str]:
        """Fewest choices first, then the largest."""
        return self.n_choices, -self.spec.flavor.memory_mb, self.uuid


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
    host_of = {
        uuid: host
        for host in drained
        for uuid in sorted(cloud.table.instances.of_host(host))
    }
    if len(host_of) > MAX_INSTANCES:
        raise InvalidRequest(
            f"The {len(drained)} hosts have {len(host_of):,} instances: a plan moves "
            f"at most {MAX_INSTANCES:,}; name fewer hosts"
        )
    batch = cloud.table.batch()
    batch = batch.take(batch.matches("host", drained))
    n_counted = int(batch.num_instances.sum()) if parts.source.is_reporting else 0
    bare_metal = {
        batch.value("host", i)
        for i in range(len(batch))
        if batch.value("hypervisor_type", i) == _BARE_METAL
    }
    stuck = [
        StuckInstance(uuid, host, "", 0, why)
        for uuid, host in host_of.items()
        if (why := _immovable(cloud, uuid, host, bare_metal))
    ]
    immovable = {instance.instance for instance in stuck}
    wanted = {uuid: host for uuid, host in host_of.items() if uuid not in immovable}
    found = find_requests(wanted)
    unknown, instances = [], []
    n_choices_of: dict[str, int] = {}
    n_decisions = 0
    for uuid, host in wanted.items():
        request = found[uuid]
        if isinstance(request, str):
            unknown.append(UnknownInstance(uuid, host, request))
            continue
        spec, _ = cloud.request_of_move(request.spec, uuid, host, drained)
        key = _key(spec)
        if key not in n_choices_of:
            n_choices_of[key] = cloud.decide(spec).n_choices
            n_decisions += 1
        instances.append(_Instance(uuid, host, request, n_choices_of[key]))
    order = sorted(instances, key=lambda instance: instance.first_order)
    best: _Attempt | None = None
    tried = set[str]()
    while True:
        attempt = _Attempt(PlannedCloud(parts, view), drained)
        attempt.run(order)
        n_decisions += len(order)
        if best is None or len(attempt.left) < len(best.left):
            best = attempt
        first = [i for i in attempt.left if i.n_choices and i.uuid not in tried]
        if not first or n_decisions + len(order) > _MAX_DECISIONS:
            break
        tried |= {instance.uuid for instance in first}
        order = [*first, *(i for i in order if i not in first)]
    stuck += best.explained()
    steps = in_waves(best.steps, parallel)
    known = {instance.uuid: instance.request for instance in instances}
    return Plan(
        version=VERSION,
        kind="drain",
        made_at=parts.clock(),
        hosts=tuple(drained),
        kept_up=tuple(kept_up),
        steps=tuple(steps),
        stuck=tuple(stuck),
        unknown=tuple(unknown),
        n_unnamed=max(0, n_counted - len(host_of)),
        n_never_fit=len(immovable) + sum(not i.n_choices for i in instances),
        memory_mb=sum(step.memory_mb for step in steps),
        n_waves=max((step.wave for step in steps), default=0),
        failure=_check_failure(best.cloud, drained, find_requests, known),
        changes=tuple(changes_of(cloud.table, drained, steps)),
        notes=tuple(parts.source.unknowns()),
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
    used_mb = _used_mb(cloud)
    by_use = sorted(hosts, key=lambda host: (-used_mb.get(host, 0), host))
    return sorted(by_use[keep_up:]), sorted(by_use[:keep_up])


def _used_mb(cloud: PlannedCloud) -> dict[str, int]:
    """Return the used memory of each service host."""
    hosts = cloud.table.batch()
    used = hosts.total_usable_ram_mb - hosts.free_ram_mb
    return dict(zip(hosts.host.tolist(), used.tolist(), strict=True))


def _immovable(
    cloud: PlannedCloud, uuid: str, host: str, bare_metal: Collection[str]
) -> str:
    """Return why an instance cannot be moved, whatever it requests; "": it can."""
    if host in bare_metal:
        return "it is on bare metal, which cannot be migrated"
    hosts = cloud.table.instances.hosts_of(uuid)
    if len(hosts) > 1:
        others = ", ".join(sorted(set(hosts) - {host}))
        return f"it is on {others}, too: a move of it is not over"
    return ""


def _key(spec: RequestSpec) -> str:
    """Return a text that requests with equal choices share."""
    primitive = spec.obj_to_primitive()
    fields = dict(primitive["nova_object.data"], instance_uuid=None, ignore_hosts=None)
    return json.dumps(fields, sort_keys=True, default=str)


class _Attempt:
    """The moves of all instances in one order.

    Attributes
    ----------
    left : list of _Instance
        Those that fit on no host.
    """

    def __init__(self, cloud: PlannedCloud, drained: Sequence[str]) -> None:
        self.cloud = cloud
        self.steps: list[Step] = []
        self.left: list[_Instance] = []
        self._drained = drained
        self._refused: list[DecidedMove] = []

    def run(self, order: Sequence[_Instance]) -> None:
        """Decide and count the moves; an instance without a host is left."""
        names_of: dict[int, frozenset[str]] = {}
        for instance in order:
            spec, notes = self.cloud.request_of_move(
                instance.spec, instance.uuid, instance.host, self._drained
            )
            move = self.cloud.decide(spec)
            if move.assignment is None:
                self.left.append(instance)
                self._refused.append(move)
                continue
            names = names_of_rules(spec)
            # Two steps are connected if both have a group or name one, or if a hint of
            # one names the instance of the other.
            after = [
                step.number
                for step in self.steps
                if names & names_of[step.number]
                or step.instance in names
                or instance.uuid in names_of[step.number]
            ]
            step = counted_step(
                self.cloud,
                move,
                number=len(self.steps) + 1,
                source=instance.host,
                n_choices=instance.n_choices,
                request_from=instance.request.origin,
                after=after,
                notes=notes,
            )
            names_of[step.number] = names
            self.steps.append(step)

    def explained(self) -> list[StuckInstance]:
        """Return the instances that are left, with every reason."""
        explainer = Explainer(lambda: self.cloud.parts, self.cloud.provider_view)
        reasons_of: dict[str, tuple[FailedCheck, ...]] = {}
        stuck = []
        for instance, move in zip(self.left, self._refused, strict=True):
            key = _key(move.spec)
            if move.record.reason == SHARED:
                reasons_of[key] = ()
            elif key not in reasons_of and len(reasons_of) < _MAX_EXPLAINED:
                context = {"project_id": set_field(move.spec, "project_id")}
                reasons_of[key] = tuple(explainer.failing_checks(context, move.spec))
            stuck.append(
                StuckInstance(
                    instance.uuid,
                    instance.host,
                    sizes_of(instance.spec)["flavor"],
                    instance.n_choices,
                    move.record.reason.strip(),
                    reasons_of.get(key, ()),
                )
            )
        return stuck


def _check_failure(
    cloud: PlannedCloud,
    drained: Sequence[str],
    find_requests: FindRequests,
    known: dict[str, KnownRequest],
) -> FailureCheck | None:
    """Return whether the instances of the fullest other host would fit elsewhere."""
    instances_of = cloud.table.instances.of_host
    remaining = {
        host: used_mb
        for host, used_mb in _used_mb(cloud).items()
        if host not in drained and instances_of(host)
    }
    if not remaining:
        return None
    failed = max(remaining, key=lambda host: (remaining[host], host))
    uuids = sorted(instances_of(failed))
    requests: dict[str, KnownRequest | str] = {**known}
    requests |= find_requests({uuid: failed for uuid in uuids if uuid not in known})
    unknown = [uuid for uuid in uuids if isinstance(requests[uuid], str)]
    specs = {
        uuid: request.spec
        for uuid in uuids
        if isinstance(request := requests[uuid], KnownRequest)
    }
    tried = cloud.copied()
    unplaced = []
    for uuid in sorted(specs, key=lambda uuid: (-specs[uuid].flavor.memory_mb, uuid)):
        spec, _ = tried.request_of_move(specs[uuid], uuid, failed, [*drained, failed])
        # Evacuations need no name.
        move = tried.decide(spec, is_named=False)
        if move.assignment is None:
            unplaced.append(uuid)
        else:
            tried.count(move, failed)
    return FailureCheck(failed, len(uuids), tuple(unplaced), tuple(unknown))
