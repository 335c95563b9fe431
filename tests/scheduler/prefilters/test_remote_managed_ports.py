# SPDX-License-Identifier: Apache-2.0
"""Ports that a SmartNIC manages need a host that can serve them."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.objects import (
    InstancePCIRequest,
    InstancePCIRequests,
    NetworkRequest,
    NetworkRequestList,
)
from moorage.scheduler.prefilters.ports import (
    remote_managed_ports_filter,
)

from ...conftest import instance_uuid
from .surroundings import Neutron, required, root

PORT, OTHER = instance_uuid("port"), instance_uuid("other")
TRAIT = "COMPUTE_REMOTE_MANAGED_PORTS"


def networks(*ports: str) -> NetworkRequestList:
    return NetworkRequestList(objects=[NetworkRequest(port_id=p) for p in ports])


def device(is_remote: str, **fields: Any) -> InstancePCIRequests:
    device = InstancePCIRequest(
        count=1,
        spec=[{"remote_managed": is_remote}],
        **{"alias_name": None, "requester_id": PORT, **fields},
    )
    return InstancePCIRequests(requests=[device])


@pytest.mark.parametrize(
    ("pci_requests", "traits"),
    [
        (None, []),
        (device("True"), [TRAIT]),
        (device("False"), []),
        (device("True", alias_name="of the flavor"), []),
    ],
)
def test_traits_follow_from_the_request_alone(
    pci_requests: InstancePCIRequests | None, traits: list[str]
) -> None:
    found = required(
        remote_managed_ports_filter,
        pci_requests=pci_requests,
        requested_networks=networks(PORT),
    )
    assert found == root(*traits)


@pytest.mark.parametrize(
    ("vnic_type", "traits"),
    [("remote-managed", [TRAIT]), ("normal", []), (None, [])],
)
def test_neutron_is_queried_for_ports_without_a_pci_request(
    vnic_type: str | None, traits: list[str]
) -> None:
    port = {"binding:vnic_type": vnic_type} if vnic_type else {}
    found = required(
        remote_managed_ports_filter,
        neutron=Neutron(ports={PORT: port}),
        requested_networks=networks(PORT),
    )
    assert found == root(*traits)


def test_neutron_is_not_queried_about_ports_in_the_request() -> None:
    neutron = Neutron(ports={OTHER: {}})
    required(
        remote_managed_ports_filter,
        neutron=neutron,
        pci_requests=device("False"),
        requested_networks=networks(PORT, OTHER, OTHER),
    )
    assert neutron.queried == [OTHER]


def test_request_of_an_old_conductor_has_no_networks() -> None:
    assert required(remote_managed_ports_filter, neutron=Neutron()) == root()
