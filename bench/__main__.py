# SPDX-License-Identifier: Apache-2.0
"""Measure and print: `python -m bench`, from the checkout's root, as `make bench` does.

Decisions without Placement beside nova 34's, each plugin alone, guests with NUMA cells
and PCI devices, candidates from resource providers in memory, decisions on the real
Placement, a stream of requests on one with many providers, the source nova_db on
databases of a real nova, messages, what the source push takes a second, the memory of
workers. Medians and p99 of this run on this machine; no time is judged.
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
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from oslo_service import backend
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from .timing import LEGEND

if TYPE_CHECKING:
    from .measure import Sizes

_WIDTH = 180  # where no terminal says otherwise


def main() -> int:
    """Run all that the options ask for; return the exit status."""
    told = _options()
    _log_as_in_production()
    warnings.simplefilter("ignore")  # libraries of ours tell of their own futures
    backend.init_backend(backend.BackendType.THREADING)
    # After the lines above, which prepare for what these import.
    from .measure import Bench
    from .nova import Nova, missing_peer

    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        # The stream asks Placement what nova would ask, without nova.
        is_alone = told.no_nova or told.only_stream or told.only_providers
        why_not = "not asked for" if is_alone else missing_peer()
        nova = None if why_not else stack.enter_context(Nova())
        console.print(_machine())
        console.print(LEGEND)
        if why_not:
            console.print(f"[bold]nova 34 is not beside us[/]: {why_not}")
        status = stack.enter_context(_status(console))
        bench = Bench(console, status, _sizes(told), nova)
        if told.only_stream:
            bench.run_stream()
        elif told.only_sources:
            bench.run_sources()
        elif told.only_providers:
            bench.run_providers()
        elif not (told.only_ingest or told.only_workers):
            bench.run()
        is_part = told.only_stream or told.only_sources or told.only_providers
        if not (is_part or told.only_workers):
            bench.run_ingest()
        if not (is_part or told.only_ingest):
            bench.run_workers()
    console.print(f"{time.monotonic() - started:.0f} s")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, for trying")
    parser.add_argument(
        "--hosts", nargs="+", type=_positive, metavar="N",
        help="sizes of decisions without Placement; "
        "nova is asked up to 10,000",
    )  # fmt: skip
    parser.add_argument(
        "--live-hosts", nargs="+", type=_positive, metavar="N",
        help="sizes of decisions on the real Placement",
    )  # fmt: skip
    parser.add_argument(
        "--placement-hosts", type=_positive, metavar="N",
        help="providers of the real Placement that a stream of requests is sent to; "
        "telling it of 1,000 takes about 15 s",
    )  # fmt: skip
    parser.add_argument(
        "--placement-on", choices=("sqlite", "postgresql", "mariadb"), default="sqlite",
        help="its database: sqlite is the embedded Placement, the "
        "others are served over HTTP and take longer to create providers",
    )  # fmt: skip
    parser.add_argument(
        "--placement-file", type=Path, metavar="FILE",
        help="SQLite file in which providers stay for the next run",
    )  # fmt: skip
    parser.add_argument(
        "--only-stream", action="store_true",
        help="only the stream of requests, for trying",
    )  # fmt: skip
    parser.add_argument(
        "--sources-on", choices=("sqlite", "postgresql", "mariadb"),
        help="what nova's databases for the source nova_db are kept in: mariadb, with "
        "--quick sqlite; those of 100,000 hosts are always SQLite's",
    )  # fmt: skip
    parser.add_argument(
        "--only-sources", action="store_true",
        help="only the source nova_db, for trying",
    )  # fmt: skip
    parser.add_argument(
        "--only-providers", action="store_true",
        help="only candidates from resource providers in memory, for trying",
    )  # fmt: skip
    parser.add_argument(
        "--only-ingest", action="store_true",
        help="only what the source push takes a second, for trying",
    )  # fmt: skip
    parser.add_argument(
        "--only-workers", action="store_true",
        help="only the memory of several worker processes, for trying",
    )  # fmt: skip
    parser.add_argument("--runs", type=_positive, metavar="N", help="runs of ours")
    parser.add_argument("--no-nova", action="store_true", help="ours only")
    return parser.parse_args()


def _sizes(told: argparse.Namespace) -> Sizes:
    from tests.fixtures.nova_databases import Kind as NovaKind

    from .measure import FULL, QUICK
    from .seeded import Kind, Where

    sizes = QUICK if told.quick else FULL
    first, *others = sizes.sources
    if told.sources_on:
        first = first[0], NovaKind(told.sources_on)
    return replace(
        sizes,
        hosts=tuple(sorted(set(told.hosts or sizes.hosts))),
        live_hosts=tuple(sorted(set(told.live_hosts or sizes.live_hosts))),
        placement_hosts=told.placement_hosts or sizes.placement_hosts,
        placement=Where(Kind(told.placement_on), told.placement_file),
        sources=(first, *others),
        ours=replace(sizes.ours, runs=told.runs or sizes.ours.runs),
    )


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
    return Progress(*columns, console=console, transient=True, refresh_per_second=1)


def _machine() -> str:
    return (
        f"Python {platform.python_version()}, {platform.machine()}, "
        f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    sys.exit(main())
