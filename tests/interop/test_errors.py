# SPDX-License-Identifier: Apache-2.0
"""How a nova 34 conductor handles a failed decision, for each of our errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from oslo_messaging._drivers.common import serialize_remote_exception

from moorage.objects import Serializer
from moorage.scheduler import errors
from moorage.scheduler.conf import load
from moorage.scheduler.errors import (
    AllocationUpdateFailed,
    NoValidHost,
    SchedulerError,
    as_nova,
)
from moorage.scheduler.rpc import get_server, get_transport
from moorage.scheduler.service import build

from ..fixtures.clouds import host, new_uuids, request, write_inventory
from ..fixtures.nova_peer import Peer
from ..fixtures.rabbitmq import Broker

pytestmark = [pytest.mark.deep, pytest.mark.peer]

OURS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, SchedulerError)
]
#: Those that cross as nova's NoValidHost.
UNKNOWN_TO_NOVA = [kind for kind in OURS if kind is not AllocationUpdateFailed]
FOREIGN = [RuntimeError, KeyError, OSError]
CONSUMER = "7f1c2d3e-4b5a-4968-8777-665544332211"


def _crossing(error: Exception) -> str:
    """A failure as oslo.messaging's server writes it."""
    try:
        raise as_nova(error) from error
    except Exception as e:
        data: str = serialize_remote_exception((type(e), e, e.__traceback__))
        return data


@pytest.mark.parametrize(
    "kind", [*UNKNOWN_TO_NOVA, *FOREIGN], ids=lambda kind: kind.__name__
)
def test_conductor_gets_no_valid_host(peer: Peer, kind: type[Exception]) -> None:
    rebuilt: dict[str, Any] = peer.ask("rebuild_error", data=_crossing(kind("why")))
    assert rebuilt["class"] == "NoValidHost_Remote"
    assert rebuilt["is_no_valid_host"]
    reason = rebuilt["kwargs"]["reason"]
    assert rebuilt["kwargs"]["code"] == 500
    assert rebuilt["message"] == f"No valid host was found. {reason}"
    if kind is not NoValidHost:
        name = kind.__name__ if kind in OURS else "SchedulerError"
        assert reason.startswith(f"{name}: ")


@pytest.mark.parametrize(
    "text",
    [
        f"Failed to update allocations for consumer {CONSUMER}. Error: Why.",
        f"Consumer {CONSUMER} was not released: given up after 4 tries",
    ],
)
def test_conductor_gets_allocation_update_failed_as_from_nova(
    peer: Peer, text: str
) -> None:
    ours = _crossing(AllocationUpdateFailed(text))
    error = text.partition(" Error: ")[2] or text
    stock = peer.ask("stock_failure", consumer_uuid=CONSUMER, error=error)
    assert {**json.loads(ours), "tb": None} == {**stock, "tb": None}
    rebuilt: dict[str, Any] = peer.ask("rebuild_error", data=ours)
    assert rebuilt["class"] == "AllocationUpdateFailed_Remote"
    assert rebuilt["is_nova"]
    assert rebuilt["message"] == stock["message"]


@pytest.mark.parametrize("operation", ["rebuild", "evacuate", "live migration"])
def test_conductor_ends_allocation_update_failed_as_from_nova(
    peer: Peer, operation: str
) -> None:
    stock = peer.ask("stock_failure", consumer_uuid=CONSUMER, error="Why.")
    ended = [
        peer.ask("fail_operation", operation=operation, data=data)
        for data in (_crossing(AllocationUpdateFailed("Why.")), json.dumps(stock))
    ]
    assert ended[0] == ended[1]
    assert ended[0]["vm_state"] == "error"
    assert ended[0]["task_state"] is None


@pytest.mark.parametrize(
    "kind", [*UNKNOWN_TO_NOVA, RuntimeError], ids=lambda kind: kind.__name__
)
@pytest.mark.parametrize("operation", ["rebuild", "evacuate", "live migration"])
def test_conductor_leaves_nothing_half_done(
    peer: Peer, operation: str, kind: type[Exception]
) -> None:
    ended = peer.ask("fail_operation", operation=operation, data=_crossing(kind("why")))
    # nova's own ending after NoValidHost: a guest that runs stays as it is.
    state = "active" if operation == "live migration" else "error"
    assert ended == {"vm_state": state, "task_state": None, "migration": "error"}


def test_other_error_would_leave_them_so(peer: Peer) -> None:
    """Why an error that nova's scheduler does not have crosses as NoValidHost."""
    error = errors.PlacementUnavailable("why")
    data = serialize_remote_exception((type(error), error, None))
    ended = peer.ask("fail_operation", operation="evacuate", data=data)
    assert ended["task_state"] == "rebuilding"
    assert ended["migration"] == "accepted"


def _of_the_future(spec: dict[str, Any]) -> None:
    spec["nova_object.version"] = "2.0"


def _malformed(spec: dict[str, Any]) -> None:
    spec["nova_object.data"]["flavor"]["nova_object.data"]["vcpus"] = "many"


def _too_large(spec: dict[str, Any]) -> None:
    hints = spec["nova_object.data"]["scheduler_hints"]
    hints["query"] = ["x" * ((4 << 20) + 1)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a RabbitMQ on which a scheduler is served."""
    path = write_inventory(tmp_path_factory.mktemp("cloud"), host("h1"))
    conf = load([], config_files=[])
    conf.set_override("inventory_file", str(path), "moorage")
    scheduler = build(conf)
    scheduler.start()
    with Broker() as broker:
        transport = get_transport(conf, broker.transport_url)
        server = get_server(conf, transport, scheduler.endpoints)
        server.start()
        yield broker.transport_url
        server.stop()
        server.wait()
        transport.cleanup()
    scheduler.stop()


@pytest.mark.broker
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_of_the_future, "version: expected version 1.x of RequestSpec, got str '2.0'"),
        (_malformed, "RequestSpec.flavor.vcpus: expected an integer, got str 'many'"),
        (_too_large, "expected a string of at most 4194304 characters"),
    ],
)
def test_request_that_cannot_be_read_is_no_valid_host_to_novas_client(
    peer: Peer, broker: str, damage: Callable[[dict[str, Any]], None], message: str
) -> None:
    spec = Serializer().serialize_entity({}, request())
    damage(spec)
    answer = peer.ask(
        "send_damaged_request",
        transport_url=broker,
        spec_obj=spec,
        instance_uuids=new_uuids(),
    )
    assert answer["is_no_valid_host"]
    assert answer["error"].startswith("No valid host was found. InvalidRequest: ")
    assert message in answer["error"]
    ended = {"vm_state": "error", "task_state": None, "migration": "error"}
    assert answer["evacuated"] == ended
