# SPDX-License-Identifier: Apache-2.0
"""Nova's own providers are required once every compute service marks them."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.objects import (
    InstancePCIRequest,
    InstancePCIRequests,
    RequestGroup,
    RequestLevelParams,
)
from moorage.scheduler.placement.query import Requirements, build_query
from moorage.scheduler.prefilters.traits import owner_nova_filter
from moorage.scheduler.request import Request

from ...conftest import host, instance_uuid, spec, table
from .surroundings import required, root

GPU, NIC = instance_uuid("gpu"), instance_uuid("nic")


@pytest.mark.parametrize(
    ("version", "is_required"), [(0, 0), (72, 0), (73, 1), (80, 1)]
)
def test_every_compute_service_has_to_be_new_enough(
    version: int, is_required: int
) -> None:
    found = required(owner_nova_filter, min_service_version=version)
    assert found == root(*["OWNER_NOVA"][:is_required])


def test_least_known_version_counts() -> None:
    versions = {"a": 0, "b": 74, "c": 73}
    made = table(*(host(host=h, service_version=v) for h, v in versions.items()))
    assert made.least_service_version() == 73
    assert table(host()).least_service_version() == 0
    assert table().least_service_version() == 0


def test_request_that_has_it_is_left_alone() -> None:
    has_it = RequestLevelParams(root_required={"OWNER_NOVA"})
    found = required(
        owner_nova_filter, min_service_version=73, request_level_params=has_it
    )
    assert found == Requirements()


def with_devices() -> dict[str, Any]:
    """A flavor's GPUs, a port's NIC, and a group that is no PCI device's."""
    ids = (f"{GPU}-0", f"{GPU}-1", f"{NIC}-0", "device_profile_0")
    return {
        "pci_requests": InstancePCIRequests(
            requests=[
                InstancePCIRequest(
                    count=2, spec=[{}], alias_name="gpu", request_id=GPU
                ),
                InstancePCIRequest(count=1, spec=[{}], request_id=NIC, alias_name=None),
            ]
        ),
        "requested_resources": [
            RequestGroup(requester_id=i, resources={"CUSTOM_X": 1}) for i in ids
        ],
    }


def test_groups_of_a_flavors_devices_need_it_too() -> None:
    found = required(owner_nova_filter, min_service_version=73, **with_devices())
    assert found.group_required == {
        f"{GPU}-0": {"OWNER_NOVA"},
        f"{GPU}-1": {"OWNER_NOVA"},
    }


def test_needs_of_a_group_are_in_the_query() -> None:
    needs = Requirements(group_required={f"{GPU}-1": {"T"}, "unheard of": {"U"}})
    request = Request.validated(spec(**with_devices()))
    params = dict(build_query(request, needs, limit=1).params)
    found = {k: v for k, v in params.items() if k.startswith("required")}
    assert found == {f"required{GPU}-1": "T"}
