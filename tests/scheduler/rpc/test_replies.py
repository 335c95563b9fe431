# SPDX-License-Identifier: Apache-2.0
"""A reply to a caller that is gone delays no other reply."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import kombu
import pytest

from moorage.objects import Serializer
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.rpc import SchedulerAPI, get_server, get_transport
from moorage.scheduler.service import Scheduler, build

from ...fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory
from ...fixtures.rabbitmq import Broker
from ...fixtures.waiting import wait_until

N_THREADS = 2

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("functional")]


class Served:
    """A scheduler with two threads, on a broker."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        path = write_inventory(folder, host("h1", vcpus=64, memory_mb=2**17))
        conf = moorage_conf.load([], config_files=[])
        conf.set_override("inventory_file", str(path), group="moorage")
        self.url = stack.enter_context(Broker()).transport_url
        transport = get_transport(conf, self.url)
        stack.callback(transport.cleanup)
        conf.set_override("executor_thread_pool_size", N_THREADS)
        self.scheduler: Scheduler = build(conf)
        self.scheduler.start()
        stack.callback(self.scheduler.stop)
        self.server = get_server(
            conf,
            transport,
            self.scheduler.endpoints,
            answers=self.scheduler.journal,
        )
        self.server.start()
        stack.callback(self.close)
        self.transport = transport

    def close(self) -> None:
        self.server.stop()
        self.server.wait()

    def ask_and_go(self, timeout_s: int, queue: str = "", vcpus: int = 1) -> str:
        """Send a request as a caller that exits before its answer; return the instance.

        Parameters
        ----------
        queue : str
            Where its answer is expected; by default a queue that never comes.
        """
        [instance] = new_uuids()
        spec = Serializer().serialize_entity({}, request(vcpus=vcpus))
        message = {
            "method": "select_destinations",
            "version": "4.5",
            "args": {
                "spec_obj": spec,
                "instance_uuids": [instance],
                "return_objects": True,
                "return_alternates": False,
            },
            **{f"_context_{name}": value for name, value in CONTEXT.items()},
            "_msg_id": uuid.uuid4().hex,
            "_unique_id": uuid.uuid4().hex,
            "_reply_q": queue or f"reply_{uuid.uuid4().hex}",
            "_timeout": timeout_s,
        }
        body = {"oslo.version": "2.0", "oslo.message": json.dumps(message)}
        with kombu.Connection(self.url.replace("rabbit", "amqp")) as link:
            producer = kombu.Producer(link.default_channel)
            producer.publish(body, exchange="nova", routing_key="scheduler")
        return instance

    def n_decided(self) -> int:
        return len(self.scheduler.decisions)

    def holds(self, instance: str) -> bool:
        return bool(self.scheduler.placement.allocations(instance).resources)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with ExitStack() as stack:
        yield Served(tmp_path, stack)


@pytest.mark.parametrize("vcpus", [1, 99], ids=["selected", "no valid host"])
def test_callers_that_are_gone_hold_up_no_other(served: Served, vcpus: int) -> None:
    queues = [f"reply_{uuid.uuid4().hex}" for _ in range(4 * N_THREADS)]
    for queue in queues:
        served.ask_and_go(timeout_s=600, queue=queue, vcpus=vcpus)
    api = SchedulerAPI(served.transport, timeout_s=60)
    wait_until(lambda: served.n_decided() >= N_THREADS)
    [[chosen]] = api.select_destinations(CONTEXT, request(), new_uuids())
    assert chosen.service_host == "h1"
    with kombu.Connection(served.url.replace("rabbit", "amqp")) as link:
        for queue in queues:  # the end waits for the answers to them
            kombu.Queue(queue, channel=link.default_channel).declare()
        wait_until(lambda: served.server.n_under_way == 0)


def test_claim_is_released_once_its_caller_waits_no_more(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    instance = served.ask_and_go(timeout_s=1)
    wait_until(served.n_decided)
    [decision] = served.scheduler.decisions.newest()
    assert [each.result for each in decision.claims] == ["claimed"]
    wait_until(lambda: not served.holds(instance))
    wait_until(lambda: served.server.n_under_way == 0)
    assert "was not sent within 1 s" in caplog.text


def test_reply_is_sent_once_the_queue_is_back(served: Served) -> None:
    queue = f"reply_{uuid.uuid4().hex}"
    instance = served.ask_and_go(timeout_s=600, queue=queue)
    wait_until(lambda: served.n_decided() and served.server.n_under_way == 1)
    with kombu.Connection(served.url.replace("rabbit", "amqp")) as link:
        made = kombu.Queue(queue, channel=link.default_channel, auto_delete=True)
        made.declare()
        reply: Any = wait_until(made.get, interval_s=0.1)
    answer = json.loads(json.loads(reply.body)["oslo.message"])
    [[chosen]] = answer["result"]
    assert chosen["nova_object.data"]["service_host"] == "h1"
    wait_until(lambda: served.server.n_under_way == 0)
    assert served.holds(instance)


def test_end_waits_for_replies_that_may_yet_be_sent(served: Served) -> None:
    instance = served.ask_and_go(timeout_s=2)
    wait_until(served.n_decided)
    served.close()
    assert served.server.n_under_way == 0
    wait_until(lambda: not served.holds(instance))
