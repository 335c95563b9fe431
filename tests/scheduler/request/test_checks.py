# SPDX-License-Identifier: Apache-2.0
"""Which requests are refused before the query to Placement."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.objects import Flavor, RequestGroup, RequestLevelParams, RequestSpec
from moorage.scheduler.errors import InvalidRequest
from moorage.scheduler.request import Request
from moorage.scheduler.request.checks import MAX_AMOUNT

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
