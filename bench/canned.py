# SPDX-License-Identifier: Apache-2.0
"""A Placement that costs nothing: every host fits, and every claim is granted.

For benchmarks only. What it and the reading of its answers take is in the decision
records' "placement" and "claim", which are reported apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .asked import Request
from .clouds import Cloud

_MANY = 1_000_000


@dataclass(frozen=True, slots=True)
class Answer:
    """A response as far as it is read."""

    status_code: int
    text: str = ""
    body: Any = None

    def json(self) -> Any:
        return self.body


_DONE = Answer(204)


class CannedPlacement:
    """Answer every question for candidates with all hosts of a cloud."""

    def __init__(self, cloud: Cloud, request: Request) -> None:
        resources = resources_of(request)
        nodes = [record.uuid for record in cloud.records]
        self._candidates = Answer(
            200,
            "{}",
            {
                "allocation_requests": [_fits(node, resources) for node in nodes],
                "provider_summaries": {node: _summary(node) for node in nodes},
            },
        )

    def get(self, url: str, **options: object) -> Answer:
        if url.startswith("/allocation_candidates"):
            return self._candidates
        version = {"min_version": "1.0", "max_version": "1.39"}
        return Answer(200, "{}", {"versions": [{"id": "v1.0", **version}]})

    def put(self, url: str, **options: object) -> Answer:
        return _DONE

    def post(self, url: str, **options: object) -> Answer:
        return _DONE

    def delete(self, url: str, **options: object) -> Answer:
        return _DONE


def resources_of(request: Request) -> dict[str, int]:
    """Return what one instance of a request takes in Placement."""
    flavor = request.primitive["nova_object.data"]["flavor"]["nova_object.data"]
    return {
        "VCPU": flavor["vcpus"],
        "MEMORY_MB": flavor["memory_mb"],
        "DISK_GB": flavor["root_gb"] + flavor["ephemeral_gb"],
    }


def _fits(node: str, resources: dict[str, int]) -> dict[str, Any]:
    allocations = {node: {"resources": dict(resources)}}
    return {"allocations": allocations, "mappings": {"": [node]}}


def _summary(node: str) -> dict[str, Any]:
    amounts = {"capacity": _MANY, "used": 0}
    return {
        "resources": dict.fromkeys(("VCPU", "MEMORY_MB", "DISK_GB"), amounts),
        "traits": [],
        "parent_provider_uuid": None,
        "root_provider_uuid": node,
    }
