# SPDX-License-Identifier: Apache-2.0
"""Every form of every method since 4.0 is accepted, as a call and as a cast."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import oslo_messaging
import pytest

from moorage.objects import (
    Aggregate,
    AggregateList,
    Destination,
    Instance,
    InstanceGroup,
    InstanceList,
    Serializer,
    UnsetField,
)
from moorage.scheduler.errors import (
    AllocationUpdateFailed,
    InvalidRequest,
    NoValidHost,
    PlacementUnavailable,
    as_nova,
    from_nova,
)
from moorage.scheduler.request.checks import MAX_INSTANCES
from moorage.scheduler.rpc import SchedulerEndpoint
from moorage.scheduler.service import Scheduler

from ...fixtures.clouds import (
    CONTEXT,
    claimed,
    new_uuids,
    request,
)

METHOD = "select_destinations"


@pytest.fixture
def call(transport: Any) -> Callable[..., Any]:
    """Call a method over a bus, in a version, and see the answer as it crosses."""

    def call(version: str, method: str = METHOD, /, **arguments: Any) -> Any:
        target = oslo_messaging.Target(topic="scheduler", version=version)
        client = oslo_messaging.get_rpc_client(transport, target, timeout=30)
        wire = json.loads(json.dumps(Serializer().serialize_entity({}, arguments)))
        return json.loads(json.dumps(client.call(CONTEXT, method, **wire)))

    return call


def _dicts(**properties: Any) -> dict[str, Any]:
    """The arguments of 4.0 to 4.2."""
    request_spec = {
        "num_instances": 1,
        "image": {},
        "instance_type": request().flavor,
        "instance_properties": {
            "uuid": new_uuids()[0],
            "project_id": "project",
            "user_id": "user",
            "availability_zone": None,
            "numa_topology": None,
            "pci_requests": None,
        },
    }
    return {"request_spec": request_spec, "filter_properties": properties}


@pytest.mark.parametrize(
    ("properties", "hosts"),
    [
        ({}, {"h1", "h2", "h3"}),
        ({"ignore_hosts": ["h1", "H2"], "force_hosts": None}, {"h3"}),
        ({"force_hosts": ["h2"], "force_nodes": ["h2"]}, {"h2"}),
        ({"retry": {"num_attempts": 1, "hosts": []}}, {"h1", "h2", "h3"}),
        ({"retry": {"num_attempts": 2, "hosts": [["h1", "h1"]]}}, {"h1", "h2", "h3"}),
        ({"limits": {"memory_mb": 5}}, {"h1", "h2", "h3"}),
        ({"scheduler_hints": {"query": '["=", "$host", "h1"]'}}, {"h1", "h2", "h3"}),
        ({"scheduler_hints": None}, {"h1", "h2", "h3"}),
        ({"requested_destination": Destination(host="h3")}, {"h3"}),
        (
            {
                "group_updated": True,
                "group_hosts": ["h3"],
                "group_policies": ["affinity"],
                "group_members": [],
                "group_uuid": new_uuids()[0],
            },
            {"h3"},
        ),
        (
            {"instance_group": InstanceGroup(policy="affinity", hosts=["h2"])},
            {"h2"},
        ),
    ],
    ids=[
        "none", "ignore", "force", "retry", "retried", "limits", "hint", "no hints",
        "destination", "group", "group object",
    ],
)  # fmt: skip
def test_dicts_are_accepted(
    call: Callable[..., Any], properties: dict[str, Any], hosts: set[str]
) -> None:
    [answer] = call("4.0", **_dicts(**properties))
    assert answer["host"] in hosts
    assert answer == {"host": answer["host"], "nodename": answer["host"], "limits": {}}


@pytest.mark.parametrize("version", ["4.1", "4.2"])
def test_dicts_are_accepted_in_all_versions_that_had_them(
    call: Callable[..., Any], version: str
) -> None:
    assert len(call(version, **_dicts())) == 1


@pytest.mark.parametrize("flags", [{}, {"return_objects": False}])
@pytest.mark.parametrize("is_requested", [False, True])
def test_call_with_instances_is_claimed_and_answered_with_dicts(
    scheduler: Scheduler,
    call: Callable[..., Any],
    flags: dict[str, bool],
    is_requested: bool,
) -> None:
    """4.4, and 4.5 without objects: alternates are never in the reply."""
    uuids = new_uuids(2)
    answer = call(
        "4.5" if is_requested or flags else "4.4",
        spec_obj=request(num_instances=2),
        instance_uuids=uuids,
        **flags,
        **({"return_alternates": True} if is_requested else {}),
    )
    assert [each.keys() for each in answer] == [{"host", "nodename", "limits"}] * 2
    assert all(scheduler.placement.allocations(uuid).resources for uuid in uuids)


@pytest.mark.parametrize("version", ["4.3", "4.4", "4.5"])
def test_call_without_instances_is_not_claimed(
    scheduler: Scheduler, call: Callable[..., Any], version: str
) -> None:
    uuid = new_uuids()[0]
    spec = request(num_instances=2, instance_uuid=uuid)
    answer = call(version, spec_obj=spec, **({} if version == "4.3" else _NO_UUIDS))
    assert [each.keys() for each in answer] == [{"host", "nodename", "limits"}] * 2
    assert scheduler.placement.allocations(uuid).resources == {}


_NO_UUIDS = {"instance_uuids": None}


@pytest.mark.parametrize("wants", [False, True])
def test_objects_are_answered_with_alternates_if_requested(
    scheduler: Scheduler, call: Callable[..., Any], wants: bool
) -> None:
    uuid = new_uuids()[0]
    answer = call(
        "4.5",
        spec_obj=request(requested_destination=None, ignore_hosts=["h3"]),
        instance_uuids=[uuid],
        return_objects=True,
        return_alternates=wants,
    )
    [[chosen, *alternates]] = Serializer().deserialize_entity({}, answer)
    assert len(alternates) == wants
    assert scheduler.placement.allocations(uuid).resources == claimed(chosen)
    assert chosen.allocation_request_version == "1.36"


def test_objects_without_instances_are_not_claimed(call: Callable[..., Any]) -> None:
    answer = call(
        "4.5", spec_obj=request(), return_objects=True, return_alternates=True
    )
    [[chosen, *_]] = Serializer().deserialize_entity({}, answer)
    assert chosen.allocation_request == "null"
    assert chosen.allocation_request_version is None


def test_rebuild_is_filtered_and_not_claimed(
    scheduler: Scheduler, call: Callable[..., Any]
) -> None:
    uuid = new_uuids()[0]
    answer = call(
        "4.5",
        spec_obj=request(
            scheduler_hints={"_nova_check_type": ["rebuild"]},
            requested_destination=Destination(host="h2", node="h2"),
            instance_uuid=uuid,
        ),
        instance_uuids=[uuid],
        return_objects=True,
        return_alternates=False,
    )
    [[chosen]] = Serializer().deserialize_entity({}, answer)
    assert chosen.service_host == "h2"
    assert chosen.allocation_request == "null"
    assert chosen.allocation_request_version is None
    assert scheduler.placement.allocations(uuid).resources == {}


def _aggregate(number: int) -> Aggregate:
    return Aggregate(
        id=number,
        uuid=f"00000000-0000-4000-8000-00000000000{number}",
        name=f"a{number}",
        hosts=["h1"],
        metadata={},
    )


@pytest.mark.parametrize(
    "aggregates",
    [
        _aggregate(1),
        [_aggregate(1), _aggregate(2)],
        AggregateList(objects=[_aggregate(1), _aggregate(2)]),
        [],
    ],
    ids=["one", "list", "object list", "none"],
)
def test_aggregates_are_accepted_in_all_forms(
    scheduler: Scheduler, call: Callable[..., Any], aggregates: Any
) -> None:
    assert call("4.1", "update_aggregates", aggregates=aggregates) is None
    one = [aggregates] if isinstance(aggregates, Aggregate) else list(aggregates)
    names = {each.name for each in one}
    assert {each.name for each in scheduler.table.aggregates} == names
    for each in one:
        assert call("4.1", "delete_aggregate", aggregate=each) is None
    assert list(scheduler.table.aggregates) == []


def test_instance_changes_are_accepted_as_calls_too(
    scheduler: Scheduler, call: Callable[..., Any]
) -> None:
    first, second = new_uuids(2)
    instances = InstanceList(objects=[Instance(uuid=first)])
    table = scheduler.table
    call("4.2", "update_instance_info", host_name="h1", instance_info=instances)
    assert table.instances.hosts_of(first) == ("h1",)
    call("4.2", "sync_instance_info", host_name="h1", instance_uuids=[second])
    assert table.instances.hosts_of(first) == ()
    call("4.2", "delete_instance_info", host_name="h1", instance_uuid=second)
    assert table.instances.hosts_of(second) == ()


@pytest.fixture
def endpoint(scheduler: Scheduler) -> SchedulerEndpoint:
    [endpoint, _] = scheduler.endpoints
    assert isinstance(endpoint, SchedulerEndpoint)
    return endpoint


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        ({}, "neither spec_obj nor request_spec"),
        ({"spec_obj": {"flavor": 1}}, "spec_obj: a RequestSpec is needed, not dict"),
        ({"request_spec": "x"}, "request_spec: a dict is needed, not str"),
        ({"request_spec": {}, "filter_properties": []}, "filter_properties: a dict"),
        ({"request_spec": {"instance_type": 7}}, "cannot be read .*: ValueError"),
        (
            {"request_spec": {"instance_properties": {"numa_topology": "{"}}},
            "cannot be read .*: JSONDecodeError",
        ),
        (
            {"request_spec": {"instance_properties": {"numa_topology": "[" * 10**6}}},
            "cannot be read .*: RecursionError",
        ),
        ({"request_spec": {}}, "flavor is missing"),
        ({"spec_obj": request(), "instance_uuids": "x"}, "a list of UUIDs"),
        ({"spec_obj": request(), "instance_uuids": ["x"]}, "'x' is not a UUID"),
        (
            {"spec_obj": request(), "instance_uuids": ["x"] * (MAX_INSTANCES + 1)},
            f"at most {MAX_INSTANCES}",
        ),
        (
            {"spec_obj": request(num_instances=10**12)},
            f"num_instances .* to {MAX_INSTANCES}",
        ),
        ({"spec_obj": request(num_instances=0)}, "num_instances"),
    ],
)
def test_invalid_argument_is_refused_by_name(
    endpoint: SchedulerEndpoint, arguments: dict[str, Any], reported: str
) -> None:
    with pytest.raises(InvalidRequest, match=reported) as raised:
        endpoint.select_destinations(CONTEXT, **arguments)
    crossing = type(raised.value)
    assert (crossing.__module__, crossing.__name__) == ("nova.exception", "NoValidHost")
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("update_aggregates", {"aggregates": 7}),
        ("update_aggregates", {"aggregates": [_aggregate(1), "x"]}),
        ("delete_aggregate", {"aggregate": 1}),
        ("update_instance_info", {"host_name": "h1", "instance_info": []}),
        ("update_instance_info", {"host_name": 1, "instance_info": InstanceList()}),
        ("delete_instance_info", {"host_name": "h1", "instance_uuid": None}),
        ("sync_instance_info", {"host_name": "h1", "instance_uuids": "abc"}),
        ("sync_instance_info", {"host_name": "h1", "instance_uuids": [1]}),
    ],
)
def test_invalid_cast_changes_nothing(
    scheduler: Scheduler,
    endpoint: SchedulerEndpoint,
    method: str,
    arguments: dict[str, Any],
) -> None:
    with pytest.raises(InvalidRequest, match="is needed, not"):
        getattr(endpoint, method)(CONTEXT, **arguments)
    assert list(scheduler.table.aggregates) == []


def test_aggregate_without_an_id_changes_nothing(
    scheduler: Scheduler, endpoint: SchedulerEndpoint
) -> None:
    with pytest.raises(UnsetField):
        endpoint.update_aggregates(CONTEXT, [_aggregate(1), Aggregate(name="b")])
    assert list(scheduler.table.aggregates) == []


class _Failing:
    """A scheduler that fails in one way."""

    table: Any = None

    def __init__(self, error: Exception) -> None:
        self.error = error

    def select_destinations(self, *args: Any, **more: Any) -> Any:
        """Fail."""
        raise self.error


def test_internal_words_reach_no_end_user() -> None:
    error = PlacementUnavailable("GET https://placement.internal:8778/ timed out")
    with pytest.raises(PlacementUnavailable) as raised:
        SchedulerEndpoint(_Failing(error)).select_destinations(
            CONTEXT, spec_obj=request()
        )
    assert "internal" not in str(raised.value)
    assert raised.value.__cause__ is error


def test_accident_is_no_valid_host_to_others() -> None:
    with pytest.raises(Exception, match="SchedulerError: The scheduler failed") as why:
        SchedulerEndpoint(_Failing(ZeroDivisionError("h1"))).select_destinations(
            CONTEXT, spec_obj=request()
        )
    assert type(why.value).__module__ == "nova.exception"
    assert isinstance(why.value.__cause__, ZeroDivisionError)


def test_failed_update_of_allocations_crosses_as_novas_own_class() -> None:
    text = "Failed to update allocations for consumer c0. Error: Others were faster."
    with pytest.raises(AllocationUpdateFailed) as raised:
        SchedulerEndpoint(_Failing(AllocationUpdateFailed(text))).select_destinations(
            CONTEXT, spec_obj=request()
        )
    crossed: Any = raised.value
    assert type(crossed).__module__ == "nova.exception"
    assert type(crossed).__name__ == "AllocationUpdateFailed"
    assert crossed.args == (text,)
    its = {"consumer_uuid": "c0", "error": "Others were faster.", "code": 500}
    assert crossed.kwargs == its


def test_client_of_ours_makes_the_error_again_of_what_crossed() -> None:
    crossed = as_nova(InvalidRequest("spec_obj: why"))
    rebuilt = from_nova(str(crossed))
    assert type(rebuilt) is InvalidRequest
    assert str(rebuilt) == "spec_obj: why"
    error = NoValidHost("No such host - host: a node: b ")
    again = from_nova(str(error))
    assert type(again) is NoValidHost
    assert str(again) == str(error)


def test_no_token_is_logged_or_recorded(
    scheduler: Scheduler,
    endpoint: SchedulerEndpoint,
    caplog: pytest.LogCaptureFixture,
) -> None:
    context = {**CONTEXT, "auth_token": "s3cret", "service_catalog": [{"x": "s3cret"}]}
    with caplog.at_level(logging.DEBUG):
        endpoint.select_destinations(context, spec_obj=request(), instance_uuids=None)
        with pytest.raises(oslo_messaging.ExpectedException):
            endpoint.select_destinations(
                context, spec_obj=request(vcpus=99), instance_uuids=new_uuids()
            )
        with pytest.raises(InvalidRequest):
            endpoint.select_destinations(context, spec_obj=request(vcpus=-1))
    assert caplog.records
    assert "s3cret" not in caplog.text
    kept = json.dumps([each.to_dict() for each in scheduler.decisions.newest()])
    assert "s3cret" not in kept
