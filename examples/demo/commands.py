# SPDX-License-Identifier: Apache-2.0
"""The command moorage on the demo's own cloud."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from moorage.scheduler.cmd.cli.main import cli

from .cloud import DemoCloud
from .trace import VirtualMachine

#: The hosts, the trace and the recorded messages.
DATA: Final = Path(__file__).parents[1] / "data"
#: The instance that fits no host.
UNPLACEABLE: Final = "00000000-0000-4000-8000-000000000001"


@dataclass(frozen=True, slots=True)
class MoorageCommand:
    """One call of the command.

    Attributes
    ----------
    purpose : str
        The question that it answers.
    """

    purpose: str
    arguments: tuple[str, ...]
    url: str

    def run(self, console: Console) -> None:
        """Print the command line and what it prints."""
        line = shlex.join(("moorage", *self.arguments))
        console.print(Text(f"\n# {self.purpose}", style="dim"))
        console.print(Text(f"$ {line}", style="bold"), soft_wrap=True)
        # A dry run that finds no host ends with a status.
        with contextlib.suppress(SystemExit):
            cli.main(["--url", self.url, *self.arguments], standalone_mode=False)


def commands(cloud: DemoCloud, last: VirtualMachine) -> Iterator[MoorageCommand]:
    """Yield the commands that lead from a failure to its cause, and some more."""
    store = cloud.scheduler.status.store
    assert store is not None
    store.flush()
    flavor = ("--vcpus", "4", "--ram", "8192", "--disk", "20")
    lines = {
        "Which requests failed?": ("decisions", "--failed", "--limit", "3"),
        "Which step left no host?": ("explain", UNPLACEABLE),
        "Why not this Arm host?": ("why-not", _arm_host(cloud), UNPLACEABLE),
        "What would have to change?": ("closest", UNPLACEABLE),
        "Why is this instance where it is?": ("explain", last.uuid),
        "Where would three more go?": (
            *("schedule", "--dry-run", *flavor),
            *("--availability-zone", "zone1", "--count", "3"),
        ),
        "How are the hosts?": ("hosts", "--limit", "5"),
        "Where could the instances of its host go?": (
            *("plan", "drain", _host_of(cloud, last)),
            *("--parallel", "4"),
        ),
        "Would packing have left more hosts empty?": (
            *("simulate", "--history", "1h"),
            *("--inventory", os.path.relpath(DATA / "inventory.yaml")),
            *("--compare", os.path.relpath(DATA / "pack.conf")),
        ),
    }
    for purpose, arguments in lines.items():
        yield MoorageCommand(purpose, arguments, cloud.url)


def _host_of(cloud: DemoCloud, machine: VirtualMachine) -> str:
    [host] = cloud.scheduler.table.instances.hosts_of(machine.uuid)
    return host


def _arm_host(cloud: DemoCloud) -> str:
    """Return the name of a host that runs Arm guests."""
    records = (host.record for host in cloud.inventory.hosts)
    return next(
        record.host
        for record in records
        if any(kind[0] == "aarch64" for kind in record.supported_instances)
    )
