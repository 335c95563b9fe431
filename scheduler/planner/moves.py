# SPDX-License-Identifier: Apache-2.0
"""Decide moves one after another on a copy of the cloud: what all plans share."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from ...objects import RequestSpec
from ..explain import Explainer, FailedCheck
from ..request import get_field
from .cloud import SHARED, DecidedMove, FindRequests, KnownRequest, PlannedCloud
from .plan import (
    VERSION,
    FailureCheck,
    Goal,
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

#: Different requests for which every failed check is found; it takes tens of
#: milliseconds in a cloud of 10,000 hosts.
_MAX_EXPLAINED: Final = 20
_BARE_METAL: Final = "ironic"


@dataclasses.dataclass(frozen=True, slots=True)
class KnownInstance:
    """An instance to move.

    Attributes
    ----------
    first : DecidedMove
        Where it, or one with an equal request, would go before any move.
    """

    uuid: str
    host: str
    request: KnownRequest
    first: DecidedMove

    @property
    def spec(self) -> RequestSpec:
        """Its request as it was read."""
        return self.request.spec

    @property
    def n_choices(self) -> int:
        """How many hosts it could go to before any move."""
        return self.first.n_choices

    @property
    def first_order(self) -> tuple[int, int, str]:
        """Fewest choices first, then the largest."""
        return self.n_choices, -self.spec.flavor.memory_mb, self.uuid


class Instances:
    """What is known of the instances on hosts before any move.

    Attributes
    ----------
    known : dict
        By UUID, those that may move.
    stuck, unknown : list
        Those that cannot be moved whatever they request, and those without a request.
    """

    def __init__(
        self,
        cloud: PlannedCloud,
        find_requests: FindRequests,
        ignored: Collection[str] = (),
    ) -> None:
        self.known: dict[str, KnownInstance] = {}
        self.stuck: list[StuckInstance] = []
        self.unknown: list[UnknownInstance] = []
        self._cloud = cloud
        self._find_requests = find_requests
        self._ignored = ignored
        self._first_of: dict[tuple[str, int], DecidedMove] = {}
        hosts = cloud.table.batch()
        self._bare_metal = {
            hosts.value("host", i)
            for i in range(len(hosts))
            if hosts.value("hypervisor_type", i) == _BARE_METAL
        }

    @property
    def n_decisions(self) -> int:
        """How many decisions it took: for equal requests one, or two if none fits."""
        return len(self._first_of)

    def read(self, hosts: Iterable[str]) -> list[KnownInstance]:
        """Add the instances of hosts; return those that may move."""
        host_of = {
            uuid: host
            for host in hosts
            for uuid in sorted(self._cloud.table.instances.of_host(host))
        }
        wanted = {}
        for uuid, host in host_of.items():
            if why := self._immovable(uuid, host):
                self.stuck.append(StuckInstance(uuid, host, "", 0, why))
            else:
                wanted[uuid] = host
        found = self._find_requests(wanted)
        instances = []
        for uuid, host in wanted.items():
            request = found[uuid]
            if isinstance(request, str):
                self.unknown.append(UnknownInstance(uuid, host, request))
                continue
            spec, _ = self._cloud.request_of_move(
                request.spec, uuid, host, self._ignored
            )
            first = self._first_move(spec)
            instances.append(KnownInstance(uuid, host, request, first))
        self.known |= {instance.uuid: instance for instance in instances}
        return instances

    def _first_move(self, spec: RequestSpec) -> DecidedMove:
        """Return where an instance, or one with an equal request, would go.

        If the first of equal instances fits on no host, another one may still fit on
        the host of the first, which was ignored. If it does not, all fit nowhere.
        """
        key = _key(spec)
        for number in range(2):
            first = self._first_of.get((key, number)) or self._cloud.decide(spec)
            self._first_of[key, number] = first
            if first.n_choices or first.spec.ignore_hosts == spec.ignore_hosts:
                break
        return first

    def _immovable(self, uuid: str, host: str) -> str:
        """Return why an instance cannot be moved, whatever it requests; "": it can."""
        if host in self._bare_metal:
            return "it is on bare metal, which cannot be migrated"
        hosts = self._cloud.table.instances.hosts_of(uuid)
        if len(hosts) > 1:
            others = ", ".join(sorted(set(hosts) - {host}))
            return f"it is on {others}, too: a move of it is not over"
        return ""


def _key(spec: RequestSpec) -> str:
    """Return a text that requests with equal choices share."""
    primitive = spec.obj_to_primitive()
    fields = dict(primitive["nova_object.data"], instance_uuid=None, ignore_hosts=None)
    return json.dumps(fields, sort_keys=True, default=str)


class Attempt:
    """Moves that are decided and counted in one order.

    Attributes
    ----------
    left : list of KnownInstance
        Those that fit on no host.
    """

    def __init__(self, cloud: PlannedCloud) -> None:
        self.cloud = cloud
        self.steps: list[Step] = []
        self.left: list[KnownInstance] = []
        self._refused: list[DecidedMove] = []
        self._names_of: dict[int, frozenset[str]] = {}

    def copied(self) -> Attempt:
        """Return a copy, in which further moves can be tried."""
        attempt = copy.copy(self)
        attempt.cloud = self.cloud.copied()
        attempt.steps, attempt.left = self.steps.copy(), self.left.copy()
        # No other code has a reference to this attempt yet.
        attempt._refused = self._refused.copy()  # noqa: SLF001
        attempt._names_of = self._names_of.copy()  # noqa: SLF001
        return attempt

    def move(
        self,
        instance: KnownInstance,
        ignored: Collection[str],
        *,
        is_freed: bool = False,
    ) -> bool:
        """Decide and count a move; return whether there is a host for the instance.

        Parameters
        ----------
        ignored : collection of str
            The service hosts that it must not go to.
        is_freed : bool
            Whether what it used on its source becomes free; see `PlannedCloud.count`.
        """
        spec, notes = self.cloud.request_of_move(
            instance.spec, instance.uuid, instance.host, ignored
        )
        move = self.cloud.decide(spec)
        if move.assignment is None:
            self.left.append(instance)
            self._refused.append(move)
            return False
        names = names_of_rules(spec)
        # Two steps are connected if both have a group or name one, or if a hint of one
        # names the instance of the other.
        after = [
            step.number
            for step in self.steps
            if names & self._names_of[step.number]
            or step.instance in names
            or instance.uuid in self._names_of[step.number]
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
            is_freed=is_freed,
        )
        self._names_of[step.number] = names
        self.steps.append(step)
        return True

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
                context = {"project_id": get_field(move.spec, "project_id")}
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


def used_mb_of(cloud: PlannedCloud) -> dict[str, int]:
    """Return the used memory of each service host, of all its nodes."""
    hosts = cloud.table.batch()
    used = hosts.total_usable_ram_mb - hosts.free_ram_mb
    used_mb: Counter[str] = Counter()
    for host, of_node in zip(hosts.host.tolist(), used.tolist(), strict=True):
        used_mb[host] += of_node
    return used_mb


def check_failure(
    cloud: PlannedCloud,
    emptied: Collection[str],
    find_requests: FindRequests,
    known: Mapping[str, KnownInstance],
) -> FailureCheck | None:
    """Return whether the instances of the fullest other host would fit elsewhere."""
    instances_of = cloud.table.instances.of_host
    remaining = {
        host: used_mb
        for host, used_mb in used_mb_of(cloud).items()
        if host not in emptied and instances_of(host)
    }
    if not remaining:
        return None
    failed = max(remaining, key=lambda host: (remaining[host], host))
    uuids = sorted(instances_of(failed))
    requests: dict[str, KnownRequest | str] = {
        uuid: known[uuid].request for uuid in uuids if uuid in known
    }
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
        spec, _ = tried.request_of_move(specs[uuid], uuid, failed, [*emptied, failed])
        # Evacuations need no name.
        move = tried.decide(spec, is_named=False)
        if move.assignment is None:
            unplaced.append(uuid)
        else:
            tried.count(move, failed)
    return FailureCheck(failed, len(uuids), tuple(unplaced), tuple(unknown))


def plan_of(  # noqa: PLR0913 - eight by name, the fields of the plan
    cloud: PlannedCloud,
    steps: Iterable[Step],
    *,
    kind: str,
    parallel: int,
    hosts: Sequence[str],
    kept_up: Sequence[str] = (),
    stuck: Sequence[StuckInstance] = (),
    unknown: Sequence[UnknownInstance] = (),
    n_unnamed: int = 0,
    n_never_fit: int = 0,
    failure: FailureCheck | None = None,
    goal: Goal | None = None,
) -> Plan:
    """Return steps as a plan; `cloud` is that before them."""
    steps = in_waves(steps, parallel)
    return Plan(
        version=VERSION,
        kind=kind,
        made_at=cloud.parts.clock(),
        hosts=tuple(hosts),
        kept_up=tuple(kept_up),
        steps=tuple(steps),
        stuck=tuple(stuck),
        unknown=tuple(unknown),
        n_unnamed=n_unnamed,
        n_never_fit=n_never_fit,
        memory_mb=sum(step.memory_mb for step in steps),
        n_waves=max((step.wave for step in steps), default=0),
        failure=failure,
        changes=tuple(
            changes_of(cloud.table, hosts or [s.source for s in steps], steps)
        ),
        notes=tuple(cloud.parts.source.unknowns()),
        goal=goal,
    )
