# SPDX-License-Identifier: Apache-2.0
"""A plan of moves as data."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from ...objects import RequestSpec
from ..explain import FailedCheck
from ..hosts import HostTable
from ..request import get_field
from .cloud import DecidedMove, PlannedCloud

#: The version of the form of a plan.
VERSION: Final = 1


@dataclasses.dataclass(frozen=True, slots=True)
class HostRoom:
    """What is free on a host, in the amounts that its filters allow."""

    vcpus: float
    memory_mb: float
    disk_gb: float

    @classmethod
    def of(cls, cloud: PlannedCloud, node_uuid: str) -> HostRoom:
        """Return the room of a compute node now."""
        hosts = cloud.table.batch([node_uuid])
        value = hosts.value
        total_mb, total_gb = (
            value(name, 0) for name in ("total_usable_ram_mb", "total_usable_disk_gb")
        )
        used_mb = total_mb - value("free_ram_mb", 0)
        used_gb = total_gb - value("free_disk_mb", 0) / 1024
        return cls(
            round(
                value("vcpus_total", 0) * value("cpu_allocation_ratio", 0)
                - value("vcpus_used", 0),
                3,
            ),
            round(total_mb * value("ram_allocation_ratio", 0) - used_mb, 3),
            round(total_gb * value("disk_allocation_ratio", 0) - used_gb, 3),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One move.

    Attributes
    ----------
    number : int
        From 1; the steps hold if they are done in this order.
    wave : int
        From 1. The steps of a wave may run at once, after those of earlier waves.
    source, destination : str
        Service hosts.
    destination_node : str
        The UUID of the destination's compute node.
    memory_mb : int
        The memory of the flavor, which a live migration copies at least once.
    disk_gb : int
        The local disk of the flavor, which is copied unless storage is shared.
    n_choices : int
        How many hosts it could go to before any move.
    request_from : str
        Where its request was read: "nova" or "decisions".
    room_after : HostRoom
        The room of the destination after this and all earlier steps.
    n_left : int
        Instances that are still on the source.
    after : tuple of int
        The steps that must be over before, as a rule names both instances.
    notes : tuple of str
        What is not certain about the step.
    """

    number: int
    wave: int
    instance: str
    flavor: str
    source: str
    destination: str
    destination_node: str
    memory_mb: int
    disk_gb: int
    n_choices: int
    request_from: str
    room_after: HostRoom
    n_left: int
    after: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class StuckInstance:
    """An instance that fits on no other host.

    Attributes
    ----------
    n_choices : int
        How many hosts it could go to before any move: others of the plan took them.
    why : str
        Why not, in one line.
    reasons : tuple of FailedCheck
        Each check that hosts fail, those of the most hosts first.
    """

    instance: str
    host: str
    flavor: str
    n_choices: int
    why: str
    reasons: tuple[FailedCheck, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class UnknownInstance:
    """An instance whose request is not known, for which nothing is planned."""

    instance: str
    host: str
    why: str


@dataclasses.dataclass(frozen=True, slots=True)
class FailureCheck:
    """Whether the instances of one more host fit elsewhere if it fails after the plan.

    Attributes
    ----------
    host : str
        The host whose instances use the most memory then.
    n_instances : int
        The known instances on it.
    unplaced : tuple of str
        Those that fit on no remaining host.
    unknown : tuple of str
        Those whose request is not known.
    """

    host: str
    n_instances: int
    unplaced: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class HostChange:
    """A host before and after a plan.

    Attributes
    ----------
    capacity_mb : float
        The memory that instances may use.
    used_before_mb, used_after_mb : int
        The memory that instances use, as the host reports it, and with the moves.
    """

    host: str
    capacity_mb: float
    used_before_mb: int
    used_after_mb: int
    n_before: int
    n_after: int


@dataclasses.dataclass(frozen=True, slots=True)
class Goal:
    """What a plan is to reach, and how far it is from the best that any could do.

    Attributes
    ----------
    flavor : str
        Of which room is made; "": hosts are emptied.
    n_wanted : int
        How many instances are to fit; the most hosts that can be empty after any plan
        within the limits.
    n_before, n_after : int
        How many of them fit, or how many hosts are empty, before and after the plan;
        instances are not counted beyond those that are wanted.
    n_least_moves : int
        No plan has fewer moves, if only the hosts that were searched have to give room.
    n_searched : int
        The hosts whose instances were considered.
    is_cut_short : bool
        Whether the time ended, or the limit of decisions, before the search.
    """

    flavor: str
    n_wanted: int
    n_before: int
    n_after: int
    n_least_moves: int
    n_searched: int
    is_cut_short: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Moves in order, and what they leave.

    Attributes
    ----------
    made_at : float
        When the hosts were in the state that was planned on, seconds since the epoch.
    hosts : tuple of str
        The service hosts that are emptied.
    kept_up : tuple of str
        The asked service hosts that are not emptied.
    n_unnamed : int
        Instances that hosts count and no source names.
    n_never_fit : int
        Instances that fit on no host even before any move: no plan moves them.
    failure : FailureCheck or None
        None: no other host has instances, or the plan empties none.
    changes : tuple of HostChange
        The hosts that instances leave, then those that take instances.
    goal : Goal or None
        None: the plan empties the hosts that were named.
    """

    version: int
    kind: str
    made_at: float
    hosts: tuple[str, ...]
    kept_up: tuple[str, ...]
    steps: tuple[Step, ...]
    stuck: tuple[StuckInstance, ...]
    unknown: tuple[UnknownInstance, ...]
    n_unnamed: int
    n_never_fit: int
    memory_mb: int
    n_waves: int
    failure: FailureCheck | None
    changes: tuple[HostChange, ...]
    notes: tuple[str, ...]
    goal: Goal | None = None


def names_of_rules(spec: RequestSpec) -> frozenset[str]:
    """Return the UUIDs that rules of a request name: its group, values of its hints."""
    names = {
        str(value)
        for values in (get_field(spec, "scheduler_hints") or {}).values()
        for value in (values if isinstance(values, list | tuple) else [values])
    }
    group = get_field(spec, "instance_group")
    if group is not None and (uuid := get_field(group, "uuid")):
        names.add(str(uuid))
    return frozenset(names)


def in_waves(steps: Iterable[Step], parallel: int) -> list[Step]:
    """Return steps with the waves in which they may run.

    A wave has at most `parallel` steps, and one of each source and destination. Steps
    of one host, and steps that a rule connects, keep their order.
    """
    n_in_wave: list[int] = []
    last_of_host: dict[str, int] = {}
    wave_of: dict[int, int] = {}
    in_wave = []
    for step in steps:
        hosts = (step.source, step.destination)
        earlier = [
            *(last_of_host.get(host, 0) for host in hosts),
            *(wave_of[number] for number in step.after),
        ]
        wave = max(earlier) + 1
        while wave <= len(n_in_wave) and n_in_wave[wave - 1] >= parallel:
            wave += 1
        n_in_wave += [0] * (wave - len(n_in_wave))
        n_in_wave[wave - 1] += 1
        wave_of[step.number] = wave
        last_of_host |= dict.fromkeys(hosts, wave)
        in_wave.append(dataclasses.replace(step, wave=wave))
    return in_wave


def changes_of(
    table: HostTable, hosts: Iterable[str], steps: Iterable[Step]
) -> list[HostChange]:
    """Return the hosts of a plan before and after its steps; `table` is that before."""
    moved_mb, n_moved = Counter[str](), Counter[str]()
    names = dict.fromkeys(hosts)
    for step in steps:
        names[step.destination] = None
        moved_mb[step.source] -= step.memory_mb
        moved_mb[step.destination] += step.memory_mb
        n_moved[step.source] -= 1
        n_moved[step.destination] += 1
    changes = []
    for name in names:
        nodes = table.batch(table.nodes_of(name))
        used_mb = int((nodes.total_usable_ram_mb - nodes.free_ram_mb).sum())
        capacity_mb = (nodes.total_usable_ram_mb * nodes.ram_allocation_ratio).sum()
        n_instances = len(table.instances.of_host(name))
        change = HostChange(
            name,
            round(float(capacity_mb), 3),
            used_mb,
            max(0, used_mb + moved_mb[name]),
            n_instances,
            n_instances + n_moved[name],
        )
        changes.append(change)
    return changes


def sizes_of(spec: RequestSpec) -> dict[str, Any]:
    """Return the fields of a step that its flavor has."""
    flavor = spec.flavor
    root_gb = 0 if get_field(spec, "is_bfv") else flavor.root_gb
    return {
        "flavor": get_field(flavor, "name") or "",
        "memory_mb": flavor.memory_mb,
        "disk_gb": root_gb + flavor.ephemeral_gb,
    }


def counted_step(  # noqa: PLR0913 - seven by name, the fields of the step
    cloud: PlannedCloud,
    move: DecidedMove,
    *,
    number: int,
    source: str,
    n_choices: int,
    request_from: str,
    after: Sequence[int],
    notes: Collection[str],
    is_freed: bool,
) -> Step:
    """Count a decided move in the cloud, and return it as a step of a plan."""
    cloud.count(move, source, is_freed=is_freed)
    assert move.assignment is not None
    node_uuid = move.assignment.value("uuid")
    return Step(
        number=number,
        wave=0,
        instance=move.assignment.instance_uuid,
        source=source,
        destination=move.assignment.value("host"),
        destination_node=node_uuid,
        n_choices=n_choices,
        request_from=request_from,
        room_after=HostRoom.of(cloud, node_uuid),
        n_left=len(cloud.table.instances.of_host(source)),
        after=tuple(after),
        notes=tuple(notes),
        **sizes_of(move.spec),
    )
