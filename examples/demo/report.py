# SPDX-License-Identifier: Apache-2.0
"""The tables of the demo: answers, decisions and the usage of the cloud."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from moorage.objects import Selection
from moorage.scheduler.drivers.record import DecisionLog, DecisionRecord

from ..conductor import Server
from .trace import VirtualMachine
from .usage import SHOWN, Total
from .wire import MessageOutcome

_MIB_PER_GIB = 1024
_N_TOP = 3


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


def funnel_table(record: DecisionRecord) -> Table:
    """Return the table of the filters of a request that fits no host."""
    table = Table(title=f"A request that fits no host: {record.reason.strip()}")
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
    """Return the table of the best hosts, with each weigher's part of their weight."""
    hosts = record.instances[0].top_hosts[:_N_TOP]
    size = f"{vm.vcpus} vCPU, {vm.memory_mb / _MIB_PER_GIB:g} GiB"
    table = Table(title=f"Why vm-{vm.vm_id} ({size}) is on {hosts[0].host}")
    table.add_column("weigher", no_wrap=True)
    for host in hosts:
        table.add_column(host.host, justify="right")
    for parts in zip(*(host.parts for host in hosts), strict=True):
        # 0.0 is added because a zero may be negative.
        weights = (f"{p.weighted + 0.0:+.4f} [dim]({p.raw + 0.0:,.0f})" for p in parts)
        table.add_row(parts[0].name, *weights)
    table.add_section()
    table.add_row("weight", *(f"[bold]{h.weight:+.4f}" for h in hosts))
    table.caption = "weighted part (raw weight)"
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
