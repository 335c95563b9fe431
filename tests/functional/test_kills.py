# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a worker, of RabbitMQ, of Placement: Placement holds what was answered."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import kombu
import oslo_messaging
import pytest

from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.errors import SchedulerError
from moorage.scheduler.placement.embedded import TOKEN
from moorage.scheduler.rpc import SchedulerAPI, get_transport

from ..brokers import Broker, MortalBroker
from ..clouds import CONTEXT, claimed, host, new_uuids, request
from ..flaky_proxy import Fault, FlakyProxy
from ..placement_servers import Database
from ..processes import SchedulerProcess
from .claimers import Cloud, cloud_of

pytestmark = [
    pytest.mark.broker,
    pytest.mark.database,
    pytest.mark.xdist_group("functional"),
    pytest.mark.timeout(300),
]

#: Requests a second, for how long, and how many callers wait at a time at most.
RATE = 50
LOAD_S = float(os.environ.get("MOORAGE_KILLS_LOAD_S", "10"))
N_CALLERS = 16

CALLER_WAITS_S = 20

#: From a kill to the next start.
AWAY_S = 2.0

#: How long after the last answer Placement may take to hold just what was answered,
#: and for how long it has to stay so.
SETTLED_S = 60.0
STAYS_S = 3.0

N_HOSTS = 40

#: How often a worker is killed until it had claims under way.
N_KILLS = 5

#: What the log says then.
FOUND = r"Process \d+ has ended with [1-9]\d* claims under way"

CONFIG = """
[DEFAULT]
host = one
transport_url = {broker}
[oslo_messaging_rabbit]
kombu_missing_consumer_retry_timeout = 2
[placement]
auth_type = admin_token
endpoint = {placement}
endpoint_override = {placement}
token = {token}
[moorage]
inventory_file = {inventory}
claims_directory = {claims}
"""

Held = dict[str, dict[str, Any]]


class Load:
    """Requests that come steadily, and what each one's end was.

    Attributes
    ----------
    placed : dict
        What was answered, by instance.
    ends : Counter
        How often requests ended in what.
    timed_out : set of str
        Instances whose callers gave up.
    n_asked : int
        How many requests were begun.
    goes_on : bool
        Whether more come although `LOAD_S` is over.
    """

    def __init__(self, transport_url: str) -> None:
        conf = moorage_conf.load([], config_files=[])
        self._transport = get_transport(conf, transport_url)
        self._api = SchedulerAPI(
            self._transport,
            timeout_s=CALLER_WAITS_S,
            call_monitor_timeout_s=CALLER_WAITS_S,
        )
        self._lock = threading.Lock()
        self._turns = itertools.count()
        self.placed: Held = {}
        self.ends: Counter[str] = Counter()
        self.timed_out: set[str] = set()
        self.n_asked = 0
        self.goes_on = False

    def __enter__(self) -> Load:
        self._pool = ThreadPoolExecutor(N_CALLERS)
        self._began = time.monotonic()
        self._calls = [self._pool.submit(self._ask_on) for _ in range(N_CALLERS)]
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        self._transport.cleanup()

    def wait(self) -> None:
        """Return once all requests have ended."""
        for call in self._calls:
            call.result()
        assert sum(self.ends.values()) == self.n_asked

    def _ask_on(self) -> None:
        while self.goes_on or time.monotonic() < self._began + LOAD_S:
            at = self._began + next(self._turns) / RATE
            if (left_s := at - time.monotonic()) > 0:
                time.sleep(left_s)
            self._ask(*new_uuids())

    def _ask(self, uuid: str) -> None:
        with self._lock:
            self.n_asked += 1
        end = "placed"
        try:
            [[selection, *_]] = self._api.select_destinations(
                CONTEXT, request(), [uuid]
            )
        except oslo_messaging.MessagingTimeout:
            end = "timed out"
            self.timed_out.add(uuid)
        except SchedulerError as e:
            end = type(e).__name__
        with self._lock:
            self.ends[end] += 1
            if end == "placed":
                self.placed[uuid] = claimed(selection)


def held_by(cloud: Cloud) -> Held:
    """What Placement holds, by consumer."""
    held: Held = {}
    for node in cloud.hosts:
        body: Any = cloud.server.client.read(f"/resource_providers/{node}/allocations")
        for consumer, part in body["allocations"].items():
            held.setdefault(consumer, {})[node] = part["resources"]
    return held


def settled(cloud: Cloud, is_right: Callable[[Held], bool]) -> Held:
    """Return what Placement holds once that is right, and stays so."""
    deadline = time.monotonic() + SETTLED_S
    while not is_right(held_by(cloud)) and time.monotonic() < deadline:
        time.sleep(0.5)
    time.sleep(STAYS_S)
    return held_by(cloud)


def expect_answered(cloud: Cloud, load: Load) -> None:
    """Compare what is held with what was answered, both ways."""
    held = settled(cloud, lambda held: held == load.placed)
    print(f"\n{load.n_asked} requests: {dict(load.ends)}; {len(held)} held")
    assert held.keys() - load.placed.keys() == set(), "nobody was told of these"
    assert load.placed.keys() - held.keys() == set(), "these were answered"
    assert held == load.placed


def until(is_true: Callable[[], bool], within_s: float = 30) -> None:
    deadline = time.monotonic() + within_s
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    large = {"vcpus": 500, "memory_mb": 600_000, "local_gb": 6000}
    hosts = [host(f"h{number}", **large) for number in range(N_HOSTS)]
    with cloud_of(Database.MARIADB, tmp_path, hosts) as cloud:
        yield cloud


def config(cloud: Cloud, broker: Any, url: str = "") -> Path:
    folder = cloud.inventory_file.parent
    path = folder / "one.conf"
    path.write_text(
        CONFIG.format(
            broker=broker.transport_url,
            placement=url or cloud.server.url,
            token=TOKEN,
            inventory=cloud.inventory_file,
            claims=folder / "claims",
        )
    )
    return path


def test_worker_that_is_killed_leaves_no_claim_of_nobodys(cloud: Cloud) -> None:
    with (
        Broker() as broker,
        # Each answer to a claim takes a while, so that many are made and not answered.
        FlakyProxy(
            cloud.server.url, share=0.5, delay_s=0.3, faults=[Fault.DELAY]
        ) as proxy,
        SchedulerProcess(config(cloud, broker, proxy.url), n_workers=2) as scheduler,
        Load(broker.transport_url) as load,
    ):
        until(lambda: len(load.placed) >= RATE)
        load.goes_on = True
        for _ in range(N_KILLS):  # the other worker may have had all that are delayed
            until(lambda: proxy.n_delayed >= 3)
            killed = scheduler.workers[0]
            os.kill(killed, signal.SIGKILL)
            scheduler.wait_for(f"Process {killed} has ended with", within_s=60)
            if scheduler.count(FOUND):
                break
        load.goes_on = False
        assert scheduler.count(FOUND)
        load.wait()
        expect_answered(cloud, load)
        assert scheduler.count("Released the allocation of consumer")
        assert load.ends["timed out"], "those whose worker was killed"
        assert scheduler.stop() == 0
    assert not list((cloud.inventory_file.parent / "claims").iterdir())


def test_rabbitmq_that_is_killed_leaves_no_claim_of_nobodys(cloud: Cloud) -> None:
    with (
        MortalBroker() as broker,
        SchedulerProcess(config(cloud, broker), n_workers=2) as scheduler,
        Load(broker.transport_url) as load,
    ):
        until(lambda: len(load.placed) >= RATE)
        load.goes_on = True
        broker.kill()
        n_before = len(load.placed)
        time.sleep(AWAY_S)
        broker.restart()
        # Callers wait for the broker or for what it has lost; then they go on.
        until(lambda: len(load.placed) >= n_before + 2 * RATE, 2 * CALLER_WAITS_S)
        load.goes_on = False
        load.wait()

        def is_right(held: Held) -> bool:
            return held.keys() - load.timed_out == load.placed.keys() - load.timed_out

        held = settled(cloud, is_right)
        # What the broker had taken and not delivered died with it. Nobody but these
        # instances' callers knows; a conductor gives their allocations back.
        lost = held.keys() & load.timed_out
        print(
            f"\n{load.n_asked} requests: {dict(load.ends)}; {n_before} placed before; "
            f"{len(held)} held, {len(lost)} of them lost in the broker"
        )
        assert held.keys() - lost == load.placed.keys()
        assert all(held[uuid] == load.placed[uuid] for uuid in load.placed)
        assert scheduler.stop() == 0


def test_placement_that_is_killed_leaves_no_claim_of_nobodys(cloud: Cloud) -> None:
    with (
        Broker() as broker,
        SchedulerProcess(config(cloud, broker), n_workers=2) as scheduler,
        Load(broker.transport_url) as load,
    ):
        until(lambda: len(load.placed) >= RATE)
        load.goes_on = True
        cloud.server.kill()
        n_before = len(load.placed)
        time.sleep(AWAY_S)
        cloud.server.restart()
        until(lambda: len(load.placed) >= n_before + 2 * RATE)
        load.goes_on = False
        load.wait()
        expect_answered(cloud, load)
        assert load.ends["PlacementUnavailable"], "those who asked meanwhile"
        assert scheduler.stop() == 0


def test_answer_to_a_queue_that_is_gone_leaves_no_claim(cloud: Cloud) -> None:
    conf = moorage_conf.load([], config_files=[])
    with (
        Broker() as broker,
        FlakyProxy(cloud.server.url, share=1, delay_s=2, faults=[Fault.DELAY]) as proxy,
        SchedulerProcess(config(cloud, broker, proxy.url)) as scheduler,
        ThreadPoolExecutor(1) as pool,
    ):
        transport = get_transport(conf, broker.transport_url)
        api = SchedulerAPI(transport, timeout_s=5)
        call = pool.submit(api.select_destinations, CONTEXT, request(), new_uuids())
        until(lambda: bool(held_by(cloud)))
        queue = transport._driver._reply_q
        transport.cleanup()
        with kombu.Connection(broker.transport_url.replace("rabbit", "amqp")) as link:
            link.default_channel.queue_delete(queue)
        scheduler.wait_for("A request ends without its answer having been sent: 1 cla")
        assert not settled(cloud, lambda held: not held)
        assert call.exception(60) is not None
        assert scheduler.stop() == 0


def test_answer_that_waits_for_the_broker_does_not_count_as_sent(cloud: Cloud) -> None:
    conf = moorage_conf.load([], config_files=[])
    with (
        MortalBroker() as broker,
        FlakyProxy(cloud.server.url, share=1, delay_s=2, faults=[Fault.DELAY]) as proxy,
        SchedulerProcess(config(cloud, broker, proxy.url), n_workers=2) as scheduler,
        ThreadPoolExecutor(1) as pool,
    ):
        transport = get_transport(conf, broker.transport_url)
        api = SchedulerAPI(transport, timeout_s=CALLER_WAITS_S)
        call = pool.submit(api.select_destinations, CONTEXT, request(), new_uuids())
        until(lambda: bool(held_by(cloud)))
        broker.kill()
        scheduler.wait_for("Decision req-test")
        time.sleep(1)  # by now it would be sent
        for pid in scheduler.workers:
            os.kill(pid, signal.SIGKILL)
        scheduler.wait_for("has ended with 1 claims under way")
        assert not settled(cloud, lambda held: not held)
        broker.restart()
        assert isinstance(call.exception(60), oslo_messaging.MessagingTimeout)
        transport.cleanup()
        assert scheduler.stop() == 0
