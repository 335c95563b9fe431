# SPDX-License-Identifier: Apache-2.0
"""Hosts have to be in the segments of the requested networks."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.objects import NetworkRequest, NetworkRequestList
from moorage.scheduler.errors import ConfigurationError, NoValidHost
from moorage.scheduler.placement.query import Requirements
from moorage.scheduler.prefilters.networks import check_network
from moorage.scheduler.prefilters.ports import routed_networks_filter

from ...conftest import instance_uuid, options
from .surroundings import Neutron, required

GATE = "query_placement_for_routed_network_aggregates"
BOUND, FREE, FLAT = map(instance_uuid, ("bound", "free", "flat"))


def neutron() -> Neutron:
    return Neutron(
        ports={
            BOUND: {"network_id": "net", "fixed_ips": [{"subnet_id": "sub1"}]},
            FREE: {"network_id": "net", "fixed_ips": []},
            FLAT: {"network_id": "flat", "fixed_ips": [{"subnet_id": "sub3"}]},
        },
        subnets={
            "sub1": {"segment_id": "seg1"},
            "sub2": {"segment_id": "seg2"},
            "sub2v6": {"segment_id": "seg2"},
            "sub3": {},
        },
        networks={"net": ["sub1", "sub2", "sub2v6"], "flat": ["sub3"]},
    )


def request_fields(*wanted: dict[str, Any]) -> dict[str, Any]:
    objects = [NetworkRequest(**each) for each in wanted]
    return {"on": (GATE,), "requested_networks": NetworkRequestList(objects=objects)}


@pytest.mark.parametrize(
    ("wanted", "member_of"),
    [
        pytest.param([], [], id="none"),
        pytest.param([{"port_id": BOUND}], [{"of seg1"}], id="bound port"),
        pytest.param([{"port_id": FREE}], [{"of seg1", "of seg2"}], id="free port"),
        pytest.param([{"port_id": FLAT}], [], id="port of a network not routed"),
        pytest.param(
            [{"network_id": "net"}], [{"of seg1", "of seg2"}], id="routed network"
        ),
        pytest.param([{"network_id": "flat"}], [], id="network not routed"),
        pytest.param([{"network_id": "auto"}], [], id="whichever"),
        pytest.param([{}], [], id="neither, first"),
        pytest.param([{"port_id": BOUND}, {}], [{"of seg1"}], id="neither, later"),
        pytest.param(
            [{"port_id": BOUND}, {"network_id": "net"}],
            [{"of seg1"}, {"of seg1", "of seg2"}],
            id="two, both of which have to be reached",
        ),
    ],
)
def test_networks(wanted: list[dict[str, Any]], member_of: list[set[str]]) -> None:
    found = required(
        routed_networks_filter, neutron=neutron(), **request_fields(*wanted)
    )
    assert found == Requirements(member_of=[frozenset(each) for each in member_of])


def test_each_object_is_requested_once_per_request() -> None:
    counting = neutron()
    wanted = [{"port_id": FREE}, {"port_id": FREE}, {"network_id": "net"}]
    required(routed_networks_filter, neutron=counting, **request_fields(*wanted))
    assert counting.queried == [FREE, "net"]


@pytest.mark.parametrize(
    ("wanted", "named"),
    [({"port_id": BOUND}, "subnet sub1"), ({"network_id": "net"}, "network net")],
)
def test_segment_without_aggregate_fits_nowhere(
    wanted: dict[str, str], named: str
) -> None:
    with pytest.raises(NoValidHost, match=f"Aggregates not found for the {named}"):
        required(
            routed_networks_filter,
            neutron=neutron(),
            segments=lambda _uuid: frozenset(),
            **request_fields(wanted),
        )


def test_request_of_an_old_conductor_has_no_networks() -> None:
    found = required(routed_networks_filter, neutron=neutron(), on=(GATE,))
    assert found == Requirements()


def test_gate_without_neutron_stops_the_start() -> None:
    conf = options()
    check_network(conf, None)
    conf.set_override(GATE, True, group="scheduler")
    check_network(conf, neutron())
    with pytest.raises(ConfigurationError, match=r"\[neutron\]"):
        check_network(conf, None)
