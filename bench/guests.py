# SPDX-License-Identifier: Apache-2.0
"""Requests of guests with NUMA cells and PCI devices: recorded boots, changed."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable
from typing import Any

from .clouds import Cloud
from .compute_reports import PHYSNETS, PRODUCTS, PciPoolRow
from .requests import BenchRequest, Primitive, recorded

_VCPUS = 8
_MEMORY_MB = 16 * 1024
_PAGE_KB = 2048
_PAGE_MB = 2

#: Creates the request of a kind; requests of one kind differ in UUIDs only. The ids of
#: PCI requests are always new, as those of nova's API.
Guest = Callable[[Cloud, int], BenchRequest]


def pinned(_cloud: Cloud, kind: int = 0) -> BenchRequest:
    """Return 8 pinned CPUs in two cells, with 2 MiB pages; kinds differ in memory."""
    spec = _spec_of("numa-pinned")
    _set_cells(spec, 2, _MEMORY_MB + 2 * _PAGE_MB * kind)
    return _request("pinned, 2 cells", spec)


def sriov(_cloud: Cloud, kind: int = 0) -> BenchRequest:
    """Return a guest with a Neutron port on a trusted virtual function."""
    spec = _spec_of("pci-sriov-port")
    data = spec["nova_object.data"]
    data["numa_topology"] = None
    _flavor(spec)["extra_specs"] = {}
    _set_port(spec, "legacy", kind)
    return _request("SR-IOV port", spec)


def pinned_sriov(_cloud: Cloud, kind: int = 0) -> BenchRequest:
    """Return 8 pinned CPUs in one cell, and an SR-IOV port in the same cell."""
    spec = _spec_of("pci-sriov-port")
    _set_cells(spec, 1, _MEMORY_MB)
    _set_port(spec, "required", kind)
    return _request("pinned, SR-IOV", spec)


def alias(cloud: Cloud, kind: int = 0) -> BenchRequest:
    """Return a guest whose flavor requests a device that Placement tracks.

    Placement offers one candidate for each physical function that has one.
    """
    spec = _spec_of("pci-in-placement")
    data, request_id = spec["nova_object.data"], str(uuid.uuid4())
    vendor, product = PRODUCTS[0]
    pci_request = _pci_request(data)
    pci_request["request_id"] = request_id
    pci_request["spec"] = _kinds([{"vendor_id": vendor, "product_id": product}], kind)
    group = data["requested_resources"][0]["nova_object.data"]
    group["requester_id"] = f"{request_id}-0"
    group["resources"] = {f"CUSTOM_PCI_{vendor}_{product}".upper(): 1}
    offers = {
        record.uuid: [p.provider_uuid for p in each.pools if _is_of(p, vendor, product)]
        for record, each in zip(cloud.records, cloud.reports, strict=True)
    }
    return _request("PCI alias", spec, offers)


def _is_of(pool: PciPoolRow, vendor: str, product: str) -> bool:
    return (pool.vendor_id, pool.product_id) == (vendor, product)


def _spec_of(name: str) -> Primitive:
    spec: Primitive = copy.deepcopy(recorded(name)["message"]["args"]["spec_obj"])
    return spec


def _request(
    name: str, spec: Primitive, offers: dict[str, list[str]] | None = None
) -> BenchRequest:
    uuids = [str(uuid.uuid4())]
    spec["nova_object.data"].update(num_instances=1, instance_uuid=uuids[0])
    return BenchRequest(name, spec, uuids, offers or {})


def _flavor(spec: Primitive) -> dict[str, Any]:
    flavor: dict[str, Any] = spec["nova_object.data"]["flavor"]["nova_object.data"]
    return flavor


def _pci_request(data: dict[str, Any]) -> dict[str, Any]:
    requests = data["pci_requests"]["nova_object.data"]["requests"]
    first: dict[str, Any] = requests[0]["nova_object.data"]
    return first


def _set_cells(spec: Primitive, n_cells: int, memory_mb: int) -> None:
    """Give the guest dedicated CPUs and 2 MiB pages, divided among its cells."""
    flavor = _flavor(spec)
    flavor.update(vcpus=_VCPUS, memory_mb=memory_mb)
    flavor["extra_specs"] = {
        "hw:cpu_policy": "dedicated",
        "hw:numa_nodes": str(n_cells),
        "hw:mem_page_size": str(_PAGE_KB),
    }
    topology = spec["nova_object.data"]["numa_topology"]["nova_object.data"]
    model, n_cpus = topology["cells"][0], _VCPUS // n_cells
    topology["cells"] = []
    for number in range(n_cells):
        cell = copy.deepcopy(model)
        cell["nova_object.data"].update(
            id=number,
            pcpuset=list(range(number * n_cpus, (number + 1) * n_cpus)),
            memory=memory_mb // n_cells,
            pagesize=_PAGE_KB,
            cpu_thread_policy=None,
        )
        topology["cells"].append(cell)


def _set_port(spec: Primitive, numa_policy: str, kind: int) -> None:
    data, request_id = spec["nova_object.data"], str(uuid.uuid4())
    pci_request = _pci_request(data)
    port = {
        "physical_network": PHYSNETS[1],
        "remote_managed": "False",
        "trusted": "True",
    }
    pci_request.update(request_id=request_id, numa_policy=numa_policy)
    pci_request["spec"] = _kinds([port], kind)
    network = data["requested_networks"]["nova_object.data"]["objects"][0]
    network["nova_object.data"]["pci_request_id"] = request_id
    data["network_metadata"]["nova_object.data"]["physnets"] = [PHYSNETS[1]]


def _kinds(specs: list[dict[str, str]], kind: int) -> list[dict[str, str]]:
    """Return the alternatives, and one that differs by kind and matches no device."""
    return [*specs, {"vendor_id": "ffff", "product_id": f"{kind:04x}"}]


#: The measured guests, and whether their hosts need PCI pools.
GUESTS: tuple[tuple[Guest, bool], ...] = (
    (pinned, False),
    (sriov, True),
    (alias, True),
    (pinned_sriov, True),
)
