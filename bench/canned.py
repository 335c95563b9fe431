# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Placement: every host fits, and every claim is granted.

Its time, and that of decoding its answers, is reported separately
(`decisions.PLACEMENT_STEPS`). An answer is JSON text that is decoded each time, as over
a network. Claims are not stored. An unknown path is a 404.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .clouds import Cloud
from .requests import BenchRequest

_MANY = 1_000_000
_DEDICATED = "PCPU"
#: The name of a group, which is the suffix of its parameters.
_SUFFIX = re.compile(r"[?&]resources([\w-]+)=")


@dataclass(frozen=True, slots=True)
class CannedResponse:
    """The parts of a response that the client reads."""

    status_code: int
    text: str = ""

    @property
    def content(self) -> bytes:
        return self.text.encode()

    def json(self) -> object:
        return json.loads(self.text)


_NO_CONTENT = CannedResponse(204)
_NO_CANDIDATES = CannedResponse(
    200, '{"allocation_requests": [], "provider_summaries": {}}'
)
_NO_ALLOCATIONS = CannedResponse(200, '{"allocations": {}}')
_VERSIONS = CannedResponse(
    200,
    '{"versions": [{"id": "v1.0", "min_version": "1.0", "max_version": "1.39"}]}',
)


class CannedPlacement:
    """Answers each query for candidates with all hosts of a cloud."""

    def __init__(self, cloud: Cloud, request: BenchRequest) -> None:
        self._cloud = cloud
        self._hosts = {record.uuid: record.host for record in cloud.records}
        self._name = ""
        self.answer_to(request)

    def answer_to(self, request: BenchRequest) -> None:
        """Set the request that is answered; requests of one name differ in ids only."""
        groups = sorted(group["requester_id"] for group in _groups(request))
        if request.name != self._name:
            self._name, self._groups = request.name, groups
            self._text = json.dumps(_body(self._cloud, request))
            self._candidates = CannedResponse(200, self._text)
        self._resources = resources_of(request)
        self._is_dedicated = _DEDICATED in self._resources

    def get(self, url: str, **_options: object) -> CannedResponse:
        match url.partition("?")[0].split("/")[1:]:
            case [""]:
                return _VERSIONS
            case ["allocation_candidates"]:
                return self._candidates_for(url)
            case ["allocations", _]:
                return _NO_ALLOCATIONS
            case ["resource_providers", node, "allocations"] if node in self._hosts:
                return self._allocations_on(self._hosts[node])
        return _not_found("GET", url)

    def put(self, url: str, **_options: object) -> CannedResponse:
        return _granted("PUT", url, is_known=url.startswith("/allocations/"))

    def post(self, url: str, **_options: object) -> CannedResponse:
        return _granted("POST", url, is_known=url == "/allocations")

    def delete(self, url: str, **_options: object) -> CannedResponse:
        return _granted("DELETE", url, is_known=url.startswith("/allocations/"))

    def _candidates_for(self, url: str) -> CannedResponse:
        # All hosts report PCPU, so the fallback query for VCPU finds none.
        if self._is_dedicated and _DEDICATED not in url:
            return _NO_CANDIDATES
        names = sorted(set(_SUFFIX.findall(url)))
        if names != self._groups:  # the cache sends names of its own
            for old, new in zip(self._groups, names, strict=True):
                self._text = self._text.replace(old, new)
            self._groups, self._candidates = names, CannedResponse(200, self._text)
        return self._candidates

    def _allocations_on(self, host: str) -> CannedResponse:
        """Return the allocations of the cloud's instances on a host, by consumer."""
        held = {"resources": self._resources, "consumer_generation": 1}
        allocations = dict.fromkeys(self._cloud.instances.get(host, ()), held)
        body = {"allocations": allocations, "resource_provider_generation": 1}
        return CannedResponse(200, json.dumps(body))


def _granted(verb: str, url: str, *, is_known: bool) -> CannedResponse:
    return _NO_CONTENT if is_known else _not_found(verb, url)


def _not_found(verb: str, url: str) -> CannedResponse:
    detail = f"The benchmark's stand-in for Placement does not answer {verb} {url}"
    error = {"status": 404, "title": "Not Found", "detail": detail}
    return CannedResponse(404, json.dumps({"errors": [error]}))


def resources_of(request: BenchRequest) -> dict[str, int]:
    """Return the resources of one instance of a request in Placement."""
    flavor = request.primitive["nova_object.data"]["flavor"]["nova_object.data"]
    is_dedicated = flavor["extra_specs"].get("hw:cpu_policy") == "dedicated"
    return {
        _DEDICATED if is_dedicated else "VCPU": flavor["vcpus"],
        "MEMORY_MB": flavor["memory_mb"],
        "DISK_GB": flavor["root_gb"] + flavor["ephemeral_gb"],
    }


def _groups(request: BenchRequest) -> list[dict[str, Any]]:
    """Return the request groups of devices that Placement tracks."""
    groups = request.primitive["nova_object.data"].get("requested_resources") or []
    return [group["nova_object.data"] for group in groups]


def _body(cloud: Cloud, request: BenchRequest) -> dict[str, Any]:
    summaries: dict[str, Any] = {}
    requests: list[dict[str, Any]] = []
    device_resources = {
        name: 1 for each in _groups(request) for name in each["resources"]
    }
    for record in cloud.records:
        node = record.uuid
        summaries[node] = _summary(node, None, resources_of(request))
        for device in request.offers.get(node, ()):
            summaries[device] = _summary(node, node, device_resources)
        requests += _candidates(node, request)
    return {"allocation_requests": requests, "provider_summaries": summaries}


def _candidates(node: str, request: BenchRequest) -> Iterator[dict[str, Any]]:
    """Yield the candidate of a host, or one for each device that it offers."""
    groups = _groups(request)
    for device in request.offers.get(node, [""]):
        allocations = {node: {"resources": resources_of(request)}}
        mappings = {"": [node]}
        for group in groups:
            allocations[device] = {"resources": group["resources"]}
            mappings[group["requester_id"]] = [device]
        yield {"allocations": allocations, "mappings": mappings}


def _summary(
    root: str, parent: str | None, resources: dict[str, int]
) -> dict[str, Any]:
    amounts = {"capacity": _MANY, "used": 0}
    return {
        "resources": dict.fromkeys(resources, amounts),
        "traits": [],
        "parent_provider_uuid": parent,
        "root_provider_uuid": root,
    }
