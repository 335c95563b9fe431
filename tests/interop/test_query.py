# SPDX-License-Identifier: Apache-2.0
"""Placement is asked what nova 34 asks, for every real message."""

from __future__ import annotations

import copy
import gzip
import json
import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from moorage.objects import (
    Destination,
    Flavor,
    ImageMeta,
    ImageMetaProps,
    RequestGroup,
    RequestLevelParams,
    RequestSpec,
)
from moorage.scheduler.errors import InvalidRequest
from moorage.scheduler.placement.query import (
    CandidatesQuery,
    Requirements,
    build_fallback_query,
    build_query,
)
from moorage.scheduler.prefilters import PrefilterRequest
from moorage.scheduler.prefilters.availability_zone import (
    map_az_to_placement_aggregate,
)
from moorage.scheduler.prefilters.compute_status import compute_status_filter

from .peer import Peer, PeerError

WIRE = Path(__file__).parents[1] / "data" / "wire"
PREFILTERS = {
    "map_az_to_placement_aggregate": map_az_to_placement_aggregate,
    "compute_status_filter": compute_status_filter,
}
NODES = (
    "3f1f6a8e-6f0f-4a0b-9d3b-0c6a8f6f7f10",
    "3f1f6a8e-6f0f-4a0b-9d3b-0c6a8f6f7f11",
)
AGGREGATE_UUIDS = (
    "7d0c2d42-0d39-4a5b-8f3c-7c3a3f3d9b02",
    "7d0c2d42-0d39-4a5b-8f3c-7c3a3f3d9b01",
)


class Aggregates:
    """Two aggregates of one availability zone."""

    def __init__(self, zone: str | None) -> None:
        self.rows = [(uuid, {"availability_zone": zone}) for uuid in AGGREGATE_UUIDS]

    def uuids_with_metadata(self, key: str, value: str) -> frozenset[str]:
        return frozenset(uuid for uuid, found in self if found.get(key) == value)

    def __iter__(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        return iter(self.rows)


def messages() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each real select_destinations with a name."""
    for path in sorted(WIRE.glob("*.json")):
        yield path.stem, json.loads(path.read_text()).get("message") or {}
    corpus = WIRE / "corpus.jsonl.gz"
    if corpus.exists():
        with gzip.open(corpus, "rt") as lines:
            for number, line in enumerate(lines, 1):
                yield f"corpus line {number}", json.loads(line)["message"]


def requests() -> list[tuple[str, dict[str, Any]]]:
    return [
        (name, message["args"]["spec_obj"])
        for name, message in messages()
        if message.get("method") == "select_destinations"
        and message["args"].get("spec_obj")
    ]


def ours(
    primitive: dict[str, Any],
    nodes: tuple[str, ...],
    prefilters: Iterable[str] = tuple(PREFILTERS),
) -> list[str | None]:
    spec_obj = RequestSpec.obj_from_primitive(copy.deepcopy(primitive))
    requirements = Requirements()
    aggregates = Aggregates(spec_obj.availability_zone)
    for name in prefilters:
        PREFILTERS[name](
            PrefilterRequest(spec_obj, requirements, aggregates, cfg.ConfigOpts())
        )
    if has_target(spec_obj):
        requirements.in_tree = nodes[0] if len(nodes) == 1 else None
        requirements.is_limited = len(nodes) == 1
    return [
        query_string(build_query(spec_obj, requirements, limit=1000)),
        query_string(build_fallback_query(spec_obj, requirements, limit=1000)),
    ]


def has_target(spec_obj: RequestSpec) -> bool:
    destination = spec_obj.requested_destination
    named = [
        getattr(destination, name)
        for name in ("host", "node")
        if destination is not None and name in destination
    ]
    return any([*named, spec_obj.force_hosts, spec_obj.force_nodes])


def query_string(query: CandidatesQuery | None) -> str | None:
    return query and query.path.partition("?")[2]


@pytest.mark.peer
@pytest.mark.parametrize("nodes", [NODES[:1], NODES], ids=["one node", "two nodes"])
def test_questions_are_novas(peer: Peer, nodes: tuple[str, ...]) -> None:
    found = requests()
    assert found, f"no select_destinations under {WIRE}"
    for name, primitive in found:
        theirs = peer.ask(
            "query",
            spec_obj=primitive,
            prefilters=list(PREFILTERS),
            aggregates=Aggregates(
                primitive["nova_object.data"].get("availability_zone")
            ).rows,
            nodes=nodes,
        )
        assert ours(primitive, nodes) == theirs, name


#: Values that flavor and image can have together without a contradiction.
EXTRA_SPECS = {
    "hw:cpu_policy": ["dedicated", "mixed"],
    "hw:cpu_thread_policy": ["prefer", "isolate", "require"],
    "hw:emulator_threads_policy": ["share", "isolate"],
    "hw:cpu_dedicated_mask": ["0-1", "^0", "1,^2, 3"],
    "hw:cpu_realtime": ["yes", "no"],
    "hw:cpu_realtime_mask": ["^0", "1", "0-2,^1"],
    "hw:mem_encryption": ["true", "1"],
    "hw:mem_encryption_model": ["amd-sev", "amd-sev-es"],
    "hw:pmem": ["6GB", "6GB, 6GB,a-b,"],
    "hw:tpm_version": ["2.0"],
    "hw:tpm_model": ["tpm-tis", "tpm-crb"],
    "os:secure_boot": ["required", "optional"],
    "hw:maxphysaddr_mode": ["passthrough", "emulate"],
    "hw:pci_numa_affinity_policy": ["socket", "legacy"],
    "resources:VCPU": ["0", "2", "-1", "x"],
    "resources:PCPU": ["2", "0"],
    "resources:DISK_GB": ["0", "5"],
    "resources:FOO": ["1"],
    "resources:MEM_ENCRYPTION_CONTEXT": ["5"],
    "resources1:VGPU": ["1"],
    "resources_net-1:SRIOV_NET_VF": ["1"],
    "trait:CUSTOM_T": ["required", "forbidden", "perhaps"],
    "trait:HW_CPU_HYPERTHREADING": ["required"],
    "group_policy": ["none", "isolate", "both"],
    "accel:device_profile": ["p"],
    "resources!:VGPU": ["1"],
}
PROPERTIES = {
    "hw_cpu_policy": ["shared"],
    "hw_firmware_stateless": [True, False],
    "hw_mem_encryption": [True],
    "hw_tpm_version": ["2.0"],
    "os_secure_boot": ["required"],
    "traits_required": [["CUSTOM_I"], ["CUSTOM_J", "CUSTOM_I"]],
}


def drawn(
    rng: random.Random, values: dict[str, list[Any]], most: int
) -> dict[str, Any]:
    names = rng.sample(sorted(values), rng.randint(0, most))
    return {name: rng.choice(values[name]) for name in names}


def drawn_request(rng: random.Random) -> RequestSpec:
    extra_specs = drawn(rng, EXTRA_SPECS, 8)
    properties = drawn(rng, PROPERTIES, 3) | {"hw_firmware_type": "uefi"}
    if "os_secure_boot" in properties:
        extra_specs.pop("os:secure_boot", None)
    return RequestSpec(
        flavor=Flavor(
            name="drawn",
            vcpus=4,
            memory_mb=512,
            root_gb=rng.choice([0, 1]),
            ephemeral_gb=rng.choice([0, 3]),
            swap=rng.choice([0, 1, 1024, 1025]),
            extra_specs=extra_specs,
        ),
        image=ImageMeta(
            id="5f0b4c0a-2c9e-4f43-8d0e-0d0f0c1b2a39",
            name="drawn",
            properties=ImageMetaProps(**properties),
        ),
        is_bfv=rng.random() < 0.3,
        availability_zone=None,
        force_hosts=None,
        force_nodes=None,
        scheduler_hints=rng.choice([{}, {"group": ["g"]}, {"query": ["q"]}]),
        requested_resources=[
            RequestGroup(
                requester_id=f"port-{number}",
                resources={"NET_BW_EGR_KILOBIT_PER_SEC": 1},
                required_traits=set(rng.choice([[], ["CUSTOM_P"]])),
            )
            for number in range(rng.choice([0, 0, 1, 2]))
        ],
        request_level_params=RequestLevelParams(),
        requested_destination=rng.choice(
            [None, Destination(aggregates=["b,a", "c"], forbidden_aggregates={"q"})]
        ),
    )


@pytest.mark.peer
def test_questions_are_novas_for_flavors_nobody_thought_of(peer: Peer) -> None:
    rng = random.Random(34)
    for _ in range(500):
        primitive = drawn_request(rng).obj_to_primitive()
        try:
            theirs = peer.ask("query", spec_obj=primitive, prefilters=[], nodes=[])
        except PeerError:  # realtime CPUs without a mask
            with pytest.raises(InvalidRequest):
                ours(primitive, NODES[:1], prefilters=())
        else:
            assert ours(primitive, NODES[:1], prefilters=()) == theirs, primitive
