# SPDX-License-Identifier: Apache-2.0
"""The requests that are measured: recorded ones, changed as a plugin needs them."""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from moorage.objects import RequestSpec, Serializer

from .clouds import Cloud, stable_uuid

WIRE = Path(__file__).parents[1] / "examples/data/wire"
CONTEXT = {"request_id": "req-bench", "project_id": "bench", "user_id": "bench"}

_MAX_MEMBERS = 50

#: vCPUs, MiB of memory, GB of disk.
Flavor = tuple[int, int, int]

FLAVORS: Final[tuple[Flavor, ...]] = (
    (1, 1024, 10),
    (1, 2048, 10),
    (2, 2048, 20),
    (2, 4096, 20),
    (2, 8192, 20),
    (4, 4096, 40),
    (4, 8192, 40),
    (4, 16384, 40),
)

Primitive = dict[str, Any]


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """A request in its wire format.

    Attributes
    ----------
    offers : dict
        The devices of each compute node that Placement offers, one candidate for each.
        A node without an entry has one candidate without a device.
    """

    name: str
    primitive: Primitive
    instance_uuids: list[str]
    offers: dict[str, list[str]] = field(default_factory=dict)

    def spec(self) -> RequestSpec:
        """Return a new request spec, so that no run affects the next."""
        spec = Serializer().deserialize_entity(CONTEXT, self.primitive)
        assert isinstance(spec, RequestSpec)
        return spec


def recorded(name: str) -> dict[str, Any]:
    """Return a recorded exchange."""
    exchange: dict[str, Any] = json.loads((WIRE / f"{name}.json").read_text("utf-8"))
    return exchange


def _spec_of(name: str) -> Primitive:
    spec: Primitive = recorded(name)["message"]["args"]["spec_obj"]
    return spec


def plain(_cloud: Cloud, n_instances: int = 1) -> BenchRequest:
    """Return a recorded plain boot from an x86_64 image."""
    uuids = [stable_uuid(f"new {i}") for i in range(n_instances)]
    primitive = _spec_of("plain-boot")
    data = primitive["nova_object.data"]
    data.update(num_instances=n_instances, instance_uuid=uuids[0])
    return BenchRequest("plain", primitive, uuids)


def of_flavor(cloud: Cloud, flavor: Flavor, n_instances: int = 1) -> BenchRequest:
    """Return a plain boot of new instances, which no earlier request had."""
    request = plain(cloud, n_instances)
    vcpus, memory_mb, root_gb = flavor
    request.primitive["nova_object.data"]["flavor"]["nova_object.data"].update(
        vcpus=vcpus, memory_mb=memory_mb, root_gb=root_gb, ephemeral_gb=0
    )
    uuids = [str(uuid.uuid4()) for _ in range(n_instances)]
    request.primitive["nova_object.data"]["instance_uuid"] = uuids[0]
    return BenchRequest("plain, of a flavor", request.primitive, uuids)


def with_extra_specs(cloud: Cloud, n_instances: int = 1) -> BenchRequest:
    """Return a boot whose flavor requires capabilities of the host."""
    request = plain(cloud, n_instances)
    flavor = request.primitive["nova_object.data"]["flavor"]
    flavor["nova_object.data"]["extra_specs"] = {
        "capabilities:hypervisor_version": ">= 7000000",
        "capabilities:cpu_info:arch": "x86_64",
    }
    return BenchRequest("capabilities", request.primitive, request.instance_uuids)


#: Creates a request for a number of instances in a cloud.
MakeRequest = Callable[[Cloud, int], BenchRequest]


def of_group(policy: str) -> MakeRequest:
    """Return a function that creates boots into a server group with members."""

    def make(cloud: Cloud, n_instances: int = 1) -> BenchRequest:
        request = plain(cloud, n_instances)
        hosts = [r.host for r in cloud.records[:: max(len(cloud) // _MAX_MEMBERS, 2)]]
        members = [cloud.instances[host][0] for host in hosts]
        group = copy.deepcopy(_group())
        group["nova_object.data"].update(
            policy=policy, hosts=hosts, members=members + request.instance_uuids
        )
        if "policies" in group["nova_object.data"]:
            group["nova_object.data"]["policies"] = [policy]
        request.primitive["nova_object.data"]["instance_group"] = group
        return BenchRequest(policy, request.primitive, request.instance_uuids)

    return make


def _group() -> Primitive:
    spec = _spec_of("server-group-anti-affinity")
    group: Primitive = spec["nova_object.data"]["instance_group"]
    return group


#: The requests whose whole decisions are measured.
DECISIONS: tuple[MakeRequest, ...] = (plain, of_group("anti-affinity"))

#: The request for each plugin by its name; the others get a plain boot, which costs
#: nothing if it has nothing that the plugin reads.
_OF_PLUGIN: Mapping[str, MakeRequest] = MappingProxyType(
    {
        "ComputeCapabilitiesFilter": with_extra_specs,
        "ServerGroupAffinityFilter": of_group("affinity"),
        "ServerGroupAntiAffinityFilter": of_group("anti-affinity"),
        "ServerGroupSoftAffinityWeigher": of_group("soft-affinity"),
        "ServerGroupSoftAntiAffinityWeigher": of_group("soft-anti-affinity"),
    }
)


def for_plugin(name: str, cloud: Cloud) -> BenchRequest:
    """Return a request that the plugin has to evaluate."""
    return _OF_PLUGIN.get(name, plain)(cloud, 1)
