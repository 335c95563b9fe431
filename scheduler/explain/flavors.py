# SPDX-License-Identifier: Apache-2.0
"""Build requests for one instance of a flavor on any host, to count the capacity."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Hashable, Iterable
from typing import Final

from ...objects import (
    Flavor,
    ImageMeta,
    ImageMetaProps,
    InstancePCIRequest,
    InstancePCIRequests,
    RequestSpec,
    UnsetField,
)
from ..errors import InvalidRequest
from ..request import get_field
from ..request.guest_cells import cells_of_flavor

_ALIAS: Final = "pci_passthrough:alias"
#: The note of a volume-backed request; with this note, the capacity is still exact.
VOLUME_BACKED: Final = "volume-backed"


@dataclasses.dataclass(frozen=True, slots=True)
class FlavorRequest:
    """A request for one instance of a flavor on any host.

    Attributes
    ----------
    notes : tuple of str
        What nova's API would add to the request, and this request lacks.
    """

    spec_obj: RequestSpec
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the flavor; "" if it has none."""
        return get_field(self.spec_obj.flavor, "name") or ""

    @property
    def is_volume_backed(self) -> bool:
        """Whether instances boot from a volume."""
        return VOLUME_BACKED in self.notes

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The memory in MiB, the vCPUs, and the local disk in GB.

        The root disk of a volume-backed instance is not local.
        """
        flavor = self.spec_obj.flavor
        root_gb = 0 if self.is_volume_backed else flavor.root_gb
        return flavor.memory_mb, flavor.vcpus, root_gb + flavor.ephemeral_gb

    def for_project(self, project_id: str) -> FlavorRequest:
        """Return the same request of a project."""
        spec_obj = copy.copy(self.spec_obj)
        spec_obj.project_id = project_id
        return dataclasses.replace(self, spec_obj=spec_obj)


def request_of_flavor(flavor: Flavor) -> FlavorRequest:
    """Return the request of a flavor, with an image that has no properties.

    The NUMA cells of the request are those that nova's API computes. Its PCI devices
    are unknown: only nova's configuration says which devices an alias means.
    """
    notes = []
    topology = None
    try:
        topology = cells_of_flavor(flavor)
    except InvalidRequest as e:
        notes.append(str(e))
    if (get_field(flavor, "extra_specs") or {}).get(_ALIAS):
        notes.append(
            f"the PCI devices of {_ALIAS} are not counted: nova's configuration has "
            "them; recent decisions know them"
        )
    spec_obj = RequestSpec(
        flavor=flavor,
        image=ImageMeta(properties=ImageMetaProps()),
        num_instances=1,
        project_id=None,
        user_id=None,
        availability_zone=None,
        scheduler_hints={},
        ignore_hosts=None,
        force_hosts=None,
        force_nodes=None,
        instance_group=None,
        requested_destination=None,
        numa_topology=topology,
        pci_requests=None,
        is_bfv=False,
    )
    return FlavorRequest(spec_obj, tuple(notes))


def requests_of_decisions(stored: Iterable[RequestSpec]) -> list[FlavorRequest]:
    """Return a request for each distinct flavor of stored requests.

    Volume-backed boots of a flavor, which need no root disk, have a separate request. A
    returned request has the flavor, its NUMA cells, and its PCI devices as a stored
    request has them, without the image, ports, hints, server groups, zones and hosts. A
    stored request whose flavor lacks a field was refused, and is omitted here.
    """
    requests: dict[Hashable, FlavorRequest] = {}
    for spec_obj in stored:
        flavor = get_field(spec_obj, "flavor")
        if flavor is not None:
            with contextlib.suppress(UnsetField):
                is_bfv = bool(get_field(spec_obj, "is_bfv"))
                key = _identity(flavor), is_bfv
                if key not in requests:
                    notes = (VOLUME_BACKED,) if is_bfv else ()
                    requests[key] = FlavorRequest(
                        _request_anywhere(flavor, spec_obj), notes
                    )
    return list(requests.values())


def _identity(flavor: Flavor) -> Hashable:
    specs = get_field(flavor, "extra_specs") or {}
    sizes = (flavor.vcpus, flavor.memory_mb, flavor.root_gb, flavor.ephemeral_gb)
    return get_field(flavor, "name"), sizes, flavor.swap, tuple(sorted(specs.items()))


def _request_anywhere(flavor: Flavor, spec_obj: RequestSpec) -> RequestSpec:
    request = request_of_flavor(flavor).spec_obj
    request.is_bfv = bool(get_field(spec_obj, "is_bfv"))
    pci_requests = get_field(get_field(spec_obj, "pci_requests"), "requests") or ()
    aliases = [
        pci_request
        for pci_request in pci_requests
        if pci_request.source != InstancePCIRequest.NEUTRON_PORT
    ]
    if aliases:
        request.pci_requests = InstancePCIRequests(requests=aliases)
        prefixes = tuple(alias.request_id for alias in aliases if alias.request_id)
        request.requested_resources = [
            group
            for group in get_field(spec_obj, "requested_resources") or ()
            if prefixes and (group.requester_id or "").startswith(prefixes)
        ]
    return request
