# SPDX-License-Identifier: Apache-2.0
"""Memory of several workers compared with one: real processes and a real RabbitMQ.

Placement is canned; the hosts come from a file. Memory is the proportional set size,
which divides shared pages among their processes. It is read once all workers serve, and
again after some requests.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from moorage.objects import RequestSpec
from moorage.scheduler.conf import load
from moorage.scheduler.rpc import SchedulerAPI, get_transport
from tests.fixtures.rabbitmq import Broker
from tests.fixtures.scheduler_process import SchedulerProcess

from .canned import CannedPlacement
from .clouds import Cloud, make_cloud, stable_uuid
from .requests import plain

N_WORKERS = (1, 4)
#: Candidates in an answer of Placement: the default of [scheduler]
#: max_placement_results, and all hosts.
N_CANDIDATES = (1_000, 10_000)

_N_CLIENTS = 4
_KIB_PER_MIB = 1024
_CONTEXT = {"request_id": "req-bench", "project_id": "project", "user_id": "user"}


@dataclass(frozen=True, slots=True)
class WorkersPlan:
    """The number of hosts, and of requests before the memory is read again."""

    n_hosts: int = 10_000
    n_requests: int = 200


@dataclass(frozen=True, slots=True)
class WorkerMemory:
    """Proportional set sizes, the sum of all processes of a scheduler, MiB."""

    n_candidates: int
    n_workers: int
    started_mib: float
    used_mib: float


def print_memory(console: Console, plan: WorkersPlan) -> None:
    """Measure and print; without a broker, print the reason."""
    try:
        found = memory_of_workers(plan)
    except pytest.skip.Exception as e:
        console.print(f"[bold]memory of workers not measured[/]: {e}")
        return
    console.print(memory_table(plan, found))


def memory_of_workers(plan: WorkersPlan) -> list[WorkerMemory]:
    """Measure a scheduler with each number of workers, one after the other.

    Raises
    ------
    pytest.skip.Exception
        No RabbitMQ is running, and none can be started.
    """
    cloud = make_cloud(plan.n_hosts)
    found = []
    with Broker() as broker:
        for n_candidates in sorted({min(n, plan.n_hosts) for n in N_CANDIDATES}):
            offered = replace(cloud, records=cloud.records[:n_candidates])
            with canned_server(offered) as placement_url:
                for n in N_WORKERS:
                    with _scheduler(cloud, n, broker, placement_url) as scheduler:
                        pids = {scheduler.pid, *scheduler.workers}
                        started = _pss_mib(pids)
                        _send_requests(broker, cloud, plan.n_requests)
                        used = _pss_mib(pids)
                    found.append(WorkerMemory(n_candidates, n, started, used))
    return found


def memory_table(plan: WorkersPlan, found: Sequence[WorkerMemory]) -> Table:
    """Return the table of the measurements."""
    table = Table(
        title=f"Memory of workers, {plan.n_hosts:,} hosts",
        caption=f"PSS of all processes; used: after {plan.n_requests} requests",
        caption_justify="left",
    )
    for name in ("candidates", "workers", "started, MiB", "used, MiB", "ratio to one"):
        table.add_column(name, justify="right")
    for each in found:
        one = next(m for m in found if m.n_candidates == each.n_candidates)
        started = each.started_mib / one.started_mib
        used = each.used_mib / one.used_mib
        table.add_row(
            f"{each.n_candidates:,}",
            str(each.n_workers),
            f"{each.started_mib:.0f}",
            f"{each.used_mib:.0f}",
            f"{started:.2f}, {used:.2f}",
        )
    return table


@contextmanager
def _scheduler(
    cloud: Cloud, n_workers: int, broker: Broker, placement_url: str
) -> Iterator[SchedulerProcess]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "moorage.conf")
        inventory_file = Path(folder, "inventory.yaml")
        inventory_file.write_text(json.dumps(inventory_of(cloud)))
        path.write_text(
            f"[DEFAULT]\ntransport_url = {broker.transport_url}\nhost = bench\n"
            f"[placement]\nauth_type = none\nendpoint_override = {placement_url}\n"
            f"[scheduler]\nmax_placement_results = {len(cloud)}\n"
            f"[moorage]\ninventory_file = {inventory_file}\n"
        )
        with SchedulerProcess(path, n_workers=n_workers) as scheduler:
            yield scheduler


def _send_requests(broker: Broker, cloud: Cloud, n_requests: int) -> None:
    transport = get_transport(load([], config_files=[]), broker.transport_url)
    api = SchedulerAPI(transport, timeout_s=120)

    def send(number: int) -> None:
        spec = RequestSpec.obj_from_primitive(plain(cloud).primitive)
        uuid = stable_uuid(f"request {number}")
        api.select_destinations(_CONTEXT, spec, [uuid], return_alternates=True)

    with ThreadPoolExecutor(_N_CLIENTS) as pool:
        list(pool.map(send, range(n_requests)))
    transport.cleanup()


def inventory_of(cloud: Cloud) -> dict[str, object]:
    hosts = [
        {
            "host": record.host,
            "uuid": record.uuid,
            "cell": "cell1",
            "vcpus": record.vcpus_total,
            "memory_mb": record.total_usable_ram_mb,
            "local_gb": record.total_usable_disk_gb,
            "supported_instances": [["x86_64", "kvm", "hvm"]],
            "instances": cloud.instances[record.host],
        }
        for record in cloud.records
    ]
    return {"cells": [{"name": "cell1"}], "hosts": hosts}


def _pss_mib(pids: Iterable[int]) -> float:
    rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    lines = itertools.chain.from_iterable(map(str.splitlines, rollups))
    kib = sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kib / _KIB_PER_MIB


@contextmanager
def canned_server(cloud: Cloud) -> Iterator[str]:
    """Serve the canned Placement over HTTP; yield its URL."""
    placement = CannedPlacement(cloud, plain(cloud))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            verb = getattr(placement, self.command.lower())
            answer = verb(self.path)
            body = answer.text.encode()
            self.send_response(answer.status_code)
            self.send_header("Content-Type", "application/json")
            if answer.status_code != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_DELETE = _answer

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
