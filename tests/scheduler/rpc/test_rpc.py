# SPDX-License-Identifier: Apache-2.0
"""The scheduler is served over a message bus as nova's is."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import oslo_messaging
import pytest
from oslo_config import cfg

from moorage.objects import (
    Aggregate,
    Instance,
    InstanceList,
    RequestSpec,
    Serializer,
)
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler import errors
from moorage.scheduler.hosts import HostTable
from moorage.scheduler.instances import InstanceState
from moorage.scheduler.rpc import (
    PEERS_TOPIC,
    DeletionEndpoint,
    IgnoredReports,
    SchedulerAPI,
    get_server,
    get_transport,
)
from moorage.scheduler.service import Scheduler
from moorage.scheduler.sources.push.source import ReportRequester
from moorage.scheduler.sources.reported.hosts import ReportedHosts

from ...fixtures.clouds import (
    CONTEXT,
    claimed,
    new_uuids,
    request,
)
from ...fixtures.waiting import wait_until

WIRE = Path(__file__).parents[2] / "data" / "wire"


@pytest.fixture
def api(transport: Any) -> SchedulerAPI:
    return SchedulerAPI(transport, timeout_s=30)


def _stock_client(transport: Any, version: str = "4.5", **target: Any) -> Any:
    """A client without our serializer: it sees what crosses the wire."""
    target = oslo_messaging.Target(topic="scheduler", version=version, **target)
    return oslo_messaging.get_rpc_client(transport, target, timeout=30)


def test_selections_come_back_as_objects(api: SchedulerAPI) -> None:
    [uuid] = new_uuids()
    [[chosen, *alternates]] = api.select_destinations(
        CONTEXT, request(), [uuid], return_alternates=True
    )
    assert chosen.service_host in {"h1", "h2", "h3"}
    assert all(a.cell_uuid == chosen.cell_uuid for a in alternates)


def test_no_valid_host_is_rebuilt_with_its_reason(api: SchedulerAPI) -> None:
    with pytest.raises(errors.NoValidHost) as raised:
        api.select_destinations(CONTEXT, request(vcpus=99), new_uuids())
    reason = "Of 3 hosts: 3 lack CPUs."
    assert str(raised.value) == f"No valid host was found. {reason}"


def test_invalid_request_names_the_field(api: SchedulerAPI) -> None:
    with pytest.raises(errors.InvalidRequest, match="vcpus"):
        api.select_destinations(CONTEXT, request(vcpus=-1), new_uuids())


def test_no_valid_host_is_what_a_stock_client_rebuilds() -> None:
    failure = errors.NoValidHost("why")
    assert type(failure).__module__ == "nova.exception"
    assert failure.args == ("No valid host was found. why",)
    assert failure.kwargs == {"code": 500, "reason": "why"}


def _spec(**changes: Any) -> dict[str, Any]:
    """A request as it crosses the wire, with other things than it should have."""
    spec = Serializer().serialize_entity({}, request())
    flavor = spec["nova_object.data"]["flavor"]
    for name, value in changes.items():
        where, _, key = name.partition("_")
        part = spec if where == "spec" else flavor
        if f"nova_object.{key}" in part:
            part[f"nova_object.{key}"] = value
        else:
            part["nova_object.data"][key] = value
    return spec


def _nested(depth: int) -> Any:
    return [_nested(depth - 1)] if depth else 1


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (_spec(spec_name="Florist"), "unknown object 'Florist'"),
        (_spec(flavor_name="Florist"), "unknown object 'Florist'"),
        (_spec(spec_version="2.0"), "expected version 1.x of RequestSpec, got"),
        (
            _spec(flavor_vcpus="many"),
            "RequestSpec.flavor.vcpus: expected an integer, got str 'many'",
        ),
        (_spec(spec_project_id="x" * (5 << 20)), "at most 4194304 characters"),
        (_spec(spec_later=[0] * 1_000_001), "at most 1000000 values"),
        (_spec(spec_later=_nested(101)), "at most 100 levels"),
    ],
    ids=["object", "part", "version", "field", "text", "values", "levels"],
)
def test_request_that_cannot_be_read_is_refused_as_others_are(
    transport: Any, spec: dict[str, Any], error: str
) -> None:
    with pytest.raises(errors.InvalidRequest, match=error) as raised:
        _stock_client(transport).call(
            CONTEXT, "select_destinations", spec_obj=spec, instance_uuids=new_uuids()
        )
    crossing = type(raised.value)
    assert (crossing.__module__, crossing.__name__) == ("nova.exception", "NoValidHost")
    assert str(raised.value).startswith("No valid host was found. InvalidRequest: ")


def test_error_does_not_repeat_the_message(
    transport: Any, caplog: pytest.LogCaptureFixture
) -> None:
    spec = _spec(flavor_extra_specs={"x" * (1 << 20): 5})
    with pytest.raises(errors.InvalidRequest, match="extra_specs") as raised:
        _stock_client(transport).call(
            CONTEXT, "select_destinations", spec_obj=spec, instance_uuids=new_uuids()
        )
    assert len(str(raised.value)) < 1000
    assert len(caplog.text) < 10_000


def test_cast_that_cannot_be_read_is_left_alone(
    scheduler: Scheduler, transport: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client = _stock_client(transport)
    client.cast(CONTEXT, "select_destinations", spec_obj=_spec(spec_name="Florist"))
    client.prepare(fanout=True).cast(
        CONTEXT, "update_aggregates", aggregates=[_spec(spec_name="Forester")]
    )
    wait_until(lambda: "Florist" in caplog.text and "Forester" in caplog.text)
    assert not list(scheduler.table.aggregates)
    assert _stock_client(transport, "1.1", namespace="baseapi").call({}, "ping", arg=1)


def test_ping_is_answered(transport: Any) -> None:
    client = _stock_client(transport, "1.1", namespace="baseapi")
    assert client.call({}, "ping", arg="x") == {"service": "scheduler", "arg": "x"}
    assert client.call({}, "get_backdoor_port") is None


def test_casts_change_the_table(scheduler: Scheduler, api: SchedulerAPI) -> None:
    uuid, other = new_uuids(2)
    aggregate = Aggregate(
        id=7, uuid=new_uuids()[0], name="a", hosts=["h1"], metadata={"k": "v"}
    )
    instances = scheduler.table.instances
    # Casts are handled by several threads, in any order.
    api.update_aggregates(CONTEXT, [aggregate])
    wait_until(lambda: [a.name for a in scheduler.table.aggregates] == ["a"])
    api.update_instance_info(CONTEXT, "h1", InstanceList(objects=[Instance(uuid=uuid)]))
    wait_until(lambda: instances.hosts_of(uuid) == ("h1",))
    api.sync_instance_info(CONTEXT, "h2", [other])
    wait_until(lambda: instances.hosts_of(other) == ("h2",))
    api.delete_instance_info(CONTEXT, "h1", uuid)
    wait_until(lambda: instances.hosts_of(uuid) == ())
    api.delete_aggregate(CONTEXT, aggregate)
    wait_until(lambda: not list(scheduler.table.aggregates))


@pytest.mark.parametrize(
    "path", sorted(WIRE.glob("*.json")), ids=lambda path: path.stem
)
def test_real_message_is_answered(scheduler: Scheduler, path: Path) -> None:
    """Every recorded message ends in an answer, or in a failure that is no accident."""
    recorded = json.loads(path.read_text())
    message = recorded.get("message") or recorded["request"]["message"]
    context = recorded.get("context", {"project_id": "p", "user_id": "u"})
    arguments = {
        name: Serializer().deserialize_entity(context, value)
        for name, value in message["args"].items()
    }
    [endpoint, _] = scheduler.endpoints
    method = getattr(endpoint, message["method"])
    try:
        answer = method(context, **arguments)
    except oslo_messaging.ExpectedException:
        return  # no valid host: most name hosts that exist nowhere
    if message["method"] == "select_destinations":
        uuids = arguments["instance_uuids"]
        assert len(answer) == len(uuids)
        if "rebuild" not in path.stem:
            for uuid, [chosen, *_] in zip(uuids, answer, strict=True):
                held = scheduler.placement.allocations(uuid).resources
                assert held == claimed(chosen)
        assert isinstance(arguments["spec_obj"], RequestSpec)


def test_client_accepts_a_transport_of_oslo_messaging() -> None:
    conf = cfg.ConfigOpts()
    conf([])
    stock = oslo_messaging.get_rpc_transport(conf, url="fake:///")
    api = SchedulerAPI(stock, timeout_s=5)
    api.delete_instance_info(CONTEXT, "h1", new_uuids()[0])
    with pytest.raises(oslo_messaging.MessagingTimeout):
        SchedulerAPI(stock, timeout_s=1).select_destinations(
            CONTEXT, request(), new_uuids()
        )
    stock.cleanup()


def test_deletions_that_conductors_report_reach_the_source(
    transport: Any, api: SchedulerAPI, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = ReportedHosts(HostTable(), ReportRequester(), time.time, list)
    [uuid] = new_uuids()
    endpoints = [DeletionEndpoint(hosts), IgnoredReports()]
    server = get_server(transport.conf, transport, endpoints, PEERS_TOPIC)
    server.start()
    try:
        api.instances_deleted(CONTEXT, ["x"])
        wait_until(lambda: "instances_deleted: " in caplog.text)
        assert hosts.locate(uuid).state is InstanceState.PENDING
        api.instances_deleted(CONTEXT, [uuid])
        wait_until(lambda: hosts.locate(uuid).state is InstanceState.GONE)
    finally:
        server.stop()
        server.wait()


def test_reports_without_a_source_are_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unused = IgnoredReports()
    for _ in range(3):
        unused.host_reports({}, reports=[])
    assert len(caplog.messages) == 1
    assert "[moorage] source is not push" in caplog.text


def test_broker_that_refuses_later_leaves_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    conf = moorage_conf.load([], config_files=[])
    get_transport(conf, "rabbit://guest:secret@127.0.0.1:1/").cleanup()
    driver = logging.getLogger("oslo.messaging._drivers.impl_rabbit")
    driver.error("Connection failed: %s (retrying in %s seconds)", "refused", 1)
    try:
        raise oslo_messaging.MessageDeliveryFailure("refused")
    except oslo_messaging.MessageDeliveryFailure:
        logging.getLogger("oslo_utils.excutils").exception("Unexpected exception")
    assert "rabbit://guest:***@127.0.0.1:1/" in caplog.text
    assert "Traceback" not in caplog.text


def test_request_that_fails_early_is_recorded_with_its_instances(
    scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    uuids = [*new_uuids(), *new_uuids()]
    with pytest.raises(errors.InvalidRequest):
        scheduler.select_destinations(CONTEXT, request(memory_mb=-1), uuids)
    assert "2 instance(s) failed" in caplog.text
