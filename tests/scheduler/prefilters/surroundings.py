# SPDX-License-Identifier: Apache-2.0
"""The surroundings of prefilters in tests, and what they then require."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from moorage.scheduler.hosts import HostAggregate
from moorage.scheduler.hosts.aggregates import AggregateMap
from moorage.scheduler.placement.query import Requirements
from moorage.scheduler.prefilters import (
    NetworkClient,
    NetworkLookup,
    Prefilter,
    PrefilterRequest,
)

from ...conftest import options, spec


def required(
    prefilter: Prefilter,
    *,
    aggregates: Mapping[str, Mapping[str, str]] | None = None,
    neutron: NetworkClient | None = None,
    segments: Callable[[str], frozenset[str]] = lambda uuid: frozenset({f"of {uuid}"}),
    min_service_version: int = 0,
    on: tuple[str, ...] = (),
    **fields: Any,
) -> Requirements:
    """Return what a prefilter adds for a request with these fields, gates `on`."""
    conf = options()
    for gate in on:
        conf.set_override(gate, True, group="scheduler")
    known = AggregateMap()
    for number, (uuid, metadata) in enumerate((aggregates or {}).items()):
        known.put(HostAggregate(number, uuid, uuid, frozenset(), metadata))
    spec_obj = spec(**fields)
    before = spec_obj.obj_to_primitive()
    requirements = Requirements()
    prefilter(
        PrefilterRequest(
            spec_obj,
            requirements,
            known,
            conf,
            network=NetworkLookup(neutron, segments) if neutron else None,
            min_service_version=min_service_version,
        )
    )
    assert spec_obj.obj_to_primitive() == before, "a prefilter writes to no request"
    return requirements


def root(*traits: str) -> Requirements:
    """Return requirements of the root provider alone."""
    return Requirements(root_required=set(traits))


class Neutron:
    """A Neutron in memory that records its queries."""

    def __init__(self, ports: Any = None, subnets: Any = None, networks: Any = None):
        self.ports, self.subnets = ports or {}, subnets or {}
        self.networks = networks or {}
        self.queried: list[str] = []

    def show_port(self, port: str) -> Mapping[str, Any]:
        self.queried.append(port)
        return {"port": self.ports[port]}

    def show_subnet(self, subnet: str) -> Mapping[str, Any]:
        self.queried.append(subnet)
        return {"subnet": self.subnets[subnet]}

    def list_subnets(self, *, network_id: str) -> Mapping[str, Any]:
        self.queried.append(network_id)
        return {"subnets": [self.subnets[s] for s in self.networks[network_id]]}
