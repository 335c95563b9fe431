# SPDX-License-Identifier: Apache-2.0
"""What the demo prints: tables of answers, decisions and the cloud's fill."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from moorage.objects import Selection
from moorage.scheduler.drivers.record import DecisionLog, DecisionRecord

from ..conductor import Server
from .fill import SHOWN, Fill
from .trace import VirtualMachine
from .wire import MessageOutcome

_MIB_PER_GIB = 1024
_N_TOP = 3


def _names(selections: Iterable[Selection]) -> str:
    return ", ".join(s.service_host for s in selections) or "-"


def _score(decisions: DecisionLog, uuid: str) -> str:
    record = decisions.find(uuid)
    found = (i for i in record.instances if i.instance_uuid == uuid) if record else ()
    # Of one host alone, or a forced one, nothing is weighed.
    return next((f"{i.weight:.4f}" for i in found if i.top_hosts[0].parts), "-")


def answers_table(answers: Sequence[MessageOutcome], decisions: DecisionLog) -> Table:
    """Show what came of each recorded message."""
    table = Table(title=f"{len(answers)} messages recorded of a stock nova 34.0.0")
    for name in ("message", "host", "alternates", "score"):
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
                _score(decisions, server.uuid),
            )
    return table


def servers_table(
    placed: Sequence[tuple[VirtualMachine, Server]],
    decisions: DecisionLog,
    *,
    n_shown: int,
) -> Table:
    """Show a sample of the instances, evenly spread over time."""
    step = -(-len(placed) // n_shown)
    sample = placed[::step]
    table = Table(title=f"{len(sample)} of {len(placed)} instances of the trace")
    table.add_column("instance")
    table.add_column("tenant")
    for name in ("vCPU", "GiB", "prio"):
        table.add_column(name, justify="right")
    for name in ("host", "zone", "alternates", "score"):
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
            _score(decisions, server.uuid),
        )
    return table


def attempts_table(vm: VirtualMachine, server: Server) -> Table:
    """Show the hosts that an instance was tried on."""
    table = Table(title=f"vm-{vm.vm_id}: a build fails, and its alternate is claimed")
    table.add_column("attempt", justify="right")
    table.add_column("host")
    table.add_column("outcome")
    for number, attempt in enumerate(server.attempts, start=1):
        table.add_row(str(number), attempt.host, attempt.outcome)
    return table


@dataclass(frozen=True, slots=True)
class MoveStep:
    """What an instance and its migration hold: UUIDs of resource providers."""

    name: str
    instance: tuple[str, ...]
    migration: tuple[str, ...] = ()


def move_table(
    vm: VirtualMachine, end: str, steps: Iterable[MoveStep], hosts: Mapping[str, str]
) -> Table:
    """Show who holds which host in Placement, step by step."""
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


def funnel_table(record: DecisionRecord) -> Table:
    """Show where the hosts went of a request that fits nowhere."""
    table = Table(title=f"A request that fits nowhere: {record.reason.strip()}")
    table.add_column("step")
    table.add_column("hosts in", justify="right")
    table.add_column("hosts out", justify="right")
    table.add_column("rejected because")
    table.add_row("Placement", "", str(record.n_hosts), "")
    for step in record.steps:
        reason = step.reason if step.n_out < step.n_in else ""
        table.add_row(step.name, str(step.n_in), str(step.n_out), reason)
    return table


def weights_table(vm: VirtualMachine, record: DecisionRecord) -> Table:
    """Show the best hosts of a decision, with each weigher's part in their weight."""
    hosts = record.instances[0].top_hosts[:_N_TOP]
    size = f"{vm.vcpus} vCPU, {vm.memory_mb / _MIB_PER_GIB:g} GiB"
    table = Table(title=f"Why vm-{vm.vm_id} ({size}) is on {hosts[0].host}")
    table.add_column("weigher", no_wrap=True)
    for host in hosts:
        table.add_column(host.host, justify="right")
    for parts in zip(*(host.parts for host in hosts), strict=True):
        # 0.0 is added lest a zero have a sign.
        figures = (f"{p.weighted + 0.0:+.4f} [dim]({p.raw + 0.0:,.0f})" for p in parts)
        table.add_row(parts[0].name, *figures)
    table.add_section()
    table.add_row("weight", *(f"[bold]{h.weight:+.4f}" for h in hosts))
    table.caption = "weighted part (raw figure)"
    return table


def fill_table(fills: Mapping[tuple[str, str], Fill]) -> Table:
    """Show how full each cell's part of each availability zone is."""
    table = Table(title="The cloud's fill by Placement's account")
    table.add_column("cell")
    table.add_column("zone")
    for name in ("hosts", "instances", *SHOWN):
        table.add_column(name, justify="right")
    total = Fill()
    for (cell, zone), fill in fills.items():
        table.add_row(cell, zone, *_figures(fill))
        total.n_hosts += fill.n_hosts
        total.n_servers += fill.n_servers
        total.used.update(fill.used)
        total.capacity.update(fill.capacity)
    table.add_section()
    table.add_row("all", "", *_figures(total))
    return table


def _figures(fill: Fill) -> list[str]:
    shares = (
        f"{fill.used[name]:,} ({fill.used[name] / fill.capacity[name]:.1%})"
        for name in SHOWN
    )
    return [str(fill.n_hosts), str(fill.n_servers), *shares]
