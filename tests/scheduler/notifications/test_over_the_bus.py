# SPDX-License-Identifier: Apache-2.0
"""Notifications configured by options go over a real broker like nova's."""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import oslo_messaging
import pytest
from oslo_config import cfg

from moorage.objects import RequestSpec, Serializer
from moorage.scheduler.conf import load
from moorage.scheduler.rpc import get_transport
from moorage.scheduler.service import Scheduler, build

from ...fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory
from ...fixtures.rabbitmq import Broker

pytestmark = pytest.mark.broker

VERSIONED = "my_versioned"
TOKEN = {"auth_token": "s3cret", "service_catalog": [{"x": "s3cret"}]}


class _NotificationEndpoint:
    """An endpoint of oslo.messaging's listener."""

    def __init__(self, received: queue.Queue[Any]) -> None:
        self._received = received

    def info(
        self,
        context: dict[str, Any],
        publisher_id: str,
        event_type: str,
        payload: dict[str, Any],
        metadata: dict[str, Any],
    ) -> None:
        """Store the notification."""
        self._received.put((publisher_id, event_type, payload, context))


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def _scheduler(folder: Path, url: str) -> Scheduler:
    path = folder / "moorage.conf"
    inventory = write_inventory(folder, host("h1"))
    lines = [
        "[DEFAULT]",
        "host = scheduler1",
        f"transport_url = {url}",
        "[moorage]",
        f"inventory_file = {inventory}",
        "[notifications]",
        "notification_format = both",
        f"versioned_notifications_topics = {VERSIONED}",
        "[oslo_messaging_notifications]",
        "driver = messagingv2",
    ]
    path.write_text("\n".join(lines))
    scheduler = build(load(["--config-file", str(path)]))
    scheduler.start()
    return scheduler


def _spec() -> RequestSpec:
    spec = request(instance_uuid=new_uuids()[0])
    spec.flavor.disabled, spec.flavor.is_public = False, True
    read: RequestSpec = Serializer().deserialize_entity(
        {}, Serializer().serialize_entity({}, spec)
    )
    return read


def _listen(url: str, topic: str, received: queue.Queue[Any]) -> Any:
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[])
    get_transport(conf, "fake://")  # registers what oslo.messaging reads
    transport = oslo_messaging.get_notification_transport(conf, url=url)
    target = oslo_messaging.Target(topic=topic, exchange="nova")
    listener = oslo_messaging.get_notification_listener(
        transport, [target], [_NotificationEndpoint(received)], executor="threading"
    )
    # Several threads would handle notifications in any order.
    conf.set_override("executor_thread_pool_size", 1)
    listener.start()
    return listener


def test_both_forms_arrive_on_their_topics(broker: Broker, tmp_path: Path) -> None:
    url = broker.transport_url
    received: dict[str, queue.Queue[Any]] = {
        topic: queue.Queue() for topic in ("notifications", VERSIONED)
    }
    listeners = [_listen(url, topic, queue_) for topic, queue_ in received.items()]
    scheduler = _scheduler(tmp_path, url)
    try:
        scheduler.select_destinations({**CONTEXT, **TOKEN}, _spec(), new_uuids())
        expected = {
            topic: [each.get(timeout=60) for _ in range(2)]
            for topic, each in received.items()
        }
    finally:
        scheduler.stop()
        for listener in listeners:
            listener.stop()
            listener.wait()
    events = [f"scheduler.select_destinations.{phase}" for phase in ("start", "end")]
    for topic, publisher in (
        ("notifications", "scheduler.scheduler1"),
        (VERSIONED, "nova-scheduler:scheduler1"),
    ):
        assert [each[1] for each in expected[topic]] == events
        assert {each[0] for each in expected[topic]} == {publisher}
        assert all(each[3]["request_id"] == "req-test" for each in expected[topic])
    assert "request_spec" in expected["notifications"][0][2]
    assert expected[VERSIONED][0][2]["nova_object.name"] == "RequestSpecPayload"
    assert "s3cret" not in str(expected)


def test_decisions_are_made_without_a_broker(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        scheduler = _scheduler(tmp_path, f"rabbit://guest:guest@127.0.0.1:{port}/")
        try:
            for _ in range(3):
                chosen: Any
                [chosen] = scheduler.select_destinations(CONTEXT, _spec(), new_uuids())
                assert chosen["host"] == "h1"
        finally:
            scheduler.stop()
