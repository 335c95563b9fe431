# SPDX-License-Identifier: Apache-2.0
"""Three hosts and a shared store, and the selections that a conductor gets for them."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from moorage.conductor import ConductorClient
from moorage.objects import Selection
from moorage.scheduler.placement.adapter import PlacementAdapter, Response
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.seed import Provider, seed
from moorage.scheduler.waiting import SystemWaiter

HOSTS = SOURCE, DEST, THIRD = [str(uuid.UUID(int=i)) for i in (1, 2, 3)]
NIC = str(uuid.UUID(int=11))  # a child of SOURCE
SHARE = str(uuid.UUID(int=9))
OWNER: dict[str, Any] = {"project_id": "project", "user_id": "user"}
N_VCPUS = 4

Resources = Mapping[str, Mapping[str, int]]


def new_uuid() -> str:
    return str(uuid.uuid4())


def seed_cloud(client: PlacementClient) -> None:
    vcpus = {"VCPU": {"total": N_VCPUS, "allocation_ratio": 1.0}}
    nic = {"SRIOV_NET_VF": {"total": 4}}
    seed(
        client,
        [
            *(Provider(u, f"host{u[-1]}", vcpus) for u in HOSTS),
            Provider(NIC, "nic", nic, parent_uuid=SOURCE),
            Provider(SHARE, "share", {"DISK_GB": {"total": 100}}),
        ],
    )


def conductor(adapter: PlacementAdapter) -> ConductorClient:
    class NoPauses(SystemWaiter):
        def sleep(self, seconds: float) -> None:
            assert 0 <= seconds < 4

    return ConductorClient(adapter, rng=random.Random(1), waiter=NoPauses())


def vcpus(host: str, amount: int = 1) -> dict[str, dict[str, int]]:
    return {host: {"VCPU": amount}}


def selection(resources: Resources | None, **mappings: list[str]) -> Selection:
    """A host's Selection that claims `resources`; None: it claims nothing."""
    request: dict[str, Any] | None = None
    if resources is not None:
        parts = {u: {"resources": dict(r)} for u, r in resources.items()}
        request = {"allocations": parts, "mappings": {"": list(parts), **mappings}}
    node = next(iter(resources or {DEST: {}}))
    return Selection(
        compute_node_uuid=node,
        service_host=f"host{node[-1]}",
        nodename=f"host{node[-1]}",
        cell_uuid=str(uuid.UUID(int=5)),
        allocation_request=json.dumps(request),
        allocation_request_version="1.36",
    )


def claimed(client: PlacementClient, resources: Resources) -> str:
    """A new consumer that holds `resources`, claimed as a scheduler claims."""
    consumer = new_uuid()
    change(client, consumer, resources)
    return consumer


def change(client: PlacementClient, consumer: str, resources: Resources) -> None:
    """Set a consumer's allocations to `resources`, as another client does."""
    generation = client.allocations(consumer).consumer_generation
    parts = {u: {"resources": dict(r)} for u, r in resources.items()}
    body = {"allocations": parts, "consumer_generation": generation, **OWNER}
    answer = client.put_allocations(consumer, body)
    assert answer.is_done, answer


def held(client: PlacementClient, consumer: str) -> Resources:
    return client.allocations(consumer).resources


class InterferingAdapter:
    """An adapter that lets another client act just before a write or read."""

    def __init__(self, adapter: PlacementAdapter) -> None:
        self._adapter = adapter
        self._meddling: list[tuple[str, Callable[[], object]]] = []

    def before(self, verb: str, do: Callable[[], object]) -> None:
        """Do this before the next request of `verb`, once."""
        self._meddling.append((verb, do))

    def _meddle(self, verb: str) -> None:
        for i, (when, do) in enumerate(self._meddling):
            if when == verb:
                del self._meddling[i]
                do()
                return

    def get(self, url: str, **more: Any) -> Response:
        self._meddle("get")
        return self._adapter.get(url, **more)

    def put(self, url: str, **more: Any) -> Response:
        self._meddle("put")
        return self._adapter.put(url, **more)

    def post(self, url: str, **more: Any) -> Response:
        self._meddle("post")
        return self._adapter.post(url, **more)

    def delete(self, url: str, **more: Any) -> Response:
        self._meddle("delete")
        return self._adapter.delete(url, **more)
