# SPDX-License-Identifier: Apache-2.0
"""A reply to a caller that is gone delays no other reply."""

from __future__ import annotations

import functools
import json
import threading
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
from moorage.scheduler.rpc.replies import LateReplies, LateReply
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


#: Largest number of replies that are stored.
MAX_KEPT = 1000


class _Caller:
    """A caller's queue: it notes what is done about one reply, in order."""

    def __init__(self, *, is_there: bool = False) -> None:
        self.is_there = is_there
        self.seen: list[str] = []
        self.may_send = threading.Event()
        self.may_send.set()

    def send(self) -> bool:
        self.seen.append("send")
        self.may_send.wait()
        self.seen.append("sent" if self.is_there else "missing")
        return self.is_there

    def close(self) -> None:
        self.seen.append("closed")

    def reply(self, limit_s: float = 3600.0) -> LateReply:
        return LateReply(f"reply_{id(self)}", limit_s, self.send, self.close)


class _Unreleasable(_Caller):
    """Its claims cannot be released."""

    def close(self) -> None:
        super().close()
        raise RuntimeError("can't start new thread")


@pytest.fixture
def callers() -> Iterator[list[_Caller]]:
    """Callers whose queues exist in the end, so that no reply remains."""
    made: list[_Caller] = []
    yield made
    for caller in made:
        caller.is_there = True
        caller.may_send.set()


def test_reply_that_is_being_sent_is_not_closed(callers: list[_Caller]) -> None:
    callers += [_Caller(is_there=True), *[_Caller() for _ in range(MAX_KEPT)]]
    oldest, *others = callers
    oldest.may_send.clear()
    replies = LateReplies()
    replies.add(oldest.reply())
    wait_until(functools.partial(oldest.seen.__contains__, "send"))
    for other in others:
        replies.add(other.reply())
    assert oldest.seen == ["send"]
    oldest.may_send.set()
    wait_until(lambda: len(replies) == MAX_KEPT)
    wait_until(lambda: "closed" in oldest.seen)
    assert oldest.seen == ["send", "sent", "closed"]


def test_oldest_reply_is_given_up_for_the_next(callers: list[_Caller]) -> None:
    callers += [_Caller() for _ in range(MAX_KEPT + 1)]
    replies = LateReplies()
    for caller in callers:
        replies.add(caller.reply())
    wait_until(lambda: len(replies) == MAX_KEPT)
    wait_until(lambda: "closed" in callers[0].seen)
    assert "closed" not in callers[1].seen


def test_expired_reply_is_not_sent(callers: list[_Caller]) -> None:
    callers += [_Caller(is_there=True)]
    replies = LateReplies()
    replies.add(callers[0].reply(limit_s=0.0))
    replies.wait()
    assert callers[0].seen == ["closed"]


def test_reply_that_cannot_be_closed_delays_no_other(
    callers: list[_Caller], caplog: pytest.LogCaptureFixture
) -> None:
    callers += [_Unreleasable(), _Caller(is_there=True)]
    replies = LateReplies()
    replies.add(callers[0].reply(limit_s=0.0))
    replies.add(callers[1].reply())
    wait_until(lambda: "closed" in callers[1].seen)
    assert "can't start new thread" in caplog.text
