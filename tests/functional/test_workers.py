# SPDX-License-Identifier: Apache-2.0
"""moorage-scheduler in several processes over a real RabbitMQ, from start to end."""

from __future__ import annotations

import functools
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import oslo_messaging
import pytest

from moorage.objects import Selection, Serializer
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.decision_store import DecisionStore
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.placement.embedded import TOKEN
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.rpc import SchedulerAPI, get_transport
from moorage.scheduler.seeding import providers
from moorage.scheduler.sources.inventory import read_inventory

from ..fixtures.clouds import (
    CONTEXT,
    claimed,
    host,
    new_uuids,
    request,
    usages,
    write_inventory,
)
from ..fixtures.placement_servers import EmbeddedPlacementFixture, MisbehavingServer
from ..fixtures.ports import refusing_url
from ..fixtures.rabbitmq import Broker, DedicatedBroker
from ..fixtures.scheduler_process import SchedulerProcess, has_ended
from ..fixtures.stored_decisions import decisions_in
from ..fixtures.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("functional")]

N_HOSTS = 8
TIMEOUT_S = 60

Selections = list[list[Selection]]


class GatedPlacement:
    """A Placement that holds back the claims of some, until it is opened."""

    def __init__(self, app: Callable[..., Any]) -> None:
        self._app = app
        self._open = threading.Event()
        self._lock = threading.Lock()
        self._n_to_hold = 0
        self.n_held = 0

    def hold(self, n_claims: int) -> None:
        """Hold back the next claims."""
        self._n_to_hold = n_claims

    def open(self) -> None:
        """Send all delayed answers."""
        self._open.set()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        with self._lock:
            is_claim = environ["REQUEST_METHOD"] in ("PUT", "POST")
            is_held = is_claim and self.n_held < self._n_to_hold
            self.n_held += is_held
        if is_held:
            self._open.wait(TIMEOUT_S)
        return self._app(environ, start_response)


class Cloud:
    """A broker, a Placement, and files that schedulers are started with."""

    def __init__(self, broker: Any, folder: Path, embedded: Any) -> None:
        self._folder = folder
        self.placement = embedded.client
        self.gate = GatedPlacement(embedded.placement.wsgi_app)
        self.broker = broker
        names = [f"h{number}" for number in range(N_HOSTS)]
        large = {"vcpus": 500, "memory_mb": 600_000, "local_gb": 6000}
        hosts = [host(name, **large) for name in names]
        self.inventory_file = write_inventory(folder, *hosts)
        inventory = read_inventory(self.inventory_file)
        seed(self.placement, providers(inventory))
        self.nodes = [each.record.uuid for each in inventory.hosts]
        self.placement_url = ""
        self.transport = get_transport(
            moorage_conf.load([], config_files=[]), broker.transport_url
        )

    def api(self, **changes: Any) -> SchedulerAPI:
        return SchedulerAPI(self.transport, **{"timeout_s": TIMEOUT_S, **changes})

    def config(self, *lines: str, name: str = "one") -> Path:
        """Write a configuration; lines of [DEFAULT] first, then other groups."""
        path = self._folder / f"{name}.conf"
        fixed = [
            "[placement]",
            "auth_type = admin_token",
            f"endpoint = {self.placement_url}",
            f"endpoint_override = {self.placement_url}",
            f"token = {TOKEN}",
            "[moorage]",
            f"inventory_file = {self.inventory_file}",
            "[DEFAULT]",
            f"transport_url = {self.broker.transport_url}",
            f"host = {name}",
        ]
        path.write_text("\n".join([*fixed, *lines]) + "\n")
        return path

    def select_at(self, name: str) -> object:
        """Select a destination at the scheduler of that name."""
        target = oslo_messaging.Target(topic="scheduler", version="4.5", server=name)
        client = oslo_messaging.get_rpc_client(
            self.transport, target, timeout=TIMEOUT_S, serializer=Serializer()
        )
        return client.call(
            CONTEXT,
            "select_destinations",
            spec_obj=request(),
            instance_uuids=new_uuids(),
            return_objects=True,
        )

    def n_claimed(self) -> int:
        """Return the number of instances of one VCPU in Placement."""
        found = usages(self.placement, self.nodes)
        return sum(used["VCPU"] for used in found.values())


@pytest.fixture
def broker() -> Iterator[Any]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def cloud(tmp_path: Path, broker: Any) -> Iterator[Cloud]:
    with EmbeddedPlacementFixture() as embedded:
        made = Cloud(broker, tmp_path, embedded)
        with MisbehavingServer(made.gate) as server:
            made.placement_url = server.url
            yield made
            made.gate.open()
            made.transport.cleanup()


def select(api: SchedulerAPI, uuids: Sequence[str] | None = None) -> Selections:
    return api.select_destinations(
        CONTEXT, request(), uuids or new_uuids(), return_alternates=True
    )


def test_killed_worker_is_replaced_and_requests_and_their_store_go_on(
    cloud: Cloud, tmp_path: Path
) -> None:
    """A killed worker loses at most decisions that it had not written yet."""
    url = f"sqlite:///{tmp_path}/store/decisions.sqlite"
    environment = {"OS_MOORAGE__DECISION_STORE_CONNECTION": url}
    api = cloud.api()
    store = DecisionStore(url)

    def recorded() -> set[str]:
        decisions = decisions_in(store, limit=1000)
        return {uuid for decision in decisions for uuid in decision.instance_uuids}

    before, *while_one_serves = new_uuids(4)
    afterwards = new_uuids(16)
    with SchedulerProcess(
        cloud.config(), n_workers=2, environment=environment
    ) as scheduler:
        first = scheduler.workers
        assert len({*first, scheduler.pid}) == 3
        select(api, [before])
        wait_until(lambda: before in recorded())
        os.kill(first[1], signal.SIGKILL)
        # Until it is replaced, the other worker answers.
        for uuid in while_one_serves:
            select(api, [uuid])
        scheduler.wait_for(rf"Worker 1, process {first[1]}, was killed by SIGKILL")
        scheduler.wait_for("Serving 8 hosts", times=3)
        assert scheduler.workers[0] == first[0]
        assert scheduler.workers[1] != first[1]
        for uuid in afterwards:
            select(api, [uuid])
        assert scheduler.stop() == 0
    assert cloud.n_claimed() == 20
    assert {before, *while_one_serves, *afterwards} <= recorded()
    store.stop()


@pytest.mark.deep
def test_every_worker_receives_the_claims_of_others(cloud: Cloud) -> None:
    lines = ("[filter_scheduler]", "enabled_filters = SameHostFilter")
    api = cloud.api()
    with SchedulerProcess(cloud.config(*lines), n_workers=2) as scheduler:
        uuids = new_uuids(4)
        for uuid in uuids:
            select(api, [uuid])

        def is_known(uuid: str) -> bool:
            beside = request(scheduler_hints={"same_host": [uuid]})
            try:
                api.select_destinations(CONTEXT, beside, new_uuids())
            except NoValidHost:
                return False
            return True

        def all_know(uuid: str) -> bool:
            return all(is_known(uuid) for _ in range(6))

        # Requests go to the workers in turn: one without the claim would refuse some.
        for uuid in uuids:
            wait_until(functools.partial(all_know, uuid))
        assert scheduler.stop() == 0


@pytest.mark.deep
def test_sighup_reaches_all_workers_unless_the_file_is_broken(cloud: Cloud) -> None:
    api = cloud.api()
    path = cloud.config("[scheduler]", "max_attempts = 3")
    with SchedulerProcess(path, n_workers=2) as scheduler:
        assert {len(mine) for _ in range(6) for mine in select(api)} == {3}
        for wrong in ("host_", "host_subset_size = 0"):
            cloud.config("[scheduler]", "max_attempts = 1", "[filter_scheduler]", wrong)
            before = scheduler.count(" ERROR ")
            scheduler.send(signal.SIGHUP)
            scheduler.wait_for("ERROR .*Reload failed.*one.conf", times=before + 1)
        assert {len(mine) for _ in range(6) for mine in select(api)} == {3}
        assert scheduler.count("changed from") == 0
        cloud.config("executor_thread_pool_size = 7", "[scheduler]", "max_attempts = 1")
        scheduler.send(signal.SIGHUP)
        changed = r"\[scheduler\] max_attempts changed from 3 to 1"
        scheduler.wait_for(changed, times=3)
        scheduler.wait_for(r"8 hosts of 2 cells read", times=3)
        assert {len(mine) for _ in range(6) for mine in select(api)} == {1}
        restart = r"executor_thread_pool_size changed from 64 to 7; restart to apply"
        scheduler.wait_for(restart, times=3)


@pytest.mark.deep
@pytest.mark.parametrize("n_workers", [1, 2])
def test_sighup_switches_to_the_plugins_of_the_file_if_all_can_be_used(
    n_workers: int, cloud: Cloud
) -> None:
    def serve_only(lines: str) -> None:
        cloud.config("[filter_scheduler]", *lines.splitlines())
        scheduler.send(signal.SIGHUP)

    api = cloud.api()
    path = cloud.config("[filter_scheduler]", "enabled_filters = ComputeFilter")
    with SchedulerProcess(path, n_workers=n_workers) as scheduler:
        for wrong, cause in (
            ("enabled_filters = IoOpsFilter,NoFilter", "no filter 'NoFilter'"),
            (
                "weight_classes = RAMWeigher,no.such.Weigher",
                "no.such.Weigher cannot be used: ModuleNotFoundError",
            ),
            (
                "enabled_filters = ImagePropertiesFilter\n"
                "image_properties_default_architecture = arm64",
                r"'ImagePropertiesFilter' \(.* of moorage .*"
                r"\[filter_scheduler\] image_properties_default_architecture: .*arm64",
            ),
        ):
            before = scheduler.count(" ERROR ")
            serve_only(wrong)
            scheduler.wait_for(f"ERROR .*Reload failed.*{cause}", times=1)
            select(api)
            assert scheduler.count(" ERROR ") == before + 1, "one line"
        assert scheduler.count("changed from") == 0
        serve_only("enabled_filters = SameHostFilter")
        scheduler.wait_for("8 hosts of 2 cells read", times=n_workers + 1)
        # Requests go to the workers in turn: one with its old filters would answer.
        for _ in range(2 * n_workers):
            beside = request(scheduler_hints={"same_host": new_uuids()})
            with pytest.raises(NoValidHost):
                api.select_destinations(CONTEXT, beside, new_uuids())
        assert scheduler.stop() == 0


@pytest.mark.deep
def test_what_was_not_begun_is_answered_by_another_scheduler(cloud: Cloud) -> None:
    cloud.gate.hold(2)
    api = cloud.api()
    small = cloud.config("executor_thread_pool_size = 2")
    with (
        ThreadPoolExecutor(20) as pool,
        SchedulerProcess(cloud.config(name="two")) as other,
        SchedulerProcess(small) as ending,
    ):
        begun = [pool.submit(cloud.select_at, "one") for _ in range(2)]
        wait_until(lambda: cloud.gate.n_held == 2)
        calls = [pool.submit(select, api) for _ in range(16)]
        # The broker has sent four to the busy one, which handled none of them.
        wait_until(lambda: sum(call.done() for call in calls) == 12)
        ending.send(signal.SIGTERM)
        calls += [pool.submit(select, api) for _ in range(4)]
        for call in calls:
            call.result(TIMEOUT_S)
        assert ending.is_running(), "it has two requests under way"
        wait_until(lambda: other.count("Decision req-test") == 20)
        cloud.gate.open()
        for early in begun:
            early.result(TIMEOUT_S)
        assert ending.wait() == 0
    assert cloud.n_claimed() == 22


@pytest.mark.deep
def test_end_under_load_loses_and_doubles_nothing(cloud: Cloud) -> None:
    api = cloud.api()
    is_over = threading.Event()
    answers: list[Selections] = []

    def send() -> None:
        while not is_over.is_set():
            answers.append(select(api))

    ending = SchedulerProcess(cloud.config(), n_workers=2)
    with (
        ThreadPoolExecutor(4) as pool,
        SchedulerProcess(cloud.config(name="two"), n_workers=2),
        ending,
    ):
        calls = [pool.submit(send) for _ in range(4)]
        wait_until(lambda: len(answers) >= 8)
        ending.send(signal.SIGTERM)
        assert ending.wait() == 0
        n_before = len(answers)
        wait_until(lambda: len(answers) >= n_before + 8)
        is_over.set()
        for call in calls:
            call.result(TIMEOUT_S)
    assert cloud.n_claimed() == len(answers)


@pytest.mark.deep
def test_worker_that_does_not_end_is_killed_and_logged(cloud: Cloud) -> None:
    cloud.gate.hold(1)
    lines = ("manager_shutdown_timeout = 100", "graceful_shutdown_timeout = 2")
    with (
        ThreadPoolExecutor(1) as pool,
        SchedulerProcess(cloud.config(*lines), n_workers=2) as scheduler,
    ):
        call = pool.submit(select, cloud.api(call_monitor_timeout_s=3))
        wait_until(lambda: cloud.gate.n_held == 1)
        assert scheduler.stop() == 1
        scheduler.wait_for("has not ended within graceful_shutdown_timeout, 2 s")
        with pytest.raises(oslo_messaging.MessagingTimeout):
            call.result(TIMEOUT_S)


@pytest.mark.deep
@pytest.mark.parametrize("n_workers", [1, 2])
def test_request_above_the_timeout_is_aborted_and_logged(
    n_workers: int, cloud: Cloud
) -> None:
    cloud.gate.hold(1)
    lines = ("manager_shutdown_timeout = 1",)
    with (
        ThreadPoolExecutor(1) as pool,
        SchedulerProcess(cloud.config(*lines), n_workers=n_workers) as scheduler,
    ):
        call = pool.submit(select, cloud.api(call_monitor_timeout_s=3))
        wait_until(lambda: cloud.gate.n_held == 1)
        assert scheduler.stop() == 1
        scheduler.wait_for("1 requests are not finished within manager_shutdown_timeo")
        with pytest.raises(oslo_messaging.MessagingTimeout):
            call.result(TIMEOUT_S)


@pytest.mark.deep
def test_workers_end_when_their_supervisor_is_killed(cloud: Cloud) -> None:
    with SchedulerProcess(cloud.config(), n_workers=2) as scheduler:
        scheduler.send(signal.SIGKILL)
        assert scheduler.wait() == -signal.SIGKILL
        scheduler.wait_for("The parent process has ended", times=2)
        for pid in scheduler.workers:
            wait_until(functools.partial(has_ended, pid))


@pytest.mark.deep
def test_systemd_is_notified(cloud: Cloud, tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(path))
        notified.settimeout(30)
        environment = {"NOTIFY_SOCKET": str(path)}
        scheduler = SchedulerProcess(
            cloud.config(), n_workers=2, environment=environment
        )
        with scheduler:
            assert notified.recv(512) == b"READY=1\nSTATUS=2 workers serve"
            scheduler.send(signal.SIGHUP)
            assert notified.recv(512).startswith(b"RELOADING=1\n")
            assert notified.recv(512).startswith(b"READY=1\n")
            assert scheduler.stop() == 0
        assert notified.recv(512).startswith(b"STOPPING=1\n")


@pytest.fixture
def own_broker() -> Iterator[DedicatedBroker]:
    with DedicatedBroker() as broker:
        yield broker


@pytest.mark.deep
def test_broker_that_goes_and_comes_loses_and_doubles_nothing(
    own_broker: DedicatedBroker, tmp_path: Path
) -> None:
    n_held, n_all = 4, 12
    with EmbeddedPlacementFixture() as embedded:
        cloud = Cloud(own_broker, tmp_path, embedded)
        # A broker that is back has forgotten where answers go, so some are lost.
        api = cloud.api(timeout_s=15, call_monitor_timeout_s=10)

        def place(uuid: str) -> Selection:
            for _ in range(6):
                try:
                    return select(api, [uuid])[0][0]
                except oslo_messaging.MessagingTimeout:
                    continue  # a conductor's user retries
            raise AssertionError(f"{uuid} is never answered")

        cloud.gate.hold(n_held)
        with MisbehavingServer(cloud.gate) as server, ThreadPoolExecutor(n_all) as pool:
            cloud.placement_url = server.url
            with SchedulerProcess(cloud.config(), n_workers=2) as scheduler:
                uuids = new_uuids(n_all)
                calls = [pool.submit(place, uuid) for uuid in uuids[:n_held]]
                wait_until(lambda: cloud.gate.n_held == n_held)
                own_broker.stop()
                cloud.gate.open()  # they are claimed, and cannot be answered
                wait_until(lambda: cloud.n_claimed() == n_held)
                calls += [pool.submit(place, uuid) for uuid in uuids[n_held:]]
                own_broker.start()
                chosen = [call.result(TIMEOUT_S * 2) for call in calls]
                assert scheduler.stop() == 0
        for uuid, selection in zip(uuids, chosen, strict=True):
            held = cloud.placement.allocations(uuid).resources
            assert {k: dict(v) for k, v in held.items()} == claimed(selection)
        assert cloud.n_claimed() == n_all
        cloud.transport.cleanup()


@pytest.mark.deep
@pytest.mark.parametrize("n_workers", [1, 2])
def test_broker_that_is_away_does_not_hold_up_the_end(
    n_workers: int, cloud: Cloud
) -> None:
    nobody = refusing_url().rpartition(":")[2]
    path = cloud.config(f"transport_url = rabbit://guest:guest@127.0.0.1:{nobody}/")
    with SchedulerProcess(
        path, n_workers=n_workers, until="Connection failed"
    ) as scheduler:
        assert scheduler.stop() == 0
