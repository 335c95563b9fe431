# SPDX-License-Identifier: Apache-2.0
"""Agents report over a real RabbitMQ; a scheduler places instances on their hosts."""

from __future__ import annotations

import json
import signal
import sqlite3
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.agent import Bus, Reporter
from moorage.agent.capacity import cell_uuid
from moorage.objects import Aggregate, Selection
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.placement.embedded import TOKEN
from moorage.scheduler.placement.seed import Provider, seed
from moorage.scheduler.rpc import SchedulerAPI, get_transport
from moorage.testing.builders import host

from ..fixtures.agent_process import AgentProcess
from ..fixtures.clouds import CONTEXT, new_uuids, request
from ..fixtures.placement_servers import EmbeddedPlacementFixture, MisbehavingServer
from ..fixtures.ports import free_port
from ..fixtures.rabbitmq import Broker
from ..fixtures.scheduler_process import SchedulerProcess
from ..fixtures.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("functional")]

WAIT_S = 60.0
API = "moorage.scheduler.cmd.api"


class Cloud:
    """A broker, a Placement, and files of a scheduler and an agent."""

    def __init__(
        self,
        broker: Broker,
        url: str,
        embedded: EmbeddedPlacementFixture,
        folder: Path,
    ) -> None:
        self.placement, self._adapter = embedded.client, embedded.adapter
        self.store = folder / "store" / "hosts.sqlite"
        self._folder = folder
        self.telemetry_port, self.web_port = free_port(), free_port()
        self._common = [
            "[DEFAULT]",
            f"transport_url = {broker.transport_url}",
            "[placement]",
            "auth_type = admin_token",
            f"endpoint = {url}",
            f"endpoint_override = {url}",
            f"token = {TOKEN}",
        ]
        self.conf = moorage_conf.load([], config_files=[])
        self.transport = get_transport(self.conf, broker.transport_url)
        self.api = SchedulerAPI(self.transport, timeout_s=60)

    def scheduler(self, n_workers: int = 1, **how: Any) -> SchedulerProcess:
        """Start moorage-scheduler, or another module, on the store."""
        lines = ["[moorage]", "source = push", "candidates_max_age = 0"]
        lines += [f"store_connection = sqlite:///{self.store}"]
        lines += ["[filter_scheduler]"]
        lines += ["enabled_filters = ComputeFilter, AggregateMultiTenancyIsolation"]
        lines += ["[telemetry]", f"http_port = {self.telemetry_port}"]
        lines += ["[web]", f"port = {self.web_port}"]
        file = self._written("scheduler", lines)
        return SchedulerProcess(file, n_workers=n_workers, **how)

    def agent(self, cell: str = "cell1", *more: str) -> AgentProcess:
        lines = ["[DEFAULT]", "host = machine", "[agent]", "interval = 0.2"]
        lines += [f"node_uuid_file = {self._folder}/node_uuid", f"cell = {cell}"]
        lines += ["reserved_memory_mb = 0", f"disk_path = {self._folder}", *more]
        return AgentProcess(self._written("agent", lines))

    def vcpu_ratio(self) -> float:
        """Return the machine's VCPU allocation ratio in Placement."""
        uuid = (self._folder / "node_uuid").read_text().strip()
        url = f"/resource_providers/{uuid}/inventories"
        body: Any = self.placement.read(url)
        return float(body["inventories"]["VCPU"]["allocation_ratio"])

    def join_aggregate(self, aggregate_uuid: str) -> None:
        """Put the machine into an aggregate of Placement."""
        uuid = (self._folder / "node_uuid").read_text().strip()
        url = f"/resource_providers/{uuid}/aggregates"
        known: Any = self.placement.read(url)
        generation = known["resource_provider_generation"]
        wanted = {
            "aggregates": [aggregate_uuid],
            "resource_provider_generation": generation,
        }
        answer = self._adapter.put(url, json=wanted, microversion="1.36")
        assert answer.status_code == 200, answer.text

    def _written(self, name: str, lines: list[str]) -> Path:
        path = self._folder / f"{name}.conf"
        path.write_text("\n".join([*self._common, *lines]))
        return path

    def select(self, **changes: Any) -> Selection:
        """Return the host of a tiny instance, and delete the instance."""
        (uuid,) = new_uuids()
        small = {"memory_mb": 16, "root_gb": 0, "vcpus": 1}
        spec = request(**small, **changes)
        [[chosen]] = self.api.select_destinations(CONTEXT, spec, [uuid])
        gone = self._adapter.delete(f"/allocations/{uuid}")
        assert gone.status_code == 204, gone.text
        return chosen


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with Broker() as broker, EmbeddedPlacementFixture() as embedded:
        app = embedded.placement.wsgi_app
        with MisbehavingServer(app) as server:
            made = Cloud(broker, server.url, embedded, tmp_path)
            yield made
            made.transport.cleanup()


def _selected(cloud: Cloud, **changes: Any) -> Selection | None:
    try:
        return cloud.select(**changes)
    except NoValidHost:
        return None


def test_machine_is_reported_and_gets_instances(cloud: Cloud) -> None:
    with cloud.scheduler() as scheduler:
        with cloud.agent() as agent:
            chosen = wait_until(lambda: _selected(cloud))
            assert chosen is not None
            assert chosen.service_host == "machine"
            assert chosen.cell_uuid == cell_uuid("cell1")
            wait_until(lambda: _stored(cloud.store))
            assert cloud.vcpu_ratio() == 1.0
            cloud.agent("cell1", "cpu_allocation_ratio = 7")  # only writes the file
            agent.reload()
            wait_until(lambda: cloud.vcpu_ratio() == 7.0)
            assert agent.stop() == 0
        scheduler.send(signal.SIGKILL)
        scheduler.wait(WAIT_S)
    # No agent reports any more: the hosts are those of the store.
    with cloud.scheduler() as scheduler:
        assert cloud.select().service_host == "machine"
        # A new start of the agent is another incarnation.
        with cloud.agent(cell="cell2"):
            cell2 = cell_uuid("cell2")
            wait_until(lambda: cloud.select().cell_uuid == cell2)
        assert scheduler.stop() == 0


@pytest.mark.deep
def test_every_worker_receives_every_report(cloud: Cloud) -> None:
    with cloud.scheduler(n_workers=2) as scheduler, cloud.agent():
        # Requests go to the workers in turn: one without the report would refuse some.
        wait_until(lambda: all(_selected(cloud) for _ in range(10)))
        assert scheduler.stop() == 0


def _stored(path: Path, name: str = "hosts") -> int:
    with sqlite3.connect(path) as connection:
        (count,) = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
    connection.close()
    return int(count)


@pytest.mark.deep
def test_lost_message_is_requested_again(cloud: Cloud) -> None:
    record = host(host="h1", total_usable_disk_gb=10, free_disk_mb=10240)
    inventories = {
        name: {"total": 1000, "max_unit": 1000, "allocation_ratio": 1.0}
        for name in ("VCPU", "MEMORY_MB", "DISK_GB")
    }
    seed(cloud.placement, [Provider(record.uuid, "h1", inventories)])
    bus = Bus(cloud.transport, "agent-of-h1")
    lost: list[Any] = []
    is_losing = False

    def send(reports: list[dict[str, Any]]) -> None:
        lost.extend(reports) if is_losing else bus.cast(reports)

    reporter = Reporter(send, reply=bus.reply)
    bus.serve(reporter.send_whole_report)
    try:
        with cloud.scheduler():

            def is_placed_after_a_report() -> bool:
                reporter.report(record)
                return _selected(cloud) is not None

            wait_until(is_placed_after_a_report)
            is_losing = True
            record = host(host="h1", cell_uuid=record.cell_uuid, forced_down=True)
            reporter.report(record)
            is_losing = False
            assert len(lost) == 1
            assert cloud.select().service_host == "h1"
            # The next sign of life shows the gap.
            reporter.report(record)
            wait_until(lambda: _selected(cloud) is None)
    finally:
        bus.stop()


def _page(port: int, path: str, body: Any = None) -> str:
    """Return a page of this machine; a body is posted."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} if data else {}
    url = f"http://127.0.0.1:{port}{path}"
    with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as answer:
        return str(answer.read().decode())


@pytest.mark.deep
def test_zone_and_isolation_are_those_of_before_a_restart(cloud: Cloud) -> None:
    """No agent reports any more, and nova's API casts an aggregate only on a change."""
    uuid = "aaaaaaaa-0000-4000-8000-000000000001"
    metadata = {"availability_zone": "az2", "filter_tenant_id": "its-own"}
    aggregate = Aggregate(
        id=1, uuid=uuid, name="a", hosts=["machine"], metadata=metadata
    )
    own = {"project_id": "its-own", "availability_zone": "az2"}
    with cloud.scheduler() as scheduler, cloud.agent():
        wait_until(lambda: _selected(cloud))
        assert "No host aggregate is known" in _page(cloud.telemetry_port, "/readyz")
        cloud.join_aggregate(uuid)
        cloud.api.update_aggregates({}, [aggregate])
        wait_until(lambda: _selected(cloud, **own))
        assert not _selected(cloud)
        wait_until(lambda: _page(cloud.telemetry_port, "/readyz") == "Ready.\n")
        wait_until(
            lambda: _stored(cloud.store) and _stored(cloud.store, "host_aggregates")
        )
        scheduler.send(signal.SIGKILL)
        scheduler.wait(WAIT_S)
    request = {"flavor": {"vcpus": 1, "memory_mb": 16, "root_gb": 0}}
    with (
        cloud.scheduler() as scheduler,
        cloud.scheduler(module=API, until="Following the schedulers") as api,
    ):
        assert cloud.select(**own).service_host == "machine"
        assert not _selected(cloud)
        assert scheduler.count("1 aggregates restored")
        body = {"host": "machine", "request": {**request, "project_id": "another"}}
        [verdict] = json.loads(_page(cloud.web_port, "/v1/why-not", body))["nodes"]
        checks = [each["check"] for each in verdict["reasons"]]
        assert checks == ["AggregateMultiTenancyIsolation"]
        assert api.stop() == 0
        assert scheduler.stop() == 0
