# SPDX-License-Identifier: Apache-2.0
"""Which requests are refused before the query to Placement."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from moorage.objects import (
    Flavor,
    ImageMeta,
    ImageMetaProps,
    InstanceGroup,
    RequestGroup,
    RequestLevelParams,
    RequestSpec,
)
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.errors import InvalidRequest
from moorage.scheduler.request import Request
from moorage.scheduler.request.checks import (
    MAX_HOST_NAMES,
    MAX_TEXT,
    MAX_TOTAL_TEXT,
)
from moorage.scheduler.request.groups import MAX_AMOUNT
from moorage.scheduler.service import Scheduler

from ...fixtures.clouds import CONTEXT, host, new_uuids, request, started_scheduler

UUID = "3f1f6a8e-6f0f-4a0b-9d3b-0c6a8f6f7f10"


def spec(**changes: Any) -> RequestSpec:
    flavor = {
        "name": "one",
        "vcpus": 1,
        "memory_mb": 1,
        "root_gb": 0,
        "ephemeral_gb": 0,
        "swap": 0,
        "extra_specs": {},
    }
    return RequestSpec(
        num_instances=changes.pop("num_instances", 1),
        requested_resources=changes.pop("requested_resources", []),
        request_level_params=RequestLevelParams(
            same_subtree=changes.pop("same_subtree", [])
        ),
        flavor=Flavor(**flavor | changes),
    )


def group(requester_id: str | None, **fields: Any) -> RequestGroup:
    return RequestGroup(requester_id=requester_id, **fields)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"vcpus": MAX_AMOUNT, "memory_mb": MAX_AMOUNT, "root_gb": MAX_AMOUNT},
        {"num_instances": 1000},
        {"extra_specs": {"resources:VCPU": "0", "resources:CUSTOM_A_1": "7"}},
        {"requested_resources": [group("p", resources={"NEWER_THAN_US": 1})]},
        {"requested_resources": [group("p", required_traits={"CUSTOM_A"})]},
        {"requested_resources": [group("p", aggregates=[[UUID]])]},
        {"requested_resources": [group("p", resources={"VCPU": 0}, in_tree=UUID)]},
        {"extra_specs": {"in_tree1": UUID, "trait1:CUSTOM_A": "required"}},
        {"extra_specs": {"in_tree": UUID, "trait:CUSTOM_A": "forbidden"}},
        {
            "extra_specs": {"resources1:VGPU": "1"},
            "requested_resources": [group("p", required_traits={"CUSTOM_A"})],
            "same_subtree": [["p", "1"]],
        },
    ],
    ids=str,
)
def test_valid_request_passes(changes: dict[str, Any]) -> None:
    Request.validated(spec(**changes))


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"vcpus": 0}, "flavor.vcpus", "0"),
        ({"vcpus": MAX_AMOUNT + 1}, "flavor.vcpus", "2147483648"),
        ({"memory_mb": 0}, "flavor.memory_mb", "0"),
        ({"memory_mb": -5}, "flavor.memory_mb", "-5"),
        ({"root_gb": -1}, "flavor.root_gb", "-1"),
        ({"ephemeral_gb": -1}, "flavor.ephemeral_gb", "-1"),
        ({"swap": -1}, "flavor.swap", "-1"),
        ({"num_instances": 0}, "num_instances", "0"),
        (
            {"extra_specs": {"resources1:VGPU": "2147483648"}},
            "resources1:VGPU",
            "2147483648",
        ),
        (
            {"extra_specs": {"resources:CUSTOM_a": "1"}},
            "resources:CUSTOM_a",
            "CUSTOM_a",
        ),
        ({"requested_resources": [group("")]}, "requester_id", "''"),
        ({"requested_resources": [group(None)]}, "requester_id", "None"),
        (
            {"requested_resources": [group("a b", resources={"VGPU": 1})]},
            "requested_resources[0].requester_id",
            "'a b'",
        ),
        ({"requested_resources": [group("p")]}, "requested_resources[0]", "nothing"),
        (
            {"requested_resources": [group("p", resources={"VGPU": 1})] * 2},
            "requested_resources[1].requester_id",
            "'p'",
        ),
        (
            {
                "extra_specs": {"resources1:VGPU": "1"},
                "requested_resources": [group("1", resources={"VGPU": 1})],
            },
            "requested_resources[0].requester_id",
            "'1'",
        ),
        (
            {"requested_resources": [group("p", resources={"VGPU": -1})]},
            "requested_resources[0].resources['VGPU']",
            "-1",
        ),
        (
            {"requested_resources": [group("p", resources={"VGPU:1,": 1})]},
            "requested_resources[0].resources",
            "VGPU:1,",
        ),
        (
            {"requested_resources": [group("p", forbidden_traits={"CUSTOM_A"})]},
            "requested_resources[0]",
            "required traits or aggregates",
        ),
        (
            {"extra_specs": {"trait1:CUSTOM_A": "forbidden"}},
            "flavor.extra_specs",
            "'1'",
        ),
        ({"extra_specs": {"in_tree1": UUID}}, "flavor.extra_specs", "'1'"),
        (
            {"extra_specs": {"in_tree1": UUID, "resources1:VGPU": "0"}},
            "flavor.extra_specs",
            "'1'",
        ),
        (
            {
                "requested_resources": [group("p", resources={"VGPU": 1})],
                "same_subtree": [["p"], ["p", "q"]],
            },
            "request_level_params.same_subtree[1]",
            "'q'",
        ),
    ],
    ids=str,
)
def test_what_is_wrong_is_named(
    changes: dict[str, Any], field: str, value: str
) -> None:
    with pytest.raises(InvalidRequest) as raised:
        Request.validated(spec(**changes))

    assert field in str(raised.value)
    assert value in str(raised.value)


def test_request_without_flavor_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="flavor is missing"):
        Request.validated(RequestSpec(num_instances=1))


def test_flavor_without_an_amount_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"flavor\.memory_mb is None"):
        Request.validated(RequestSpec(flavor=Flavor(vcpus=1)))


def test_disk_beyond_placements_integer_is_refused() -> None:
    spec_obj = spec(root_gb=MAX_AMOUNT, ephemeral_gb=1)

    with pytest.raises(InvalidRequest, match="2147483648 GiB together"):
        Request.validated(spec_obj)


HUGE = 3_000_000


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    filters = [
        *moorage_conf.load([], config_files=[]).filter_scheduler.enabled_filters,
        "JsonFilter",
        "DifferentHostFilter",
        "SimpleCIDRAffinityFilter",
    ]
    with started_scheduler(
        tmp_path_factory.mktemp("cloud"),
        *[host(f"h{i}") for i in range(40)],
        options={"filter_scheduler": {"enabled_filters": filters}},
    ) as scheduler:
        yield scheduler


def _hints(**hints: list[str]) -> RequestSpec:
    return request(scheduler_hints=hints)


def _image(**properties: Any) -> RequestSpec:
    return request(image=ImageMeta(properties=ImageMetaProps(**properties)))


def _rule(value: str) -> RequestSpec:
    rules = {"max_server_per_host": value}
    group = InstanceGroup(policy="anti-affinity", members=[], hosts=[], rules=rules)
    return request(instance_group=group)


@pytest.mark.parametrize(
    ("spec_obj", "named", "repeated"),
    [
        (_hints(same_host=["x" * HUGE]), "scheduler_hints.*same_host", "x" * 200),
        (_hints(**{"y" * HUGE: ["x"]}), "scheduler_hints", "y" * 200),
        (_hints(different_host=[UUID] * 2000), "scheduler_hints", UUID),
        (_hints(a=["z" * 40_000], b=["x" * 40_000]), "scheduler_hints", "z" * 200),
        (_hints(query=['["=","$host"' + ',"h1"' * 5000]), "query", '["=","$host"'),
        (_hints(query=["[" * 16_000]), "query", "[" * 200),
        (_hints(build_near_host_ip=["1." * 9_000]), "build_near_host_ip", "1." * 100),
        (_hints(build_near_host_ip=["::1"], cidr=["/" * 9_000]), "cidr", "/" * 200),
        (_image(os_distro="x" * HUGE), "image.properties.os_distro", "x" * 200),
        (_image(os_distro="x" * 256), "os_distro", "x" * 200),
        (_image(traits_required=["A", "C" * 256]), "traits_required", "C" * 200),
        (
            _image(traits_required=[f"CUSTOM_{i:0>240}" for i in range(300)]),
            "image.properties",
            "CUSTOM_",
        ),
        (
            _image(img_signature="s" * (MAX_TOTAL_TEXT + 1)),
            "image.properties",
            "s" * 200,
        ),
        (
            _image(hw_cpu_policy="dedicated", hw_cpu_realtime_mask="0-3," * 70),
            "hw_cpu_realtime_mask",
            "0-3," * 50,
        ),
        (request(ignore_hosts=["h"] * (MAX_HOST_NAMES + 1)), "ignore_hosts", "10001"),
        (request(force_hosts=["h"] * (MAX_HOST_NAMES + 1)), "force_hosts", "10001"),
        (request(ignore_hosts=["x" * 256]), "ignore_hosts", "x" * 200),
        (request(availability_zone="z" * HUGE), "availability_zone", "z" * 200),
        (request(project_id="p" * HUGE), "project_id", "p" * 200),
        (request(user_id="u" * HUGE), "user_id", "u" * 200),
        (request(extra_specs={"k" * HUGE: "v"}), "flavor.extra_specs", "k" * 200),
        (request(extra_specs={"a": "v" * HUGE}), "flavor.extra_specs", "v" * 200),
        (request(extra_specs={"trait:\ud800": "required"}), "required", "ud800"),
        (
            request(extra_specs={"resources1:VGPU": "9" * 4000}),
            "resources1",
            "a number",
        ),
        (_rule("two"), "instance_group.rules.*max_server_per_host", "two"),
        (_rule("9" * 5000), "max_server_per_host", "9" * 200),
        (_rule("0"), "max_server_per_host", "0"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_what_is_too_large_is_refused_fast_with_its_name_and_its_start(
    scheduler: Scheduler, spec_obj: RequestSpec, named: str, repeated: str
) -> None:
    started = time.thread_time()
    with pytest.raises(InvalidRequest, match=named) as raised:
        scheduler.select_destinations(CONTEXT, spec_obj, new_uuids())
    assert time.thread_time() - started < 1.0
    assert repeated in str(raised.value)
    assert len(str(raised.value)) < 1000
    [record] = scheduler.decisions.newest(1)
    assert len(record.summary()) < 2000


def test_uuid_that_is_there_twice_is_named_alone(scheduler: Scheduler) -> None:
    [twice, *others] = new_uuids(1000)
    with pytest.raises(InvalidRequest, match=f"duplicate instance: {twice}$"):
        scheduler.select_destinations(CONTEXT, request(), [twice, *others, twice])


@pytest.mark.parametrize(
    "spec_obj",
    [
        _hints(different_host=[UUID] * (MAX_TOTAL_TEXT // 36 - 2)),
        _hints(unknown=["x" * (MAX_TOTAL_TEXT - len("unknown"))]),
        _image(os_distro="x" * MAX_TEXT, img_signature="s" * MAX_TEXT),
        # In base64: the signature by an RSA key of 4096 bits.
        _image(img_signature="s" * 684),
        _image(os_command_line="console=ttyS0 " * 100),
        request(ignore_hosts=[f"x{i}" for i in range(MAX_HOST_NAMES)]),
        _hints(
            query=[
                '["and"'
                + ',["<","$vcpus_used",9]' * 20
                + ',["<",1,2]' * 29
                + ',"'
                + "x" * 15_000
                + '"]'
            ]
        ),
        _rule("1"),
        _rule("2147483647"),
    ],
    ids=[
        "hosts",
        "hint",
        "properties",
        "signature",
        "command line",
        "ignored",
        "query",
        "one",
        "many",
    ],
)
def test_what_is_as_large_as_it_may_be_is_placed(
    scheduler: Scheduler, spec_obj: RequestSpec
) -> None:
    started = time.thread_time()
    assert len(scheduler.select_destinations(CONTEXT, spec_obj, new_uuids())) == 1
    assert time.thread_time() - started < 2.0
