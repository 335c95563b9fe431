# SPDX-License-Identifier: Apache-2.0
"""moorage-scheduler over a real RabbitMQ: what a stock client sees of it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import oslo_messaging
import pytest

from moorage.objects import Serializer
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler import errors
from moorage.scheduler.placement.embedded import TOKEN
from moorage.scheduler.rpc import SchedulerAPI, get_transport

from ..fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory
from ..fixtures.placement_servers import MisbehavingServer, Misbehaviour
from ..fixtures.ports import refusing_url
from ..fixtures.rabbitmq import Broker
from ..fixtures.scheduler_process import SchedulerProcess
from ..fixtures.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("functional")]

PLACEMENT_TIMEOUT_S = 8
#: Without heartbeats, a caller gives up after it.
MONITOR_S = 5


@pytest.fixture(scope="module")
def bus() -> Iterator[Any]:
    """A transport to a broker of our own."""
    with Broker() as broker:
        conf = moorage_conf.load([], config_files=[])
        transport = get_transport(conf, broker.transport_url)
        transport.url = broker.transport_url
        yield transport
        transport.cleanup()


@pytest.fixture
def config(bus: Any, tmp_path: Path) -> list[str]:
    """Lines of a configuration with one host and the embedded Placement."""
    return [
        "[DEFAULT]",
        f"transport_url = {bus.url}",
        "[moorage]",
        f"inventory_file = {write_inventory(tmp_path, host('h1'))}",
    ]


def _placement_at(url: str, timeout_s: float = PLACEMENT_TIMEOUT_S) -> list[str]:
    return [
        "[placement]",
        "auth_type = admin_token",
        f"endpoint = {url}",
        f"endpoint_override = {url}",
        f"token = {TOKEN}",
        f"timeout = {timeout_s}",
    ]


def _serving(folder: Path, lines: list[str]) -> SchedulerProcess:
    path = folder / "moorage.conf"
    path.write_text("\n".join(lines))
    return SchedulerProcess(path)


def test_failures_arrive_as_a_stock_client_rebuilds_them(
    bus: Any, config: list[str], tmp_path: Path
) -> None:
    target = oslo_messaging.Target(topic="scheduler", version="4.5")
    client = oslo_messaging.get_rpc_client(bus, target, timeout=60)
    api = SchedulerAPI(bus, timeout_s=60)
    too_large = Serializer().serialize_entity({}, request(vcpus=99))
    unknown = Serializer().serialize_entity({}, request())
    unknown["nova_object.data"]["flavor"]["nova_object.name"] = "Florist"
    with _serving(tmp_path, config) as scheduler:
        for spec, text in (
            (too_large, "No valid host was found. "),
            (unknown, "No valid host was found. InvalidRequest: .*Florist"),
        ):
            arguments = {"spec_obj": spec, "instance_uuids": new_uuids()}
            with pytest.raises(oslo_messaging.RemoteError, match=text) as raised:
                client.call(CONTEXT, "select_destinations", **arguments)
            assert raised.value.exc_type == "NoValidHost"
        with pytest.raises(errors.NoValidHost):
            api.select_destinations(CONTEXT, request(vcpus=99), new_uuids())
        with pytest.raises(errors.InvalidRequest, match="memory_mb"):
            api.select_destinations(CONTEXT, request(memory_mb=-1), new_uuids())
        [uuid] = new_uuids()
        [[chosen]] = api.select_destinations(CONTEXT, request(), [uuid])
        assert chosen.service_host == "h1"
        scheduler.wait_for(f"{uuid}.* Decision ")  # the last line about requests
        n_lines = len(scheduler.log)
        assert scheduler.stop() == 0
    assert not [line for line in scheduler.log[n_lines:] if " INFO " not in line]


@pytest.mark.deep
def test_slow_call_is_kept_alive_and_ends_in_a_typed_error(
    bus: Any, config: list[str], tmp_path: Path, server: MisbehavingServer
) -> None:
    server.misbehave(Misbehaviour.ERROR)
    config += _placement_at(server.url)
    api = SchedulerAPI(bus, timeout_s=60, call_monitor_timeout_s=MONITOR_S)
    with _serving(tmp_path, config) as scheduler:
        assert scheduler.count("Placement does not answer yet")
        scheduler.wait_for("Placement answers")  # it is polled no more
        server.misbehave(Misbehaviour.HANG, times=100)
        with pytest.raises(errors.PlacementUnavailable, match="timed out"):
            api.select_destinations(CONTEXT, request(), new_uuids())


def test_running_request_is_finished_before_the_end(
    bus: Any, config: list[str], tmp_path: Path, server: MisbehavingServer
) -> None:
    config += _placement_at(server.url, timeout_s=4)
    api = SchedulerAPI(bus, timeout_s=60)
    with _serving(tmp_path, config) as scheduler, ThreadPoolExecutor(1) as pool:
        server.misbehave(Misbehaviour.HANG, times=100)
        call = pool.submit(api.select_destinations, CONTEXT, request(), new_uuids())
        wait_until(lambda: any("allocation_cand" in path for _, path, _ in server.seen))
        assert scheduler.stop() == 0
        with pytest.raises(errors.PlacementUnavailable):
            call.result(60)


@pytest.mark.deep
@pytest.mark.parametrize("n_workers", [1, 2])
def test_broker_that_refuses_the_login_is_one_line_and_no_traceback(
    config: list[str], tmp_path: Path, n_workers: int
) -> None:
    path = tmp_path / "moorage.conf"
    lines = [line.replace("guest:guest", "guest:wrong-secret") for line in config]
    path.write_text("\n".join(lines + _placement_at(refusing_url())))
    line = (
        r"\[DEFAULT\] transport_url = rabbit://guest:\*\*\*@.*Login was refused.*Check"
    )
    with SchedulerProcess(path, n_workers=n_workers, until=line) as scheduler:
        scheduler.wait_for(line, times=n_workers)
        assert scheduler.stop() == 0
    assert not scheduler.count("Traceback|wrong-secret")
