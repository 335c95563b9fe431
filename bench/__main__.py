# SPDX-License-Identifier: Apache-2.0
"""Measure and print: `python -m bench`, from the checkout's root, as `make bench` does.

Decisions without Placement compared with nova 34, each plugin alone, requests for one
and for many instances beside their targets, decisions a second, the longest holds of
the interpreter while decisions run, guests with NUMA cells and PCI devices,
decisions with a real Placement, candidates from resource providers in memory, following
Placement's database, ways to find hosts with room, a stream of requests that all
differ, a stream of 8 flavors with Placement, the source nova_db with databases of a
real nova, messages, the reports per second of the source push, a relay between nova's
databases and Kafka, the store of decisions, what-if questions, rules about racks and
rows, the memory of workers, decisions while clients ask for explanations, requests that
the driver solver places, schedulers that select the same CPUs or devices, the functions
and files that a plain request runs through. The tables show the median and the p99 of
this run; no time fails the benchmark.
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

_WIDTH = 180  # of the output if it is not a terminal
#: Measurements that can run alone.
_PARTS = (
    "decisions",
    "instances",
    "sustained",
    "pauses",
    "guests",
    "embedded",
    "providers",
    "following",
    "filtering",
    "memory",
    "stream",
    "sources",
    "messages",
    "ingest",
    "kafka",
    "relay",
    "store",
    "capacity",
    "locality",
    "workers",
    "explaining",
    "solver",
    "collisions",
    "path",
)
#: Left out of a quick run of all: starting their servers takes too long.
_NOT_QUICK = frozenset(("kafka", "relay"))
#: The stream sends nova's requests to Placement itself.
_WITHOUT_NOVA = frozenset(
    (
        "capacity",
        "collisions",
        "explaining",
        "filtering",
        "following",
        "ingest",
        "kafka",
        "locality",
        "memory",
        "path",
        "pauses",
        "providers",
        "relay",
        "solver",
        "store",
        "stream",
        "sustained",
    )
)


def main() -> int:
    """Run the selected measurements; return the exit status."""
    options = _options()
    _log_as_in_production()
    warnings.simplefilter("ignore")  # deprecations in libraries
    backend.init_backend(backend.BackendType.THREADING)
    # Imported late: they import oslo.messaging, which needs the back-end above.
    from .measure import Bench
    from .nova import Nova, missing_peer

    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        chosen = options.part or [
            part for part in _PARTS if not options.quick or part not in _NOT_QUICK
        ]
        is_alone = options.no_nova or _WITHOUT_NOVA.issuperset(chosen)
        why_not = "not requested" if is_alone else missing_peer()
        nova = None if why_not else stack.enter_context(Nova())
        console.print(_machine())
        console.print(LEGEND)
        if why_not:
            console.print(f"[bold]nova 34 is not measured[/]: {why_not}")
        status = stack.enter_context(_status(console))
        bench = Bench(console, status, _sizes(options), nova)
        parts = {
            "decisions": bench.run_decisions,
            "instances": lambda: bench.run_instances(options.plot),
            "sustained": bench.run_sustained,
            "pauses": bench.run_pauses,
            "guests": bench.run_guests,
            "embedded": bench.run_embedded,
            "providers": bench.run_providers,
            "following": bench.run_following,
            "filtering": lambda: bench.run_filtering(options.plot),
            "memory": bench.run_memory,
            "stream": bench.run_stream,
            "sources": bench.run_sources,
            "messages": bench.run_messages,
            "ingest": bench.run_ingest,
            "kafka": bench.run_kafka,
            "relay": bench.run_relay,
            "store": bench.run_store,
            "capacity": bench.run_capacity,
            "locality": bench.run_locality,
            "workers": bench.run_workers,
            "explaining": bench.run_explaining,
            "solver": bench.run_solver,
            "collisions": bench.run_collisions,
            "path": bench.run_path,
        }
        for part in chosen:
            parts[part]()
    console.print(f"{time.monotonic() - started:.0f} s")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument(
        "part",
        nargs="*",
        type=_part,
        metavar="PART",
        help=f"run these measurements; default: all of {', '.join(_PARTS)}",
    )
    parser.add_argument(
        "--hosts", nargs="+", type=_positive, metavar="N",
        help="sizes of decisions without Placement; "
        "nova is measured up to 10,000",
    )  # fmt: skip
    parser.add_argument(
        "--live-hosts", nargs="+", type=_positive, metavar="N",
        help="sizes of decisions on the embedded Placement",
    )  # fmt: skip
    parser.add_argument(
        "--placement-hosts", type=_positive, metavar="N",
        help="providers of the Placement that the stream of requests uses; "
        "creating 1,000 takes about 15 s",
    )  # fmt: skip
    parser.add_argument(
        "--placement-on", choices=("sqlite", "postgresql", "mariadb"), default="sqlite",
        help="its database: sqlite is the embedded Placement; the "
        "others are used over HTTP, and creating providers takes longer",
    )  # fmt: skip
    parser.add_argument(
        "--placement-file", type=Path, metavar="FILE",
        help="SQLite file that keeps the providers for the next run",
    )  # fmt: skip
    parser.add_argument(
        "--sources-on", choices=("sqlite", "postgresql", "mariadb"),
        help="databases of nova for the source nova_db; default: mariadb, with "
        "--quick sqlite. Those of 100,000 hosts are always SQLite",
    )  # fmt: skip
    parser.add_argument(
        "--ingest-hosts", type=_positive, metavar="N",
        help="hosts that report to the sources push and kafka",
    )  # fmt: skip
    parser.add_argument("--runs", type=_positive, metavar="N", help="runs of Moorage")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE",
        help="write the results of the part filtering or instances to an SVG file; it "
        "needs matplotlib. The numbers of instances are in a CSV file beside it",
    )  # fmt: skip
    parser.add_argument("--no-nova", action="store_true", help="measure Moorage only")
    return parser.parse_args()


def _sizes(options: argparse.Namespace) -> Sizes:
    from tests.fixtures.nova_databases import Kind as NovaKind

    from .measure import FULL, QUICK
    from .real_placement import Kind, Where

    sizes = QUICK if options.quick else FULL
    first, *others = sizes.sources
    if options.sources_on:
        first = first[0], NovaKind(options.sources_on)
    return replace(
        sizes,
        hosts=tuple(sorted(set(options.hosts or sizes.hosts))),
        live_hosts=tuple(sorted(set(options.live_hosts or sizes.live_hosts))),
        placement_hosts=options.placement_hosts or sizes.placement_hosts,
        placement=Where(Kind(options.placement_on), options.placement_file),
        sources=(first, *others),
        ingest_hosts=options.ingest_hosts or sizes.ingest_hosts,
        moorage=replace(sizes.moorage, runs=options.runs or sizes.moorage.runs),
    )


def _part(name: str) -> str:
    if name not in _PARTS:
        raise argparse.ArgumentTypeError(
            f"{name} is no measurement; there are {', '.join(_PARTS)}"
        )
    return name


def _positive(text: str) -> int:
    if (number := int(text.replace("_", ""))) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def _log_as_in_production() -> None:
    """Log at INFO, discarding the lines: formatting them is part of a decision."""
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
