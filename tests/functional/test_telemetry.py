# SPDX-License-Identifier: Apache-2.0
"""Metrics, probes and spans of moorage-scheduler with several workers."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fixtures
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)
from prometheus_client.parser import text_string_to_metric_families

from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.placement.embedded import TOKEN
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.rpc import SchedulerAPI, get_transport
from moorage.scheduler.seeding import providers
from moorage.scheduler.sources.inventory import read_inventory

from ..fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory
from ..fixtures.placement_servers import (
    EmbeddedPlacementFixture,
    MisbehavingServer,
    Misbehaviour,
)
from ..fixtures.ports import free_port
from ..fixtures.rabbitmq import Broker, DedicatedBroker
from ..fixtures.scheduler_process import SchedulerProcess
from ..fixtures.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("functional")]

N_HOSTS = 4
TRACE = "0af7651916cd43dd8448eb211c80319c"


class Cloud:
    """A broker, a Placement, a configuration, and a conductor's client."""

    def __init__(self, folder: Path, broker: Broker, server: MisbehavingServer) -> None:
        self.folder = folder
        self.server = server
        self.reports = folder / "reports"
        self.reports.mkdir()
        self.config = folder / "moorage.conf"
        names = [f"h{number}" for number in range(N_HOSTS)]
        self.inventory_file = write_inventory(folder, *map(host, names))
        self.config.write_text(
            "[DEFAULT]\n"
            f"transport_url = {broker.transport_url}\n"
            "[placement]\n"
            "auth_type = admin_token\n"
            f"endpoint = {server.url}\n"
            f"endpoint_override = {server.url}\n"
            f"token = {TOKEN}\n"
            "[moorage]\n"
            f"inventory_file = {self.inventory_file}\n"
            "[oslo_reports]\n"
            f"log_dir = {self.reports}\n"
        )
        self.transport = get_transport(
            moorage_conf.load([], config_files=[]), broker.transport_url
        )
        self.api = SchedulerAPI(self.transport, timeout_s=60)

    def option(self, line: str) -> None:
        """Add an option of [telemetry]."""
        with self.config.open("a") as config:
            config.write(f"[telemetry]\n{line}\n")


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with (
        Broker() as broker,
        EmbeddedPlacementFixture() as embedded,
        MisbehavingServer(embedded.placement.wsgi_app) as server,
    ):
        made = Cloud(tmp_path, broker, server)
        inventory = read_inventory(made.inventory_file)
        seed(embedded.client, providers(inventory))
        yield made
        made.transport.cleanup()


def page(port: int, path: str) -> tuple[int, str]:
    """Return the status and the text of a page."""
    try:
        answer = urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30)
    except urllib.error.HTTPError as e:
        answer = e
    with answer:
        return answer.status, answer.read().decode()


def metric(port: int, name: str, **labels: str) -> float:
    """Return one metric, summed over all workers; 0 where it is not exported."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(page(port, "/metrics")[1])
        for sample in family.samples
        if sample.name == name and sample.labels.items() >= labels.items()
    )


@pytest.mark.deep
@pytest.mark.parametrize("n_workers", [1, 2])
def test_failed_reload_is_shown_until_one_succeeds(
    n_workers: int, cloud: Cloud
) -> None:
    cloud.option("http_port = 0")
    right = cloud.config.read_text()
    with SchedulerProcess(cloud.config, n_workers=n_workers) as scheduler:
        [port] = [
            int(match[1])
            for line in list(scheduler.log)
            if (match := re.search(r"/readyz on port (\d+)", line))
        ]
        name = "moorage_last_reload_successful"
        wait_until(lambda: page(port, "/readyz") == (200, "Ready.\n"))
        assert metric(port, name) == 1
        cloud.config.write_text(f"{right}[scheduler]\nmax_attempts = two\n")
        scheduler.send(signal.SIGHUP)
        scheduler.wait_for(
            r"Reload failed.*\[scheduler\] max_attempts = two: not a number"
        )
        for _ in range(2 * n_workers):  # each worker answers some
            status, text = page(port, "/readyz")
            assert status == 200
            assert "The last reload failed" in text
            assert "[scheduler] max_attempts = two: not a number" in text
        wait_until(lambda: metric(port, name) == 0)
        cloud.config.write_text(f"{right}[scheduler]\nmax_attempts = 2\n")
        scheduler.send(signal.SIGHUP)
        wait_until(lambda: metric(port, name) == 1)
        assert page(port, "/readyz") == (200, "Ready.\n")


@pytest.mark.deep
def test_one_port_serves_the_sum_of_all_workers(cloud: Cloud, tmp_path: Path) -> None:
    cloud.option("http_port = 0")
    # Other tests that run now have folders of metrics as well.
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with SchedulerProcess(
        cloud.config, n_workers=2, environment={"TMPDIR": str(temporary)}
    ) as scheduler:
        assert len(list(temporary.glob("moorage-metrics-*"))) == 1
        [port] = [
            int(found[1])
            for line in list(scheduler.log)
            if (found := re.search(r"/readyz on port (\d+)", line))
        ]

        def n_decided() -> float:
            return metric(port, "moorage_decisions_total", outcome="selected")

        # Each worker gets some: the broker distributes requests round-robin.
        for _ in range(6):
            cloud.api.select_destinations(CONTEXT, request(), new_uuids())
        wait_until(lambda: n_decided() == 6)
        assert metric(port, "moorage_hosts") == N_HOSTS
        wait_until(lambda: page(port, "/readyz") == (200, "Ready.\n"))
        assert page(port, "/healthz")[0] == 200

        # What a worker counted outlives it; what it had does not.
        os.kill(scheduler.workers[0], signal.SIGKILL)
        scheduler.wait_for(f"Serving {N_HOSTS} hosts", times=3)
        cloud.api.select_destinations(CONTEXT, request(), new_uuids())
        wait_until(lambda: n_decided() == 7)
        assert metric(port, "moorage_hosts") == N_HOSTS

        scheduler.send(signal.SIGUSR2)
        wait_until(lambda: len(list(cloud.reports.iterdir())) >= 1)
        assert scheduler.is_running()
        assert scheduler.stop() == 0
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port), timeout=10)
    assert not list(temporary.glob("moorage-metrics-*"))


class Collector(fixtures.Fixture):
    """Takes spans over OTLP, as a collector does."""

    def _setUp(self) -> None:
        self.spans: list[tuple[str, str]] = []
        spans = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                export = ExportTraceServiceRequest.FromString(body)
                spans.extend(
                    (span.trace_id.hex(), span.name)
                    for resource in export.resource_spans
                    for scope in resource.scope_spans
                    for span in scope.spans
                )
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(
            target=server.serve_forever, args=(0.02,), daemon=True
        )
        thread.start()
        self.addCleanup(server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)


@pytest.mark.deep
def test_spans_of_a_request_come_to_the_collector(cloud: Cloud) -> None:
    cloud.option("tracing = true")
    context = {**CONTEXT, "traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
    with Collector() as collector:
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        }
        with SchedulerProcess(
            cloud.config, n_workers=2, environment=environment
        ) as scheduler:
            cloud.api.select_destinations(context, request(), new_uuids())
            # What is not sent yet is sent at the end.
            assert scheduler.stop() == 0
        names = {name for trace_id, name in collector.spans if trace_id == TRACE}
    assert {
        "select_destinations",
        "GET /allocation_candidates",
        "ComputeFilter",
        "claim",
        "PUT /allocations",
    } <= names


@pytest.mark.deep
def test_process_is_ready_only_while_the_broker_accepts_messages(cloud: Cloud) -> None:
    with DedicatedBroker() as broker:
        port = free_port()
        cloud.option(f"http_port = {port}")
        with cloud.config.open("a") as config:
            config.write(f"[DEFAULT]\ntransport_url = {broker.transport_url}\n")
        server = broker.transport_url.rpartition("@")[2]

        def is_unready() -> bool:
            status, text = page(port, "/readyz")
            return status == 503 and server in text and "refused" in text

        broker.stop()
        with SchedulerProcess(cloud.config, until=server) as scheduler:
            wait_until(is_unready)
            broker.start()
            wait_until(lambda: page(port, "/readyz") == (200, "Ready.\n"))
            broker.stop()
            wait_until(is_unready)
        assert not scheduler.count("Traceback")


@pytest.mark.deep
def test_process_is_not_ready_soon_after_placement_has_gone(cloud: Cloud) -> None:
    """No request has to fail first."""
    port = free_port()
    cloud.option(f"http_port = {port}")
    with SchedulerProcess(cloud.config) as scheduler:
        wait_until(lambda: page(port, "/readyz") == (200, "Ready.\n"))
        cloud.server.misbehave(Misbehaviour.BAD_GATEWAY, times=1000)
        wait_until(lambda: page(port, "/readyz")[0] == 503, timeout_s=30)
        assert "answered 502" in page(port, "/readyz")[1]
        cloud.server.behave()
        wait_until(lambda: page(port, "/readyz") == (200, "Ready.\n"))
        assert scheduler.stop() == 0
