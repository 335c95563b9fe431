# SPDX-License-Identifier: Apache-2.0
"""The steps of the demo, in order; all tables show data of this run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.progress import TimeElapsedColumn as ElapsedColumn

from moorage.objects import Flavor, ImageMeta, ImageMetaProps, RequestSpec
from moorage.scheduler.errors import NoValidHost

from ..conductor import BuildFailed, Computes, Conductor, Context, Server
from ..conductor.computes import Builds
from . import report
from .cloud import DemoCloud, running
from .commands import DATA, UNPLACEABLE, commands
from .interrupt import Interrupt
from .places import REQUESTS, PlacesOfHosts
from .trace import TraceEvent, VirtualMachine, events, read_vms
from .usage import differences, read_usages, total_by_zone
from .wire import read_messages, replay

_N_WORKERS = 2
_N_SHOWN = 15

End = Callable[[Context, str], Server]
Placed = list[tuple[VirtualMachine, Server]]


def play(
    console: Console, interrupt: Interrupt, transport_url: str, n_vms: int
) -> bool:
    """Run a cloud; return whether Placement and the servers agree at the end."""
    vms = read_vms(DATA / "traces" / "azure-packing-batched.csv", n_vms)
    failing_vm = vms[len(vms) // 3]
    with progress_bar(console) as progress:
        seeding = progress.add_task("hosts written to Placement", total=None)

        def seeded(n: int, total: int) -> None:
            interrupt.check()
            progress.update(seeding, completed=n, total=total)

        files = DATA / "inventory.yaml", DATA / "rows.csv"
        with running(*files, transport_url, seeded, interrupt=interrupt) as cloud:
            computes = Computes(_fails_once(failing_vm.uuid))
            conductor = Conductor(cloud.api, cloud.placement, computes)
            _play_wire(cloud, conductor, console, interrupt)
            placed = _play_trace(conductor, events(vms), progress, interrupt)
            if len(placed) < len(vms):
                console.print(f"{len(vms) - len(placed)} instances were not built.")
            _show_decisions(cloud, console, placed, failing_vm)
            _show_moves(cloud, conductor, console, placed)
            _show_places(cloud, conductor, console)
            interrupt.check()
            is_consistent = _show_usage(cloud, conductor, console)
            _request_unplaceable(cloud)
            for command in interrupt.checking(commands(cloud, placed[-1][0])):
                command.run(console)
            return is_consistent


def progress_bar(console: Console) -> Progress:
    """Return what shows how far the steps are."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, ElapsedColumn(), console=console)


def _fails_once(uuid: str) -> Builds:
    """Return a function with which all builds succeed except the first of `uuid`."""
    left = {uuid}

    def builds(instance_uuid: str, _host: str) -> bool:
        fails = instance_uuid in left
        left.discard(instance_uuid)
        return not fails

    return builds


def _play_wire(
    cloud: DemoCloud, conductor: Conductor, console: Console, interrupt: Interrupt
) -> None:
    messages = read_messages(DATA / "wire")
    answers = list(interrupt.checking(replay(messages, conductor, cloud.api)))
    console.print(report.answers_table(answers, cloud.scheduler.decisions))


def _play_trace(
    conductor: Conductor,
    events_: Sequence[TraceEvent],
    progress: Progress,
    interrupt: Interrupt,
) -> Placed:
    """Run creations and deletions, several at a time; return the built instances."""
    n_vms = sum(event.is_creation for event in events_)
    task = progress.add_task(
        f"{n_vms} creations and their deletions", total=len(events_)
    )
    pool = ThreadPoolExecutor(_N_WORKERS)
    try:
        return _run(
            conductor, events_, pool, lambda _: progress.advance(task), interrupt
        )
    finally:
        pool.shutdown(cancel_futures=True)


def _run(
    conductor: Conductor,
    events_: Sequence[TraceEvent],
    pool: ThreadPoolExecutor,
    advance: Callable[[object], None],
    interrupt: Interrupt,
) -> Placed:
    creations: dict[VirtualMachine, Future[Server | None]] = {}
    deletions: list[Future[None]] = []
    for event in interrupt.checking(events_):
        vm = event.vm
        if event.is_creation:
            creations[vm] = pool.submit(_create, conductor, vm)
            creations[vm].add_done_callback(advance)
        else:
            # The pool is first in, first out: the creation has begun already.
            deletions.append(pool.submit(_delete, conductor, vm, creations[vm]))
            deletions[-1].add_done_callback(advance)
    for deletion in interrupt.checking(deletions):
        deletion.result()
    every = interrupt.checking(creations.items())
    built = ((vm, creation.result()) for vm, creation in every)
    return [(vm, server) for vm, server in built if server is not None]


def _create(conductor: Conductor, vm: VirtualMachine) -> Server | None:
    try:
        [server] = conductor.create(vm.context(), vm.spec(), [vm.uuid])
    except (NoValidHost, BuildFailed):
        return None
    return server


def _delete(
    conductor: Conductor, vm: VirtualMachine, creation: Future[Server | None]
) -> None:
    if creation.result() is not None:
        conductor.delete(vm.context(), vm.uuid)


def _show_decisions(
    cloud: DemoCloud, console: Console, placed: Placed, failing_vm: VirtualMachine
) -> None:
    decisions = cloud.scheduler.decisions
    console.print(report.servers_table(placed, decisions, n_shown=_N_SHOWN))
    if server := dict(placed).get(failing_vm):
        console.print(report.attempts_table(failing_vm, server))


def _show_moves(
    cloud: DemoCloud, conductor: Conductor, console: Console, placed: Placed
) -> None:
    """Move two running instances: confirm one move, and revert the other."""
    running = [vm for vm, server in placed if server.uuid in conductor.servers]
    for vm, end in zip(running, (conductor.confirm, conductor.revert), strict=False):
        steps = list(_moved(cloud, conductor, vm, end))
        console.print(report.move_table(vm, end.__name__, steps, _host_names(cloud)))


def _moved(
    cloud: DemoCloud, conductor: Conductor, vm: VirtualMachine, end: End
) -> Iterator[report.MoveStep]:
    """Move an instance; yield what is held in Placement after each step."""
    placement = cloud.placement

    def step(name: str, *consumers: str) -> report.MoveStep:
        held = (tuple(placement.allocations(uuid).resources) for uuid in consumers)
        return report.MoveStep(name, *held)

    yield step("runs", vm.uuid)
    move = conductor.migrate(vm.context(), vm.uuid)
    yield step("migrated", vm.uuid, move.uuid)
    end(vm.context(), vm.uuid)
    yield step(f"after {end.__name__}", vm.uuid, move.uuid)


def _show_places(cloud: DemoCloud, conductor: Conductor, console: Console) -> None:
    """Create a group that is spread over racks, and instances near a row."""
    places = PlacesOfHosts.of(cloud.inventory.hosts)
    for request in REQUESTS:
        servers = request.create(conductor)
        console.print(request.title)
        console.print(report.places_table(places.rows_of(servers)))


def _host_names(cloud: DemoCloud) -> dict[str, str]:
    records = (host.record for host in cloud.inventory.hosts)
    return {record.uuid: record.host for record in records}


def _request_unplaceable(cloud: DemoCloud) -> None:
    """Request an Arm guest on a new hypervisor: all Arm hosts have old ones."""
    flavor = Flavor(
        name="arm", vcpus=4, memory_mb=8192, root_gb=20, ephemeral_gb=0, swap=0
    )
    flavor.extra_specs = {"capabilities:hypervisor_version": ">= 8000000"}
    spec = RequestSpec(
        flavor=flavor,
        image=ImageMeta(properties=ImageMetaProps(hw_architecture="aarch64")),
        instance_uuid=UNPLACEABLE,
        project_id="demo",
        user_id="demo",
    )
    try:
        cloud.api.select_destinations(
            {"request_id": "req-unplaceable"}, spec, [UNPLACEABLE]
        )
    except NoValidHost:
        return
    raise RuntimeError("An Arm guest was given a host that cannot run it")


def _show_usage(cloud: DemoCloud, conductor: Conductor, console: Console) -> bool:
    nodes = [host.record.uuid for host in cloud.inventory.hosts]
    usages = read_usages(cloud.placement, nodes)
    servers = list(conductor.servers.values())
    totals = total_by_zone(cloud.inventory, usages, servers)
    console.print(report.usage_table(totals))
    wrong = differences(usages, servers)
    for uuid, (used, held) in wrong.items():
        console.print(f"{uuid}: {used} used in Placement, {held} held by instances")
    if not wrong:
        console.print(
            f"Placement has the allocations of {len(servers)} instances: none is lost, "
            "none is leaked."
        )
    return not wrong
