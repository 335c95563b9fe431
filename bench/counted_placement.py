# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Placement that counts: a claim is granted while its sums fit.

For clouds that make thousands of claims, of which the real one needs 40 ms of CPU each.
It has root providers without traits, and consumers with generations as Placement's.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from moorage.scheduler.placement.seed import Provider

from .canned import CannedResponse

_GRANTED: Final = CannedResponse(204)
_VERSIONS: Final = {
    "versions": [{"id": "v1.0", "min_version": "1.0", "max_version": "1.39"}]
}
_FULL: Final = "The requested amount would exceed the capacity."
_CONFLICT: Final = "consumer generation conflict"

Resources = Mapping[str, int]


class CountedPlacement:
    """Grants what fits the inventories, and holds it until it is deleted."""

    def __init__(self, providers: Iterable[Provider]) -> None:
        self._totals = {
            each.uuid: {name: int(of["total"]) for name, of in each.inventories.items()}
            for each in providers
        }
        self._used = {uuid: Counter[str]() for uuid in self._totals}
        #: By consumer: its generation, and resources by provider.
        self._held: dict[str, tuple[int, dict[str, Resources]]] = {}

    def get(self, url: str, **_options: object) -> CannedResponse:
        """Answer with versions, candidates, or what a consumer holds."""
        parts = urlsplit(url)
        match parts.path.split("/")[1:]:
            case [""]:
                return _answer(_VERSIONS)
            case ["allocation_candidates"]:
                return self._candidates(parse_qs(parts.query)["resources"][0])
            case ["allocations", uuid]:
                return self._allocations(uuid)
        return _refused(404, f"GET {url}", "placement.undefined_code")

    def put(self, url: str, json: dict[str, Any], **_options: object) -> CannedResponse:
        """Replace what a consumer holds, if the sums fit and its generation matches."""
        uuid = url.rpartition("/")[2]
        generation, before = self._held.get(uuid, (None, {}))
        if json["consumer_generation"] != generation:
            return _refused(409, _CONFLICT, "placement.concurrent_update")
        wanted = {rp: part["resources"] for rp, part in json["allocations"].items()}
        self._add(before, -1)
        if not all(self._has_room(rp, resources) for rp, resources in wanted.items()):
            self._add(before, 1)
            return _refused(409, _FULL, "placement.undefined_code")
        self._add(wanted, 1)
        self._held[uuid] = (generation or 0) + 1, wanted
        if not wanted:
            del self._held[uuid]
        return _GRANTED

    def delete(self, url: str, **_options: object) -> CannedResponse:
        """Remove what a consumer holds."""
        _generation, held = self._held.pop(url.rpartition("/")[2])
        self._add(held, -1)
        return _GRANTED

    def _add(self, held: Mapping[str, Resources], sign: int) -> None:
        for rp, resources in held.items():
            self._used[rp].update({name: sign * n for name, n in resources.items()})

    def _has_room(self, rp: str, resources: Resources) -> bool:
        totals, used = self._totals[rp], self._used[rp]
        return all(
            used[name] + n <= totals.get(name, 0) for name, n in resources.items()
        )

    def _candidates(self, query: str) -> CannedResponse:
        wanted = {
            name: int(amount)
            for name, _, amount in (each.partition(":") for each in query.split(","))
        }
        found = [rp for rp in self._totals if self._has_room(rp, wanted)]
        requests = [
            {"allocations": {rp: {"resources": wanted}}, "mappings": {"": [rp]}}
            for rp in found
        ]
        summaries = {rp: self._summary(rp) for rp in found}
        return _answer(
            {"allocation_requests": requests, "provider_summaries": summaries}
        )

    def _summary(self, rp: str) -> dict[str, Any]:
        resources = {
            name: {"capacity": total, "used": self._used[rp][name]}
            for name, total in self._totals[rp].items()
        }
        return {
            "resources": resources,
            "traits": [],
            "parent_provider_uuid": None,
            "root_provider_uuid": rp,
        }

    def _allocations(self, uuid: str) -> CannedResponse:
        if uuid not in self._held:
            return _answer({"allocations": {}})
        generation, held = self._held[uuid]
        allocations = {rp: {"resources": resources} for rp, resources in held.items()}
        owner = {"project_id": "project", "user_id": "user"}
        body = {"allocations": allocations, "consumer_generation": generation, **owner}
        return _answer(body)


def _answer(body: object) -> CannedResponse:
    return CannedResponse(200, json.dumps(body))


def _refused(status: int, detail: str, code: str) -> CannedResponse:
    error = {"status": status, "title": "", "detail": detail, "code": code}
    return CannedResponse(status, json.dumps({"errors": [error]}))
