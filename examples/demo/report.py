# SPDX-License-Identifier: Apache-2.0
"""The tables of the demo: answers, decisions and the usage of the cloud."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from moorage.objects import Selection
from moorage.scheduler.drivers.decision_log import DecisionLog

from ..conductor import Server
from .trace import VirtualMachine
from .usage import SHOWN, Total
from .wire import MessageOutcome

_MIB_PER_GIB = 1024


def _names(selections: Iterable[Selection]) -> str:
    return ", ".join(s.service_host for s in selections) or "-"


def _weight(decisions: DecisionLog, uuid: str) -> str:
    record = decisions.find(uuid)
    found = (i for i in record.instances if i.instance_uuid == uuid) if record else ()
    # A single host, or a forced one, is not weighed.
    return next((f"{i.weight:.4f}" for i in found if i.top_hosts[0].parts), "-")


def answers_table(answers: Sequence[MessageOutcome], decisions: DecisionLog) -> Table:
    """Return the table of the answers to recorded messages."""
    table = Table(title=f"{len(answers)} recorded messages of a stock nova 34.0.0")
    for name in ("message", "host", "alternates", "weight"):
        table.add_column(name, overflow="fold")
    for answer in answers:
        name = answer.message.name
        if not answer.servers:
            table.add_row(name, f"[dim]{answer.reason}", "", "")
        for server in answer.servers:
            table.add_row(
                name,
                server.selection.service_host,
                _names(server.alternates),
                _weight(decisions, server.uuid),
            )
    return table


def servers_table(
    placed: Sequence[tuple[VirtualMachine, Server]],
    decisions: DecisionLog,
    *,
    n_shown: int,
) -> Table:
    """Return the table of a sample of the instances, evenly spread over time."""
    step = -(-len(placed) // n_shown)
    sample = placed[::step]
    table = Table(title=f"{len(sample)} of {len(placed)} instances of the trace")
    table.add_column("instance")
    table.add_column("tenant")
    for name in ("vCPU", "GiB", "prio"):
        table.add_column(name, justify="right")
    for name in ("host", "zone", "alternates", "weight"):
        table.add_column(name)
    for vm, server in sample:
        chosen = server.selection
        table.add_row(
            f"vm-{vm.vm_id}",
            vm.tenant,
            str(vm.vcpus),
            f"{vm.memory_mb / _MIB_PER_GIB:g}",
            vm.priority,
            chosen.service_host,
            chosen.availability_zone,
            _names(server.alternates),
            _weight(decisions, server.uuid),
        )
    return table


def attempts_table(vm: VirtualMachine, server: Server) -> Table:
    """Return the table of the hosts on which an instance was built."""
    table = Table(title=f"vm-{vm.vm_id}: a build fails, and its alternate is claimed")
    table.add_column("attempt", justify="right")
    table.add_column("host")
    table.add_column("outcome")
    for number, attempt in enumerate(server.attempts, start=1):
        table.add_row(str(number), attempt.host, attempt.outcome)
    return table


@dataclass(frozen=True, slots=True)
class MoveStep:
    """The resource providers on which an instance and its migration hold resources."""

    name: str
    instance: tuple[str, ...]
    migration: tuple[str, ...] = ()


def move_table(
    vm: VirtualMachine, end: str, steps: Iterable[MoveStep], hosts: Mapping[str, str]
) -> Table:
    """Return the table of the hosts held in Placement after each step of a move."""
    table = Table(title=f"vm-{vm.vm_id} moves: {end}")
    for name in ("step", "the instance holds", "the migration holds"):
        table.add_column(name)
    for step in steps:
        held = (
            ", ".join(hosts[uuid] for uuid in providers) or "-"
            for providers in (step.instance, step.migration)
        )
        table.add_row(step.name, *held)
    return table


def places_table(rows: Iterable[Sequence[str]]) -> Table:
    """Return the table of the racks in which the instances of a request are."""
    table = Table()
    for name in ("room", "row", "rack", "hosts of the instances"):
        table.add_column(name)
    for row in rows:
        table.add_row(*row)
    return table


def usage_table(totals: Mapping[tuple[str, str], Total]) -> Table:
    """Return the table of the usage of each cell and availability zone."""
    table = Table(title="Usage of the cloud in Placement")
    table.add_column("cell")
    table.add_column("zone")
    for name in ("hosts", "instances", *SHOWN):
        table.add_column(name, justify="right")
    all_ = Total()
    for (cell, zone), total in totals.items():
        table.add_row(cell, zone, *_amounts(total))
        all_.n_hosts += total.n_hosts
        all_.n_servers += total.n_servers
        all_.used.update(total.used)
        all_.capacity.update(total.capacity)
    table.add_section()
    table.add_row("all", "", *_amounts(all_))
    return table


def _amounts(total: Total) -> list[str]:
    shares = (
        f"{total.used[name]:,} ({total.used[name] / total.capacity[name]:.1%})"
        for name in SHOWN
    )
    return [str(total.n_hosts), str(total.n_servers), *shares]
