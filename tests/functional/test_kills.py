# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a worker, of RabbitMQ, of Placement: Placement holds what was answered.

Requests are sent steadily, at most 50 a second or MOORAGE_KILLS_RATE, whether or not
earlier ones have ended, but only so many at once: a slow machine gets fewer. The load
is short, and so is the quiet period after it; MOORAGE_KILLS_LONG=1 makes them half a
minute and a minute. The observations are printed:
`MOORAGE_KILLS_LONG=1 pytest -s tests/functional/test_kills.py -k killed`.
"""

from __future__ import annotations

import os
import re
import shutil
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
from moorage.scheduler.placement.allocations.journal import suspected_in
from moorage.scheduler.placement.embedded import TOKEN
from moorage.scheduler.rpc import SchedulerAPI, get_transport

from ..fixtures.clouds import CONTEXT, claimed, host, new_uuids, request
from ..fixtures.database_servers import Database
from ..fixtures.flaky_proxy import Fault, FlakyProxy
from ..fixtures.rabbitmq import Broker, DedicatedBroker
from ..fixtures.scheduler_process import SchedulerProcess
from ..fixtures.waiting import wait_until
from .claimers import Cloud, Held, cloud_of, held_by

pytestmark = [
    pytest.mark.deep,
    pytest.mark.broker,
    pytest.mark.database,
    pytest.mark.xdist_group("functional"),
    pytest.mark.timeout(1200),
]

#: Requests a second.
RATE = float(os.environ.get("MOORAGE_KILLS_RATE", "25"))

#: Requests that may be without an answer at once.
MAX_OPEN = 32

IS_LONG = os.environ.get("MOORAGE_KILLS_LONG") == "1"

#: How long requests come: half of it before the kill, half once all is there again.
LOAD_S = 30.0 if IS_LONG else 4.0

#: How long a caller waits for an answer; it may have to wait for the broker before.
CALLER_WAITS_S = 60 if IS_LONG else 20
ENDS_S = 2 * CALLER_WAITS_S

#: How long Placement has to hold just what was answered, after a minute at most.
QUIET_S = 60.0 if IS_LONG else 3.0
SETTLED_S = 60.0

#: Longest time that an answer of Placement is held back, and waited for.
KEPT_BACK_S = 120.0

#: From a kill to the next start.
AWAY_S = 2.0

N_HOSTS = 40

#: How many requests have to be placed before a kill, and once all is there again.
N_PLACED = 10
PLACED_S = 120.0

#: How often a worker is killed until it had claims under way.
N_KILLS = 5

#: Answers that may be in transit to the broker at the time of a kill.
MAX_CUT_OFF = 5

#: The log line about them.
FOUND = r"Process \d+ has ended with [1-9]\d* unsettled claims"

CONFIG = """
[DEFAULT]
host = one
transport_url = {broker}
[oslo_messaging_rabbit]
kombu_missing_consumer_retry_timeout = {missing_queue_s}
[placement]
timeout = {timeout_s}
auth_type = admin_token
endpoint = {placement}
endpoint_override = {placement}
token = {token}
[moorage]
orphan_evidence_timeout = 3
inventory_file = {inventory}
claims_directory = {claims}
"""


class Load:
    """Requests that come steadily until it is ended, and what each one's end was.

    Attributes
    ----------
    placed : dict
        What was answered, by instance.
    ends : Counter
        How often requests ended in what.
    timed_out : set of str
        Instances whose callers gave up.
    asked_at : dict
        When each was requested, by instance; on the monotonic clock.
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
        self._is_over = threading.Event()
        self._open = threading.Semaphore(MAX_OPEN)
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._callers: list[threading.Thread] = []
        self.placed: Held = {}
        self.ends: Counter[str] = Counter()
        self.timed_out: set[str] = set()
        self.asked_at: dict[str, float] = {}

    def __enter__(self) -> Load:
        self._sender.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._sender.join()
        self._transport.cleanup()

    def end(self) -> None:
        """Send no more, and return once all requests have ended."""
        self._is_over.set()
        self._sender.join()
        deadline = time.monotonic() + ENDS_S
        for caller in self._callers:
            caller.join(max(0.0, deadline - time.monotonic()))
        assert sum(self.ends.values()) == len(self.asked_at), "some have no end"

    def n_placed_since(self, at: float) -> int:
        """Return how many of those were placed that were requested after a time."""
        with self._lock:
            return sum(self.asked_at[uuid] > at for uuid in self.placed)

    def go_on(self) -> None:
        """Return after half of LOAD_S, but not before enough was placed meanwhile."""
        began = time.monotonic()
        wait_until(lambda: self.n_placed_since(began) >= N_PLACED, timeout_s=PLACED_S)
        time.sleep(max(0.0, began + LOAD_S / 2 - time.monotonic()))

    def _send(self) -> None:
        while not self._is_over.wait(1 / RATE):
            if not self._open.acquire(timeout=1 / RATE):
                continue
            [uuid] = new_uuids()
            self.asked_at[uuid] = time.monotonic()
            caller = threading.Thread(target=self._request, args=[uuid], daemon=True)
            self._callers.append(caller)
            caller.start()

    def _request(self, uuid: str) -> None:
        try:
            self._end_of(uuid)
        finally:
            self._open.release()

    def _end_of(self, uuid: str) -> None:
        end = "placed"
        try:
            [[selection, *_]] = self._api.select_destinations(
                CONTEXT, request(), [uuid]
            )
        except oslo_messaging.MessagingTimeout:
            end = "timed out"
        except SchedulerError as e:
            end = type(e).__name__
        with self._lock:
            self.ends[end] += 1
            if end == "placed":
                self.placed[uuid] = claimed(selection)
            elif end == "timed out":
                self.timed_out.add(uuid)


def settled(cloud: Cloud, is_right: Callable[[Held], bool]) -> Held:
    """Return what Placement holds once that is right, and it was quiet since."""
    deadline = time.monotonic() + SETTLED_S
    while not is_right(held_by(cloud)) and time.monotonic() < deadline:
        time.sleep(0.5)
    time.sleep(QUIET_S)
    return held_by(cloud)


def unheard(load: Load, scheduler: SchedulerProcess) -> tuple[set[str], set[str]]:
    """Return the instances that were decided on, but whose callers got no answer.

    The scheduler releases none of them, and only the callers can know of them: the
    conductor removes their allocations.

    Returns
    -------
    late : set of str
        Answered by processes that live. A broker that is killed loses some answers;
        others come too late on a machine that cannot keep up with the rate.
    cut_off : set of str
        Of processes that were killed. What was not about to be sent is given back; of
        the rest the broker may or may not have received.
    """
    text = "".join(scheduler.log)
    decided = re.findall(r" (\d+) INFO .*\[instance: (\S+)\] Decision ", text)
    given_back = set(re.findall(r"Consumer (\S+) may hold an allocation", text))
    alive = {str(pid) for pid in scheduler.workers}
    of_living = {uuid for pid, uuid in decided if pid in alive}
    of_killed = {uuid for pid, uuid in decided if pid not in alive}
    silent = load.timed_out - given_back
    return silent & of_living, silent & of_killed - of_living


def suspected(scheduler: SchedulerProcess) -> set[str]:
    """Return the consumers that were reported as suspected orphans.

    A kill in the middle of a write: hosts of a file do not show where instances are.
    """
    text = "".join(scheduler.log)
    return set(re.findall(r"Suspected orphan: consumer (\S+) ", text))


def expect_answered(cloud: Cloud, load: Load, scheduler: SchedulerProcess) -> None:
    """Compare what is held with what was answered, both ways."""

    def is_right(held: Held) -> bool:
        late, cut_off = unheard(load, scheduler)
        in_question = cut_off | suspected(scheduler)
        return held.keys() - in_question == load.placed.keys() | late

    held = settled(cloud, is_right)
    late, cut_off = unheard(load, scheduler)
    print(
        f"\n{len(load.asked_at)} requests: {dict(load.ends)}; {len(late)} of these "
        f"answered late, {len(cut_off)} cut off; {len(held)} held"
    )
    unknown = held.keys() - load.placed.keys() - late - suspected(scheduler)
    assert unknown <= cut_off, "no caller got an answer for these"
    assert len(unknown) <= MAX_CUT_OFF
    assert load.placed.keys() - held.keys() == set(), "these were answered"
    assert {uuid: held[uuid] for uuid in load.placed} == load.placed
    assert all(len(hosts) == 1 for hosts in held.values()), "some are held twice"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    large = {"vcpus": 500, "memory_mb": 600_000, "local_gb": 6000}
    hosts = [host(f"h{number}", **large) for number in range(N_HOSTS)]
    with cloud_of(Database.MARIADB, tmp_path_factory.mktemp("cloud"), hosts) as cloud:
        yield cloud


@pytest.fixture
def cloud(served: Cloud, tmp_path: Path) -> Iterator[Cloud]:
    """The cloud of all tests, with a folder for this one; nothing is left allocated."""
    inventory_file = tmp_path / served.inventory_file.name
    shutil.copy(served.inventory_file, inventory_file)
    yield served._replace(inventory_file=inventory_file)
    for consumer in held_by(served):
        served.server.client.delete_allocations(consumer)


def config(
    cloud: Cloud,
    broker: Any,
    url: str = "",
    *,
    missing_queue_s: int = CALLER_WAITS_S,
    timeout_s: float = 10.0,
) -> Path:
    folder = cloud.inventory_file.parent
    path = folder / "one.conf"
    path.write_text(
        CONFIG.format(
            broker=broker.transport_url,
            placement=url or cloud.server.url,
            token=TOKEN,
            inventory=cloud.inventory_file,
            claims=folder / "claims",
            missing_queue_s=missing_queue_s,
            timeout_s=timeout_s,
        )
    )
    return path


def keeping_back(cloud: Cloud) -> FlakyProxy:
    """Keep back what Placement answers to writes, until it is let go."""
    return FlakyProxy(
        cloud.server.url, share=1, delay_s=KEPT_BACK_S, faults=[Fault.DELAY]
    )


def test_killed_worker_leaves_no_orphaned_claim(cloud: Cloud) -> None:
    with (
        Broker() as broker,
        # Delay each answer to a claim, so that many are executed and not answered.
        FlakyProxy(
            cloud.server.url, share=0.5, delay_s=1, faults=[Fault.DELAY]
        ) as proxy,
        SchedulerProcess(config(cloud, broker, proxy.url), n_workers=2) as scheduler,
        Load(broker.transport_url) as load,
    ):
        load.go_on()
        for number in range(N_KILLS):
            # One worker may have all that are delayed; the other one is killed next.
            wait_until(lambda: proxy.n_delayed >= 3)
            killed = scheduler.workers[number % 2]
            os.kill(killed, signal.SIGKILL)
            scheduler.wait_for(f"Process {killed} has ended with")
            if scheduler.count(FOUND):
                break
        assert scheduler.count(FOUND)
        load.go_on()
        load.end()
        expect_answered(cloud, load, scheduler)
        left = suspected(scheduler)
        assert left or scheduler.count("Released the allocation of consumer")
        assert load.ends["timed out"], "those whose worker was killed"
        assert scheduler.stop() == 0
    noted = suspected_in(cloud.inventory_file.parent / "claims")
    assert {note.consumer_uuid for note in noted} <= left


def test_killed_rabbitmq_leaves_no_orphaned_claim(cloud: Cloud) -> None:
    with (
        DedicatedBroker() as broker,
        SchedulerProcess(config(cloud, broker), n_workers=2) as scheduler,
        Load(broker.transport_url) as load,
    ):
        load.go_on()
        broker.kill()
        time.sleep(AWAY_S)
        broker.restart()
        load.go_on()
        load.end()
        expect_answered(cloud, load, scheduler)
        assert scheduler.stop() == 0


def test_killed_placement_leaves_no_orphaned_claim(cloud: Cloud) -> None:
    with (
        Broker() as broker,
        SchedulerProcess(config(cloud, broker), n_workers=2) as scheduler,
        Load(broker.transport_url) as load,
    ):
        load.go_on()
        cloud.server.kill()
        time.sleep(AWAY_S)
        cloud.server.restart()
        load.go_on()
        load.end()
        expect_answered(cloud, load, scheduler)
        assert load.ends["PlacementUnavailable"], "requests during the outage"
        assert scheduler.stop() == 0


def test_answer_to_a_queue_that_is_gone_leaves_no_claim(cloud: Cloud) -> None:
    conf = moorage_conf.load([], config_files=[])
    with (
        Broker() as broker,
        keeping_back(cloud) as proxy,
        SchedulerProcess(
            config(cloud, broker, proxy.url, missing_queue_s=2, timeout_s=KEPT_BACK_S)
        ) as scheduler,
        ThreadPoolExecutor(1) as pool,
    ):
        transport = get_transport(conf, broker.transport_url)
        api = SchedulerAPI(transport, timeout_s=5)
        call = pool.submit(api.select_destinations, CONTEXT, request(), new_uuids())
        wait_until(lambda: bool(held_by(cloud)))
        queue = transport._driver._reply_q  # noqa: SLF001 - no public name
        transport.cleanup()
        with kombu.Connection(broker.transport_url.replace("rabbit", "amqp")) as link:
            link.default_channel.queue_delete(queue)
        proxy.release_delayed()
        scheduler.wait_for("The answer of a request was not sent; releasing its 1 cla")
        assert not settled(cloud, lambda held: not held)
        assert call.exception(ENDS_S) is not None
        assert scheduler.stop() == 0


def test_answer_that_waits_for_the_broker_does_not_count_as_sent(cloud: Cloud) -> None:
    conf = moorage_conf.load([], config_files=[])
    with (
        DedicatedBroker() as broker,
        keeping_back(cloud) as proxy,
        SchedulerProcess(
            config(cloud, broker, proxy.url, timeout_s=KEPT_BACK_S), n_workers=2
        ) as scheduler,
        ThreadPoolExecutor(1) as pool,
    ):
        transport = get_transport(conf, broker.transport_url)
        api = SchedulerAPI(transport, timeout_s=CALLER_WAITS_S)
        call = pool.submit(api.select_destinations, CONTEXT, request(), new_uuids())
        wait_until(lambda: bool(held_by(cloud)))
        broker.kill()
        proxy.release_delayed()
        scheduler.wait_for("Decision req-test")
        time.sleep(1)  # by now it would be sent
        for pid in scheduler.workers:
            os.kill(pid, signal.SIGKILL)
        scheduler.wait_for("has ended with 1 unsettled claims")
        assert not settled(cloud, lambda held: not held)
        broker.restart()
        assert isinstance(call.exception(ENDS_S), oslo_messaging.MessagingTimeout)
        transport.cleanup()
        assert scheduler.stop() == 0
