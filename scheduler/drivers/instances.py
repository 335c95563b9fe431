# SPDX-License-Identifier: Apache-2.0
"""The instances of a decision: what each consumes, and the host that it got."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Self

from oslo_config import cfg

from ...objects import NUMATopologyLimits, RequestSpec
from ...weighers.lifetime_model import group_of
from ..conf.compute import packs_cells
from ..hosts import Consumption, HostBatch, Limits, properties_of_image
from ..hosts.fitting.need import Need
from ..request import Request
from .ranking import Ranking
from .record import WeighedHost

#: The candidate of an instance for which nothing is claimed.
NO_CANDIDATE: Final = -1

NOT_ENOUGH: Final = "There are not enough hosts available."

_MIB_PER_GIB = 1024

#: Providers by request group, as a candidate maps them.
Mappings = Mapping[str, Sequence[str]]


def spec_of_instance(spec_obj: RequestSpec, uuid: str) -> RequestSpec:
    """Return the request for one instance; the given request is not modified."""
    if "instance_uuid" in spec_obj and spec_obj.instance_uuid == uuid:
        return spec_obj
    copied = copy.copy(spec_obj)
    copied.instance_uuid = uuid
    Request.share(spec_obj, copied)
    return copied


def consumption_of(request: Request, conf: cfg.ConfigOpts) -> Consumption:
    """Return what each instance of a request consumes, apart from the chosen host.

    `consumption_on_host` adds the NUMA cells and PCI devices of a host.
    """
    flavor = request.spec_obj.flavor
    need = None
    if request.numa is not None or request.pci_requests:
        need = Need(request.numa, request.pci_requests, is_packed=packs_cells(conf))
    return Consumption(
        memory_mb=flavor.memory_mb,
        disk_mb=(flavor.root_gb + flavor.ephemeral_gb) * _MIB_PER_GIB,
        vcpus=flavor.vcpus,
        image_properties=properties_of_image(request.image),
        need=need,
        group=group_of(request) if conf.filter_scheduler.lifetime_model else None,
    )


def consumption_on_host(
    consumption: Consumption,
    limits: Mapping[str, object],
    mappings: Mappings | None,
) -> Consumption:
    """Return what an instance consumes on one host.

    Parameters
    ----------
    limits : mapping
        The host's limits from the filters; see `BaseHostFilter.selection_limits`.
    mappings : mapping or None
        The mappings of the claimed candidate; None: nothing was claimed.
    """
    if consumption.need is None:
        return consumption
    numa_limits = limits.get("numa_topology")
    cell_limits = None
    if isinstance(numa_limits, NUMATopologyLimits):
        cell_limits = Limits.read(numa_limits)
    need = consumption.need.assigned(mappings).within(cell_limits)
    return dataclasses.replace(consumption, need=need)


def fill_provider_mapping(request: Request, mappings: Mappings) -> None:
    """Set the providers of each request group, as nova does after a claim.

    A group that is not in `mappings` is not changed.
    """
    for group in request.requested_resources:
        providers = mappings.get(group.requester_id or "")
        if providers is not None:
            group.provider_uuids = list(providers)


#: The attributes of a chosen host that are read after placing: some become part of the
#: selection, others are compared with the host's state just before the claim.
_ATTRIBUTES = (
    "uuid",
    "host",
    "nodename",
    "cell_uuid",
    "aggregates",
    "disabled",
    "forced_down",
)


def read_attributes(hosts: HostBatch, index: int) -> dict[str, Any]:
    """Return the attributes of a chosen host."""
    return {name: hosts.value(name, index) for name in _ATTRIBUTES}


@dataclasses.dataclass(frozen=True, slots=True)
class Assignment:
    """An instance with the host and the candidate that are planned for it.

    Attributes
    ----------
    host : mapping
        Attributes of the host by name, as `read_attributes` returns them.
    candidate : int
        The candidate's number in the offer; `NO_CANDIDATE`: nothing is claimed.
    limits : mapping
        The host's limits from the filters.
    """

    instance_uuid: str
    host: Mapping[str, Any]
    candidate: int
    limits: Mapping[str, object]
    consumption: Consumption

    def value(self, name: str) -> str:
        """Return an attribute of the host."""
        return str(self.host[name])


@dataclasses.dataclass(frozen=True, slots=True)
class PlacedInstance(Assignment):
    """An instance that has its host.

    Attributes
    ----------
    top_hosts : tuple of WeighedHost
        The best hosts of the ranking, for the record; may be empty.
    ranking : Ranking or None
        The ranking in which the host is at `index`. It takes megabytes, and is None
        for an instance that is neither the one placed last nor the last one of the
        request.
    """

    weight: float
    top_hosts: tuple[WeighedHost, ...]
    index: int
    ranking: Ranking | None

    def without_ranking(self) -> Self:
        """Return a copy without the ranking, which frees its hosts."""
        return dataclasses.replace(self, ranking=None)


def hosts_after(hosts: HostBatch, placed: Iterable[Assignment]) -> HostBatch:
    """Return the hosts, with each placed instance counted on its host."""
    for instance in placed:
        [index] = hosts.matches("uuid", [instance.value("uuid")]).nonzero()[0]
        hosts = hosts.with_instance(
            int(index), instance.instance_uuid, instance.consumption
        )
    return hosts
