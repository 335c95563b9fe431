# SPDX-License-Identifier: Apache-2.0
"""Measure and print: `python -m bench`, from the checkout's root, as `make bench` does.

Decisions without Placement beside nova 34's, each plugin alone, decisions on the real
Placement, messages. Medians of this run on this machine; no time is judged.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import platform
import sys
import time
import warnings
from dataclasses import dataclass

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from . import report
from .asked import DECISIONS
from .clouds import Cloud, make_cloud
from .live import live_times
from .nova import Nova, missing_peer
from .ours import OurCloud, filter_names, weigher_names
from .timing import Plan
from .wire import wire_times

_WIDTH = 140  # where no terminal says otherwise
_NUMBERS = (1, 10)  # instances in one request
_MAX_NOVA_HOSTS = 10_000
_HOSTS = (1_000, 10_000, 100_000)
_LIVE_HOSTS = (200, 1_000)
_QUICK_HOSTS = (200, 1_000)
_QUICK_LIVE_HOSTS = (50,)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured, and how often."""

    hosts: tuple[int, ...]
    live_hosts: tuple[int, ...]
    ours: Plan
    nova: Plan
    # A decision of nova's takes seconds to half a minute: a warm-up is too dear.
    nova_decision: Plan

    @property
    def plugin_hosts(self) -> int:
        """The greatest size at which nova is measured too, else the least."""
        small = [n for n in self.hosts if n <= _MAX_NOVA_HOSTS]
        return max(small, default=min(self.hosts))


def main() -> int:
    """Run all that the options ask for; return the exit status."""
    sizes, has_nova = _options()
    _log_as_in_production()
    warnings.simplefilter("ignore")  # libraries of ours tell of their own futures
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        why_not = missing_peer() if has_nova else "--no-nova"
        nova = None if why_not else stack.enter_context(Nova())
        console.print(_machine())
        if why_not:
            console.print(f"[bold]nova 34 is not beside us[/]: {why_not}")
        status = stack.enter_context(_status(console))
        Bench(console, status, sizes, nova).run()
    console.print(f"{time.monotonic() - started:.0f} s")
    return 0


class Bench:
    """All measurements, each table printed as soon as it is complete."""

    def __init__(
        self, console: Console, status: Progress, sizes: Sizes, nova: Nova | None
    ) -> None:
        self._console = console
        self._status = status
        self._task = status.add_task("")
        self._sizes = sizes
        self._nova = nova

    def run(self) -> None:
        """Measure everything."""
        rows: list[report.DecisionRow] = []
        plugins: list[report.PluginRow] = []
        for n_hosts in self._sizes.hosts:
            cloud, nova = make_cloud(n_hosts), self._nova_of(n_hosts)
            self._say(f"{n_hosts:,} hosts: filling the tables")
            ours = OurCloud(cloud)
            if nova:
                nova.load(cloud, filter_names(), weigher_names())
            rows += self._decisions(cloud, ours, nova)
            if n_hosts == self._sizes.plugin_hosts:
                plugins = self._plugins(n_hosts, ours, nova)
        self._console.print(report.decisions_table(rows))
        self._console.print(report.plugins_table(self._sizes.plugin_hosts, plugins))
        self._console.print(report.live_table(self._live()))
        self._say("messages")
        messages = wire_times(self._nova, self._sizes.ours)
        self._console.print(report.wire_table(messages))

    def _nova_of(self, n_hosts: int) -> Nova | None:
        return self._nova if n_hosts <= _MAX_NOVA_HOSTS else None

    def _say(self, what: str) -> None:
        self._status.update(self._task, description=what)

    def _decisions(
        self, cloud: Cloud, ours: OurCloud, nova: Nova | None
    ) -> list[report.DecisionRow]:
        rows = []
        for asks in DECISIONS:
            for number in _NUMBERS:
                request = asks(cloud, number)
                self._say(f"{len(cloud):,} hosts: {request.name}, {number}")
                mine = ours.decisions(request, self._sizes.ours)
                plan = self._sizes.nova_decision
                theirs = nova.decisions(request, plan) if nova else None
                rows.append(
                    report.DecisionRow(len(cloud), request.name, number, mine, theirs)
                )
        return rows

    def _plugins(
        self, n_hosts: int, ours: OurCloud, nova: Nova | None
    ) -> list[report.PluginRow]:
        rows = []
        for mine in ours.plugins(self._sizes.ours):
            self._say(f"{n_hosts:,} hosts: {mine.name}")
            plan = self._sizes.nova
            theirs = (
                nova.plugin(mine.kind, mine.name, mine.request, plan) if nova else None
            )
            rows.append(report.PluginRow(mine, theirs))
        return rows

    def _live(self) -> list[tuple[int, int, report.Times]]:
        rows = []
        for n_hosts in self._sizes.live_hosts:
            self._say(f"{n_hosts:,} hosts on the real Placement")
            found = live_times(make_cloud(n_hosts), _NUMBERS, self._sizes.ours)
            rows += [(n_hosts, len(r.instance_uuids), each) for r, each in found]
        return rows


def _options() -> tuple[Sizes, bool]:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, for trying")
    parser.add_argument(
        "--hosts", nargs="+", type=_positive, metavar="N",
        help="sizes of decisions without Placement; "
        f"nova is asked up to {_MAX_NOVA_HOSTS:,}",
    )  # fmt: skip
    parser.add_argument(
        "--live-hosts", nargs="+", type=_positive, metavar="N",
        help="sizes of decisions on the real Placement",
    )  # fmt: skip
    parser.add_argument("--runs", type=_positive, metavar="N", help="runs of ours")
    parser.add_argument("--no-nova", action="store_true", help="ours only")
    told = parser.parse_args()
    runs = told.runs or (5 if told.quick else 15)
    hosts = told.hosts or (_QUICK_HOSTS if told.quick else _HOSTS)
    live = told.live_hosts or (_QUICK_LIVE_HOSTS if told.quick else _LIVE_HOSTS)
    sizes = Sizes(
        hosts=tuple(sorted(set(hosts))),
        live_hosts=tuple(sorted(set(live))),
        ours=Plan(runs=runs, budget_s=20),
        nova=Plan(runs=3, budget_s=5),
        nova_decision=Plan(runs=3, budget_s=5, warm_ups=0),
    )
    return sizes, not told.no_nova


def _positive(text: str) -> int:
    if (number := int(text.replace("_", ""))) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def _log_as_in_production() -> None:
    """Log at INFO, to nowhere: what a log line costs is part of a decision."""
    logging.getLogger().addHandler(logging.NullHandler())
    logging.getLogger("moorage").setLevel(logging.INFO)


def _status(console: Console) -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)


def _machine() -> str:
    return (
        f"Python {platform.python_version()}, {platform.machine()}, "
        f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    sys.exit(main())
