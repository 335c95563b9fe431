# SPDX-License-Identifier: Apache-2.0
"""Small clouds to decide on: an inventory, requests, and what Placement then holds."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from moorage.objects import Flavor, ImageMeta, ImageMetaProps, RequestSpec, Selection
from moorage.scheduler.placement.candidates import AllocationCandidates
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.offers import Offer

CONTEXT = {"request_id": "req-test", "project_id": "project", "user_id": "user"}


def host(name: str, **changes: Any) -> dict[str, Any]:
    """A host of an inventory: 8 vCPUs, 16 GiB, 100 GB."""
    plain = {
        "host": name,
        "cell": "cell1",
        "vcpus": 8,
        "memory_mb": 16384,
        "local_gb": 100,
        "supported_instances": [["x86_64", "kvm", "hvm"]],
    }
    return {**plain, **changes}


def inventory(*hosts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An inventory of these hosts in the cells cell1 and cell2."""
    cells = [{"name": "cell1"}, {"name": "cell2"}]
    return {"cells": cells, "hosts": list(hosts), **more}


def write_inventory(folder: Path, *hosts: dict[str, Any], **more: Any) -> Path:
    """Write an inventory to a file; JSON is YAML."""
    path = folder / "inventory.yaml"
    path.write_text(json.dumps(inventory(*hosts, **more)))
    return path


def request(**changes: Any) -> RequestSpec:
    """A request for one instance: 1 vCPU, 1 GiB, 10 GB."""
    sizes = {"vcpus": 1, "memory_mb": 1024, "root_gb": 10, "ephemeral_gb": 0, "swap": 0}
    sizes = {name: changes.pop(name, value) for name, value in sizes.items()}
    flavor = Flavor(
        name="plain",
        flavorid="1",
        extra_specs=changes.pop("extra_specs", {}),
        **sizes,
    )
    fields: dict[str, Any] = {
        "flavor": flavor,
        "image": ImageMeta(properties=ImageMetaProps()),
        "num_instances": 1,
        "project_id": "project",
        "user_id": "user",
        "scheduler_hints": {},
        "availability_zone": None,
        "instance_group": None,
        "ignore_hosts": None,
        "force_hosts": None,
        "force_nodes": None,
        "requested_destination": None,
        "numa_topology": None,
        "pci_requests": None,
        "is_bfv": False,
    }
    return RequestSpec(**{**fields, **changes})


def offer(body: Any) -> Offer:
    """What Placement answered, all of it to be had."""
    return offer_of(AllocationCandidates.parse(body, limit=None, version="1.36"))


def offer_of(candidates: AllocationCandidates) -> Offer:
    """The same, of an answer that was read."""
    is_open = np.ones(candidates.n_requests, bool)
    return Offer(candidates, is_open, asked=0, is_cut=False, _taken={}, _answers=())


def new_uuids(count: int = 1) -> list[str]:
    """UUIDs of instances that are not there yet."""
    return [str(uuid.uuid4()) for _ in range(count)]


def claimed(selection: Selection) -> dict[str, dict[str, int]]:
    """The resources of a selection by provider, as Placement should hold them."""
    allocations = json.loads(selection.allocation_request)["allocations"]
    return {uuid: dict(part["resources"]) for uuid, part in allocations.items()}


def usages(
    client: PlacementClient, providers: Iterable[str]
) -> dict[str, Counter[str]]:
    """What Placement says is used, by provider and resource class."""
    found: dict[str, Counter[str]] = {}
    for provider in providers:
        body: Any = client.read(f"/resource_providers/{provider}/usages")
        found[provider] = +Counter(body["usages"])
    return found


def summed(held: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, Counter[str]]:
    """What allocations come to, by provider and resource class."""
    totals: dict[str, Counter[str]] = {}
    for allocations in held:
        for provider, resources in allocations.items():
            totals.setdefault(provider, Counter()).update(resources)
    return totals
