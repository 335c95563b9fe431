# SPDX-License-Identifier: Apache-2.0
"""Decisions while others ask for explanations: real processes and a real RabbitMQ.

    one client ──▶ RabbitMQ ──▶ moorage-scheduler ─┬─▶ store of decisions (SQLite)
    ten clients ──▶ HTTP ─────▶ moorage-api ───────┘

Both follow the same database of Placement; claims are granted by the canned Placement.
Blocks of time alternate, so that a change of the machine's speed concerns all alike.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from rich.console import Console
from rich.table import Table
from sqlalchemy.orm import Session

from moorage.objects import RequestSpec
from moorage.scheduler.conf import load
from moorage.scheduler.placement.embedded import EmbeddedPlacement
from moorage.scheduler.rpc import SchedulerAPI, get_transport
from tests.fixtures.placement_rows import write_providers
from tests.fixtures.ports import free_port
from tests.fixtures.rabbitmq import Broker
from tests.fixtures.scheduler_process import SchedulerProcess

from .clouds import Cloud, make_cloud, stable_uuid
from .costs import Costs
from .filtering import providers_of
from .requests import plain
from .tables import make_table
from .timing import NONE, Percentiles, format_number, format_percentiles
from .workers import canned_server, inventory_of

N_CLIENTS: Final = 10
#: Seconds from one question of a client to its next.
INTERVAL_S: Final = 1.0
#: Of moorage-api.
NICENESS: Final = (0, 10)

_API: Final = "moorage.scheduler.cmd.api"
_ASKING: Final = "bench.asking"
_CONTEXT: Final = {"project_id": "project", "user_id": "user"}
#: What moorage-api does.
_ALONE: Final = "stopped"
_QUIET: Final = "nobody asks"
_ASKED: Final = f"{N_CLIENTS} clients"
_MS_PER_S: Final = 1000


@dataclass(frozen=True, slots=True)
class ExplainingPlan:
    """The number of hosts, and of blocks of each kind; the time before them."""

    n_hosts: int = 10_000
    n_blocks: int = 4
    block_s: float = 10.0
    settling_s: float = 2.0


@dataclass(slots=True)
class Blocks:
    """All blocks of one kind: what moorage-api does, and how nice it is.

    Attributes
    ----------
    scheduler_ms, api_ms : float
        CPU time of the two processes.
    """

    niceness: int
    api: str
    decisions_ms: list[float] = field(default_factory=list)
    answers_ms: list[float] = field(default_factory=list)
    wall_ms: float = 0.0
    scheduler_ms: float = 0.0
    api_ms: float = 0.0

    @property
    def per_s(self) -> float:
        """Decisions a second."""
        return len(self.decisions_ms) / self.wall_ms * _MS_PER_S

    @property
    def cpu_ms(self) -> float:
        """CPU time of the scheduler for a decision."""
        return self.scheduler_ms / len(self.decisions_ms)


def print_explaining(
    console: Console, plan: ExplainingPlan, say: Callable[[str], None]
) -> None:
    """Measure and print; without a broker, print the reason."""
    try:
        found = blocks_of(plan, say)
    except pytest.skip.Exception as e:
        console.print(f"[bold]explaining not measured[/]: {e}")
        return
    console.print(explaining_table(plan, found))


def blocks_of(plan: ExplainingPlan, say: Callable[[str], None]) -> list[Blocks]:
    """Measure decisions with moorage-api stopped, idle and asked, at each niceness.

    Raises
    ------
    pytest.skip.Exception
        No RabbitMQ is running, and none can be started.
    """
    cloud = make_cloud(plan.n_hosts)
    found: list[Blocks] = []
    with _configured(cloud) as path, _scheduler(path) as scheduler:
        decide = _decider(cloud, path)
        for niceness in NICENESS:
            say(f"explaining: moorage-api with nice {niceness}")
            kinds = [Blocks(niceness, api) for api in (_ALONE, _QUIET, _ASKED)]
            with _api(path, niceness) as (api, url):
                _decide_for(plan.settling_s, decide)
                costs = Costs(scheduler.pid, api.pid)
                for _ in range(plan.n_blocks):
                    for blocks in kinds:
                        _measure(blocks, plan, (api, url), decide, costs)
            found += kinds
    return found


def _measure(
    blocks: Blocks,
    plan: ExplainingPlan,
    asked: tuple[SchedulerProcess, str],
    decide: Callable[[], float],
    costs: Costs,
) -> None:
    api, url = asked
    with contextlib.ExitStack() as stack:
        if blocks.api == _ALONE:
            api.send(signal.SIGSTOP)
            stack.callback(api.send, signal.SIGCONT)
        if blocks.api == _ASKED:
            stack.enter_context(_clients(url, blocks.answers_ms))
        # Of what the block before has left, too.
        _decide_for(plan.settling_s, decide)
        wall, _, scheduler, explaining = costs.of(
            lambda: blocks.decisions_ms.extend(_decide_for(plan.block_s, decide))
        )
    blocks.wall_ms += wall
    blocks.scheduler_ms += scheduler
    blocks.api_ms += explaining


def _decide_for(seconds: float, decide: Callable[[], float]) -> list[float]:
    ends_at, found = time.monotonic() + seconds, [decide()]
    while time.monotonic() < ends_at:
        found.append(decide())
    return found


def _decider(cloud: Cloud, path: Path) -> Callable[[], float]:
    """Return a function that has one request decided, and returns its milliseconds."""
    conf = load([f"--config-file={path}"], config_files=[])
    api = SchedulerAPI(get_transport(conf), timeout_s=120)
    primitive, numbers = plain(cloud).primitive, itertools.count()

    def decide() -> float:
        number = next(numbers)
        spec = RequestSpec.obj_from_primitive(primitive)
        context = {**_CONTEXT, "request_id": f"req-{number}"}
        uuid = stable_uuid(f"request {number}")
        started = time.perf_counter()
        api.select_destinations(context, spec, [uuid], return_alternates=True)
        return (time.perf_counter() - started) * _MS_PER_S

    return decide


# -- the processes -----------------------------------------------------------------


@contextlib.contextmanager
def _configured(cloud: Cloud) -> Iterator[Path]:
    """Run a broker and the canned Placement; yield the path of the options."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Broker() as broker,
        canned_server(cloud) as placement_url,
    ):
        path = Path(folder, "moorage.conf")
        inventory_file = Path(folder, "inventory.yaml")
        inventory_file.write_text(json.dumps(inventory_of(cloud)))
        database = f"{folder}/placement.sqlite"
        with (
            EmbeddedPlacement(database) as placement,
            Session(placement.engine) as session,
            session.begin(),
        ):
            write_providers(session, providers_of(cloud))
        path.write_text(
            f"[DEFAULT]\ntransport_url = {broker.transport_url}\nhost = bench\n"
            f"[placement]\nauth_type = none\nendpoint_override = {placement_url}\n"
            f"[placement_database]\nconnection = sqlite:///{database}\n"
            f"[moorage]\ninventory_file = {inventory_file}\n"
            f"[web]\nport = {free_port()}\n"
        )
        yield path


def _environment(path: Path) -> dict[str, str]:
    # It takes precedence over the file, and is empty for tests.
    store = f"sqlite:///{path.parent}/decisions.sqlite"
    return {"OS_MOORAGE__DECISION_STORE_CONNECTION": store}


def _scheduler(path: Path) -> SchedulerProcess:
    return SchedulerProcess(path, environment=_environment(path))


@contextlib.contextmanager
def _api(path: Path, niceness: int) -> Iterator[tuple[SchedulerProcess, str]]:
    port = load([f"--config-file={path}"], config_files=[]).web.port
    with SchedulerProcess(
        path,
        module=_API,
        until="Following the schedulers",
        environment=_environment(path),
        niceness=niceness,
    ) as process:
        yield process, f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def _clients(url: str, answers_ms: list[float]) -> Iterator[None]:
    """Let clients ask, from their first answer on; add the milliseconds at the end.

    Raises
    ------
    RuntimeError
        A question failed.
    """
    command = [sys.executable, "-m", _ASKING, url, str(N_CLIENTS), str(INTERVAL_S)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()  # starting them takes longer than a short block
        yield
    finally:
        output, _ = process.communicate()
    answered = json.loads(output)
    if answered["n_failed"] or not answered["answers_ms"]:
        raise RuntimeError(f"{answered['n_failed']} questions to moorage-api failed")
    answers_ms += answered["answers_ms"]


# -- the table ---------------------------------------------------------------------


def explaining_table(plan: ExplainingPlan, found: Sequence[Blocks]) -> Table:
    """Return the table of the measurements."""
    table = make_table(
        f"Decisions while others ask for explanations, {plan.n_hosts:,} hosts, ms",
        "nice|moorage-api",
        "decisions/s|change|decision|its CPU|change|answers/s|answer|API's CPU",
        f"One request after the other over RabbitMQ to one worker; {plan.n_blocks} "
        f"blocks of {plan.block_s:.0f} s. Each client asks every {INTERVAL_S:.0f} s: "
        "decisions, explain, why-not, dry-run and hosts in turn. change: from "
        "moorage-api stopped. its CPU: of the scheduler for a decision. API's CPU: "
        "share of one core. Where others keep all cores busy, decisions a second show "
        "what the cores have left; the CPU shows what became slower.",
    )
    for each in found:
        alone = next(b for b in found if b.niceness == each.niceness)
        asked_s = (plan.block_s + plan.settling_s) * plan.n_blocks
        answers = each.answers_ms
        table.add_row(
            str(each.niceness),
            each.api,
            format_number(each.per_s),
            NONE if each is alone else f"{each.per_s / alone.per_s - 1:+.1%}",
            format_percentiles(Percentiles.of(each.decisions_ms)),
            format_number(each.cpu_ms),
            NONE if each is alone else f"{each.cpu_ms / alone.cpu_ms - 1:+.1%}",
            format_number(len(answers) / asked_s) if answers else NONE,
            format_percentiles(Percentiles.of(answers) if answers else None),
            f"{each.api_ms / each.wall_ms:.0%}",
        )
    return table
