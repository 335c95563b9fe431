# SPDX-License-Identifier: Apache-2.0
"""Requests to measure with: recorded ones, changed where a plugin wants to be asked."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from moorage.objects import RequestSpec, Serializer

from .clouds import Cloud, stable_uuid

WIRE = Path(__file__).parents[1] / "examples/data/wire"
CONTEXT = {"request_id": "req-bench", "project_id": "bench", "user_id": "bench"}

_MAX_MEMBERS = 50

Primitive = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """What a scheduler is asked, as it crosses the wire.

    Attributes
    ----------
    offers : dict
        Where Placement tracks the devices that are asked for: those that each compute
        node offers, a candidate each. A node that is not there has one without.
    """

    name: str
    primitive: Primitive
    instance_uuids: list[str]
    offers: dict[str, list[str]] = field(default_factory=dict)

    def spec(self) -> RequestSpec:
        """Return a request of its own: nothing is kept from one run to the next."""
        found = Serializer().deserialize_entity(CONTEXT, self.primitive)
        assert isinstance(found, RequestSpec)
        return found


def recorded(name: str) -> dict[str, Any]:
    """Return a recorded exchange."""
    exchange: dict[str, Any] = json.loads((WIRE / f"{name}.json").read_text("utf-8"))
    return exchange


def _spec_of(name: str) -> Primitive:
    spec: Primitive = recorded(name)["message"]["args"]["spec_obj"]
    return spec


def plain(_cloud: Cloud, n_instances: int = 1) -> Request:
    """Return a recorded boot of nothing special, from an x86_64 image."""
    uuids = [stable_uuid(f"new {i}") for i in range(n_instances)]
    primitive = _spec_of("plain-boot")
    data = primitive["nova_object.data"]
    data.update(num_instances=n_instances, instance_uuid=uuids[0])
    return Request("plain", primitive, uuids)


def with_extra_specs(cloud: Cloud, n_instances: int = 1) -> Request:
    """Return a boot whose flavor asks for capabilities of the host."""
    asked = plain(cloud, n_instances)
    asked.primitive["nova_object.data"]["flavor"]["nova_object.data"]["extra_specs"] = {
        "capabilities:hypervisor_version": ">= 7000000",
        "capabilities:cpu_info:arch": "x86_64",
    }
    return Request("capabilities", asked.primitive, asked.instance_uuids)


def of_group(policy: str) -> Callable[[Cloud, int], Request]:
    """Return what makes a boot into a server group that has members already."""

    def asked_of(cloud: Cloud, n_instances: int = 1) -> Request:
        asked = plain(cloud, n_instances)
        hosts = [r.host for r in cloud.records[:: max(len(cloud) // _MAX_MEMBERS, 2)]]
        members = [cloud.instances[host][0] for host in hosts]
        group = copy.deepcopy(_group())
        group["nova_object.data"].update(
            policy=policy, hosts=hosts, members=members + asked.instance_uuids
        )
        if "policies" in group["nova_object.data"]:
            group["nova_object.data"]["policies"] = [policy]
        asked.primitive["nova_object.data"]["instance_group"] = group
        return Request(policy, asked.primitive, asked.instance_uuids)

    return asked_of


def _group() -> Primitive:
    spec = _spec_of("server-group-anti-affinity")
    group: Primitive = spec["nova_object.data"]["instance_group"]
    return group


Asks = Callable[[Cloud, int], Request]

#: The requests of which whole decisions are measured.
DECISIONS: tuple[Asks, ...] = (plain, of_group("anti-affinity"))

#: What a plugin is asked, by its name. One that is not here is asked a plain boot,
#: which costs nothing where the plugin has nothing to look at.
OF_PLUGIN: Mapping[str, Asks] = MappingProxyType(
    {
        "ComputeCapabilitiesFilter": with_extra_specs,
        "ServerGroupAffinityFilter": of_group("affinity"),
        "ServerGroupAntiAffinityFilter": of_group("anti-affinity"),
        "ServerGroupSoftAffinityWeigher": of_group("soft-affinity"),
        "ServerGroupSoftAntiAffinityWeigher": of_group("soft-anti-affinity"),
    }
)


def for_plugin(name: str, cloud: Cloud) -> Request:
    """Return a request that gives a plugin something to do."""
    return OF_PLUGIN.get(name, plain)(cloud, 1)
