# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategy for Placement's candidates with NUMA cells and PCI devices."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from moorage.objects import (
    InstanceNUMATopology,
    InstancePCIRequest,
    NetworkMetadata,
    NUMATopology,
    PciDevicePool,
    RequestGroup,
    RequestSpec,
)
from moorage.scheduler.hosts import HostRecord
from moorage.scheduler.hosts.numa import HostTopology
from moorage.scheduler.hosts.pci import HostPools
from moorage.testing import builders

from .guests import random_guest, random_pci_requests
from .hardware import (
    PCI_PROVIDERS,
    Model,
    random_model,
    random_pools,
    random_topology,
)

#: Provider UUIDs by request group, as a candidate of Placement has them.
Mappings = Mapping[str, Sequence[str]]


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """A compute's report of its cells and devices."""

    host: str
    numa_topology: NUMATopology | None
    pci_pools: Sequence[PciDevicePool]
    cpu_allocation_ratio: float = 1.0
    ram_allocation_ratio: float = 1.0

    def texts(self) -> dict[str, str | None]:
        """Return the texts of two columns of a compute node in nova's database."""
        topology = None
        if self.numa_topology is not None:
            topology = json.dumps(self.numa_topology.obj_to_primitive())
        pools = builders.pci_pools(*self.pci_pools).obj_to_primitive()
        return {"numa_topology": topology, "pci_stats": json.dumps(pools)}

    def record(self) -> HostRecord:
        """Return the host's record for the host table."""
        texts = self.texts()
        return builders.host(
            host=self.host,
            cpu_allocation_ratio=self.cpu_allocation_ratio,
            ram_allocation_ratio=self.ram_allocation_ratio,
            numa_topology=texts["numa_topology"]
            and HostTopology.read(texts["numa_topology"]),
            pci_stats=HostPools.read(texts["pci_stats"]),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Offers:
    """Hosts, requests, and the candidates of each host for each request.

    Attributes
    ----------
    mappings : sequence of sequence of sequence
        By host, then by request: the mappings of 1 to 3 candidates.
    """

    reports: Sequence[Report]
    requests: Sequence[RequestSpec]
    mappings: Sequence[Sequence[Sequence[Mappings]]]

    def __len__(self) -> int:
        """Return the number of hosts times requests times candidates."""
        return sum(len(each) for of_host in self.mappings for each in of_host)


def offers(
    *, n_hosts: int = 2, n_requests: int = 3, most_candidates: int = 3
) -> st.SearchStrategy[Offers]:
    """Draw hosts of one model or two, and requests that nearly fit the first of them.

    Hosts may have no topology, requests no cells or no devices. Everything follows from
    one seed, so that no two draws are equal; a smaller seed is not simpler.
    """
    return st.integers(0, 2**32 - 1).map(
        lambda seed: random_offers(
            random.Random(seed), n_hosts, n_requests, most_candidates
        )
    )


def random_offers(
    rng: random.Random, n_hosts: int, n_requests: int, most_candidates: int
) -> Offers:
    """Return hosts, requests and candidates; see `offers`."""
    models = [random_model(rng) for _ in range(rng.choice([1, 1, 2]))]
    reports = [
        random_report(rng, f"h{number}", models[number % len(models)])
        for number in range(n_hosts)
    ]
    requests = [random_request(rng, reports[0]) for _ in range(n_requests)]
    return Offers(
        reports,
        requests,
        [
            [
                _candidates(rng, report, spec, rng.randint(1, most_candidates))
                for spec in requests
            ]
            for report in reports
        ],
    )


def random_report(rng: random.Random, name: str, model: Model) -> Report:
    """Return a host of a model; few have no topology."""
    topology = random_topology(rng, model)
    return Report(
        name,
        topology if rng.random() < 0.95 else None,
        random_pools(rng, model.n_cells),
        cpu_allocation_ratio=rng.choice([1.0, 1.5, 4.0]),
        ram_allocation_ratio=rng.choice([1.0, 1.0, 1.5]),
    )


def random_request(rng: random.Random, near: Report) -> RequestSpec:
    """Return a request that nearly fits a host: cells, devices, or mostly both."""
    wanted = rng.choice(["both", "both", "both", "cells", "cells", "devices"])
    guest, devices = None, list[InstancePCIRequest]()
    if wanted != "devices":
        guest = random_guest(rng, near.numa_topology or _ANY_HOST)
    if wanted != "cells":
        devices = random_pci_requests(rng, near.pci_pools)
    spec = builders.spec(
        numa_topology=guest,
        pci_requests=builders.pci_requests(*devices),
        extra_specs=_extra_specs(rng, guest),
        requested_resources=_groups(devices) if rng.random() < 0.5 else [],
    )
    physnets, is_tunneled = rng.choice(_NETWORKS)
    if physnets is not None:
        spec.network_metadata = NetworkMetadata(
            physnets=set(physnets), tunneled=is_tunneled
        )
    return spec


_ANY_HOST = builders.numa_topology(builders.numa_cell(0), builders.numa_cell(1))

_NETWORKS: Sequence[tuple[Sequence[str] | None, bool]] = (
    *[(None, False)] * 4,
    ((), False),
    (("net1",), False),
    (("net1", "net3"), True),
    ((), True),
)


def _extra_specs(
    rng: random.Random, guest: InstanceNUMATopology | None
) -> dict[str, str]:
    """Return the flavor's CPU policies: none, the guest's, rarely others."""
    if rng.random() < 0.05:
        return {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "require"}
    if guest is None or rng.random() < 0.1:
        return {}
    policies = {
        "hw:cpu_policy": guest.cells[0].cpu_policy,
        "hw:cpu_thread_policy": guest.cells[0].cpu_thread_policy,
    }
    return {key: value for key, value in policies.items() if value is not None}


def _groups(devices: Sequence[InstancePCIRequest]) -> list[RequestGroup]:
    """Return nova's request groups for Placement: one a device of an alias."""
    return [
        RequestGroup(
            requester_id=f"{request.request_id}-{number}",
            resources={"CUSTOM_PCI": 1},
            provider_uuids=[],
        )
        for request in devices
        if request.alias_name is not None
        for number in range(request.count)
    ]


def _candidates(
    rng: random.Random, report: Report, spec: RequestSpec, count: int
) -> list[Mappings]:
    providers = _providers(report, spec)
    groups = [group.requester_id for group in spec.requested_resources]
    return [
        {
            "": [builders.node_uuid(report.host)],
            **{group: [rng.choice(providers)] for group in groups},
        }
        for _ in range(count)
    ]


def _providers(report: Report, spec: RequestSpec) -> list[str]:
    """Return the providers to draw from: mostly those of matching devices."""
    wanted = {
        each["product_id"].lower()
        for request in spec.pci_requests.requests
        for each in request.spec
    }
    flat = [pool.to_dict() for pool in report.pci_pools]
    every: list[str | None] = [pool.get("rp_uuid") for pool in flat]
    matching = [
        pool.get("rp_uuid") for pool in flat if pool["product_id"].lower() in wanted
    ]
    return [*filter(None, matching * 4 + every), PCI_PROVIDERS[-1]]
