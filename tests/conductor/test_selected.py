# SPDX-License-Identifier: Apache-2.0
"""A Selection has the allocation request and the providers of each group."""

from __future__ import annotations

import pytest

from moorage.conductor import allocation_request, fill_provider_mapping
from moorage.objects import RequestGroup, RequestSpec
from moorage.scheduler.errors import InvalidRequest

from .clouds import DEST, NIC, THIRD, selection, vcpus


def _spec(*requesters: str) -> RequestSpec:
    groups = [RequestGroup(requester_id=r, provider_uuids=[THIRD]) for r in requesters]
    return RequestSpec(requested_resources=groups)


def test_request_is_as_placement_wrote_it() -> None:
    request = allocation_request(selection(vcpus(DEST), port=[NIC]))
    assert request == {
        "allocations": {DEST: {"resources": {"VCPU": 1}}},
        "mappings": {"": [DEST], "port": [NIC]},
    }


@pytest.mark.parametrize("text", [None, "null", ""])
def test_selection_of_another_scheduler_claims_nothing(text: str | None) -> None:
    selected = selection(None)
    selected.allocation_request = text
    assert allocation_request(selected) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [("{", "not JSON"), ("[]", "without"), ('{"allocations": []}', "without")],
)
def test_unreadable_request_is_reported_with_its_host(text: str, why: str) -> None:
    selected = selection(vcpus(DEST))
    selected.allocation_request = text
    with pytest.raises(InvalidRequest, match=f"of host host2 is {why}"):
        allocation_request(selected)


def test_groups_get_their_providers() -> None:
    spec_obj = _spec("port", "device")
    fill_provider_mapping(
        spec_obj, selection(vcpus(DEST), port=[NIC], device=[DEST, NIC])
    )
    assert spec_obj.get_request_group_mapping() == {
        "port": [NIC],
        "device": [DEST, NIC],
    }


@pytest.mark.parametrize("resources", [vcpus(DEST), None], ids=["claimed", "unclaimed"])
def test_group_that_is_not_mapped_keeps_no_provider_of_another_host(
    resources: dict[str, dict[str, int]] | None,
) -> None:
    spec_obj = _spec("port")
    fill_provider_mapping(spec_obj, selection(resources))
    assert spec_obj.get_request_group_mapping() == {"port": []}


@pytest.mark.parametrize("is_set", [False, True])
def test_request_without_groups_is_left_alone(is_set: bool) -> None:
    spec_obj = RequestSpec(requested_resources=None) if is_set else RequestSpec()
    fill_provider_mapping(spec_obj, selection(vcpus(DEST)))
    assert ("requested_resources" in spec_obj) is is_set
