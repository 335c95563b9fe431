# SPDX-License-Identifier: Apache-2.0
"""The resources that an instance of a request consumes on its host once claimed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from oslo_config import cfg

from ...objects import NUMATopologyLimits
from ..conf.compute import packs_cells
from ..hosts import Consumption, Limits, properties_of_image
from ..hosts.fitting import Need
from ..request import Request

_MIB_PER_GIB = 1024

#: Providers by request group, as a candidate maps them.
Mappings = Mapping[str, Sequence[str]]


class Needs:
    """The consumption of an instance, of which `on_host` makes that on one host.

    Parameters
    ----------
    request : Request
        All its instances are alike.
    """

    def __init__(self, request: Request, conf: cfg.ConfigOpts) -> None:
        flavor = request.spec_obj.flavor
        self._need = Need(
            request.numa, request.pci_requests, is_packed=packs_cells(conf)
        )
        self._plain = Consumption(
            memory_mb=flavor.memory_mb,
            disk_mb=(flavor.root_gb + flavor.ephemeral_gb) * _MIB_PER_GIB,
            vcpus=flavor.vcpus,
            image_properties=properties_of_image(request.field("image")),
        )

    def on_host(
        self, limits: Mapping[str, object], mappings: Mappings | None
    ) -> Consumption:
        """Return what an instance consumes on a host.

        Parameters
        ----------
        limits : mapping
            The host's limits from the filters; see `BaseHostFilter.selection_limits`.
        mappings : mapping or None
            Those of the claimed candidate; None: nothing was claimed.
        """
        if not self._need:
            return self._plain
        need = self._need.assigned(mappings).within(_limits(limits))
        return dataclasses.replace(self._plain, need=need)


def _limits(limits: Mapping[str, object]) -> Limits | None:
    of_cells = limits.get("numa_topology")
    return Limits.read(of_cells) if isinstance(of_cells, NUMATopologyLimits) else None


def fill_provider_mapping(request: Request, mappings: Mappings) -> None:
    """Set the providers of each request group, as nova does after a claim.

    A group that the candidate does not map is unchanged.
    """
    for group in request.field("requested_resources") or ():
        providers = mappings.get(group.requester_id or "")
        if providers is not None:
            group.provider_uuids = list(providers)
