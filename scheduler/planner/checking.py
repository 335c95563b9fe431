# SPDX-License-Identifier: Apache-2.0
"""Check a plan again: what has changed since, and which steps no longer hold."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection, Mapping, Sequence

from ...objects import CellMapping, Destination
from ..drivers.parts import Parts
from ..errors import InvalidRequest
from ..explain import Explainer
from ..placement.providers import ProviderView
from ..request import get_field
from .cloud import FindRequests, PlannedCloud


class StepState(enum.StrEnum):
    """What has become of a step."""

    #: It can be done now, after those before it.
    HOLDS = "holds"
    #: The instance is on its destination.
    DONE = "done"
    #: The instance is on both hosts: the move is not over.
    MOVING = "moving"
    #: The instance is on another host.
    ELSEWHERE = "elsewhere"
    #: No host has the instance.
    GONE = "gone"
    #: The request of the instance is not known any more.
    UNKNOWN = "unknown"
    #: The destination does not pass.
    REFUSED = "refused"


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedMove:
    """A step of the plan that is checked."""

    number: int
    instance: str
    source: str
    destination: str
    destination_node: str


@dataclasses.dataclass(frozen=True, slots=True)
class CheckedStep:
    """A step, and why it does not hold.

    Attributes
    ----------
    why : tuple of str
        Every reason; empty if the step holds or is done.
    """

    number: int
    instance: str
    source: str
    destination: str
    state: StepState
    why: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class NewInstance:
    """An instance on a host that the plan empties, of which the plan knows nothing."""

    instance: str
    host: str


@dataclasses.dataclass(frozen=True, slots=True)
class CheckedPlan:
    """The steps of a plan now.

    Attributes
    ----------
    is_whole : bool
        Whether each step holds, is done or is being done, and no instance is new.
    """

    steps: tuple[CheckedStep, ...]
    new: tuple[NewInstance, ...]
    is_whole: bool
    now: float


def check_plan(
    parts: Parts,
    view: ProviderView,
    moves: Sequence[PlannedMove],
    find_requests: FindRequests,
    *,
    hosts: Collection[str] = (),
    left: Collection[str] = (),
) -> CheckedPlan:
    """Check the steps of a plan in order; those that hold are counted as it goes.

    Parameters
    ----------
    hosts : collection of str
        The service hosts that the plan empties.
    left : collection of str
        The instances that the plan leaves on them.

    Raises
    ------
    InvalidRequest
        It is the plan of another cloud.
    SchedulerError
        A component failed.
    """
    cloud = PlannedCloud(parts, view)
    nodes = {move.destination_node for move in moves}
    if nodes and not any(map(cloud.table.has_node, nodes)):
        raise InvalidRequest(
            f"steps: this cloud has none of the {len(nodes)} compute nodes to which "
            "instances go: it is the plan of another cloud, or an old one"
        )
    hosts_of = cloud.table.instances.hosts_of
    found = find_requests(
        {move.instance: move.source for move in moves if hosts_of(move.instance)}
    )
    explainer = Explainer(lambda: cloud.parts, cloud.provider_view)
    steps = []
    for move in moves:
        state, why = _state(cloud, move)
        request = found.get(move.instance, "")
        if state is StepState.HOLDS and isinstance(request, str):
            state, why = StepState.UNKNOWN, (request,)
        elif state is StepState.HOLDS and not isinstance(request, str):
            spec, _ = cloud.request_of_move(
                request.spec, move.instance, move.source, ()
            )
            required = spec.requested_destination
            cell = None if required is None else required.cell
            spec.requested_destination = Destination(
                host=move.destination,
                node=None,
                cell=CellMapping(uuid=cell.uuid) if cell is not None else None,
            )
            decided = cloud.decide(spec)
            if decided.assignment is None:
                context = {"project_id": get_field(spec, "project_id")}
                verdicts = explainer.why_not(context, spec, move.destination)
                reasons = [
                    f"{reason.check}: {reason.reason}"
                    for verdict in verdicts
                    for reason in verdict.reasons
                ]
                state = StepState.REFUSED
                why = tuple(reasons) or (decided.record.reason.strip(),)
            else:
                cloud.count(decided, move.source)
        steps.append(
            CheckedStep(
                move.number, move.instance, move.source, move.destination, state, why
            )
        )
    known = {*left, *(move.instance for move in moves)}
    new = tuple(
        NewInstance(uuid, host)
        for host in sorted(hosts)
        for uuid in sorted(parts.table.instances.of_host(host))
        if uuid not in known
    )
    good = (StepState.HOLDS, StepState.DONE, StepState.MOVING)
    is_whole = not new and all(step.state in good for step in steps)
    return CheckedPlan(tuple(steps), new, is_whole, parts.clock())


def _state(cloud: PlannedCloud, move: PlannedMove) -> tuple[StepState, tuple[str, ...]]:
    """Return what the hosts of the instance say, and why the step cannot be done."""
    hosts = set(cloud.table.instances.hosts_of(move.instance))
    if not hosts:
        return StepState.GONE, ("no host has the instance",)
    if hosts == {move.destination}:
        return StepState.DONE, ()
    if hosts == {move.source, move.destination}:
        return StepState.MOVING, ()
    if hosts != {move.source}:
        return StepState.ELSEWHERE, (f"it is on {', '.join(sorted(hosts))}",)
    if not cloud.table.has_node(move.destination_node):
        why = f"the compute node {move.destination_node} of {move.destination} is gone"
        return StepState.REFUSED, (why,)
    return StepState.HOLDS, ()


def moves_of(steps: Sequence[Mapping[str, object]]) -> list[PlannedMove]:
    """Return the moves of a plan's steps as a client sends them, which are checked."""
    names = [field.name for field in dataclasses.fields(PlannedMove)]
    return [PlannedMove(**{name: step[name] for name in names}) for step in steps]  # type: ignore[arg-type]
