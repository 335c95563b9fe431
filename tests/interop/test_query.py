# SPDX-License-Identifier: Apache-2.0
"""Placement gets the query that nova 34 sends, for real messages and for drawn ones."""

from __future__ import annotations

import copy
import gzip
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from keystoneauth1.adapter import Adapter
from oslo_config import cfg

from moorage.objects import RequestSpec
from moorage.scheduler.candidates import CandidatesQuery
from moorage.scheduler.errors import InvalidRequest
from moorage.scheduler.hosts.aggregates import AggregateMap, HostAggregate
from moorage.scheduler.placement.embedded import EmbeddedPlacement
from moorage.scheduler.placement.query import (
    Requirements,
    build_query,
)
from moorage.scheduler.prefilters import PrefilterRequest
from moorage.scheduler.prefilters.aggregates import (
    map_az_to_placement_aggregate,
)
from moorage.scheduler.prefilters.traits import compute_status_filter
from moorage.scheduler.request import Request

from ..fixtures.nova_peer import Peer, PeerError
from .drawn_queries import (
    CLASSES,
    NODES,
    PMEM_CLASSES,
    TRAITS,
    drawn_request,
)

WIRE = Path(__file__).parents[1] / "data" / "wire"
PREFILTERS = {
    "map_az_to_placement_aggregate": map_az_to_placement_aggregate,
    "compute_status_filter": compute_status_filter,
}
#: Requests drawn, and how many of them must have the same query in both.
N_DRAWN = 2_000
N_SAME = 1_000
AGGREGATE_UUIDS = (
    "7d0c2d42-0d39-4a5b-8f3c-7c3a3f3d9b02",
    "7d0c2d42-0d39-4a5b-8f3c-7c3a3f3d9b01",
)


def aggregates_of(zone: str | None) -> AggregateMap:
    """Two aggregates of one availability zone."""
    made, metadata = AggregateMap(), {"availability_zone": zone} if zone else {}
    for number, uuid in enumerate(AGGREGATE_UUIDS):
        made.put(HostAggregate(number, uuid, uuid, frozenset(), metadata))
    return made


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
    aggregates = aggregates_of(spec_obj.availability_zone)
    for name in prefilters:
        PREFILTERS[name](
            PrefilterRequest(spec_obj, requirements, aggregates, cfg.ConfigOpts())
        )
    if has_target(spec_obj):
        requirements.in_tree = nodes[0] if len(nodes) == 1 else None
        requirements.is_limited = len(nodes) == 1
    request = Request.validated(spec_obj)
    query = build_query(request, requirements, limit=1000)
    if (groups := request.fallback_groups) is None:
        return [query_string(query), None]
    fallback = build_query(request, requirements, limit=1000, groups=groups)
    return [query_string(query), query_string(fallback)]


def has_target(spec_obj: RequestSpec) -> bool:
    destination = spec_obj.requested_destination
    named = [
        getattr(destination, name)
        for name in ("host", "node")
        if destination is not None and name in destination
    ]
    return any([*named, spec_obj.force_hosts, spec_obj.force_nodes])


def query_string(query: CandidatesQuery | None) -> str | None:
    return None if query is None else query.path.partition("?")[2]


@pytest.mark.deep
@pytest.mark.peer
@pytest.mark.parametrize("nodes", [NODES[:1], NODES], ids=["one node", "two nodes"])
def test_queries_are_novas(peer: Peer, nodes: tuple[str, ...]) -> None:
    found = requests()
    assert found, f"no select_destinations under {WIRE}"
    for name, primitive in found:
        zone = primitive["nova_object.data"].get("availability_zone")
        theirs = peer.ask(
            "query",
            spec_obj=primitive,
            prefilters=list(PREFILTERS),
            aggregates=[(each.uuid, each.metadata) for each in aggregates_of(zone)],
            nodes=nodes,
        )
        assert ours(primitive, nodes) == theirs, name


#: nova's second query is about what is left of the first one's groups.
NOVA_TRIPS = "Refusing to add no-op RequestGroup"


@pytest.fixture(scope="module")
def placement() -> Iterator[Adapter]:
    """Return an empty Placement that knows all traits and classes that are drawn."""
    with EmbeddedPlacement() as embedded:
        names = [f"/traits/{name}" for name in TRAITS]
        names += [f"/resource_classes/{name}" for name in (*CLASSES, *PMEM_CLASSES)]
        for path in names:
            made = embedded.adapter.put(path, microversion="1.36", raise_exc=False)
            assert made.status_code in (201, 204), made.text
        yield embedded.adapter


def refusal(placement: Adapter, query: str | None) -> str:
    """Return why Placement refuses a query; empty if it does not."""
    answer = placement.get(
        f"/allocation_candidates?{query}", microversion="1.36", raise_exc=False
    )
    assert answer.status_code in (200, 400), answer.text
    return "" if answer.status_code == 200 else answer.json()["errors"][0]["detail"]


def is_flavors_own(refused: str) -> bool:
    """Return whether a query is refused because of an operator's mistake."""
    own = ('"group_policy" parameter is required', "Conflicting required and forbidden")
    return any(words in refused for words in own)


def outcome(
    peer: Peer, placement: Adapter, spec_obj: RequestSpec, nodes: tuple[str, ...]
) -> str:
    """Run both, and compare them; they may only differ where nova fails."""
    primitive = spec_obj.obj_to_primitive()
    names = ["compute_status_filter"]
    theirs: list[str | None] = []
    error = ""
    try:
        theirs = peer.ask("query", spec_obj=primitive, prefilters=names, nodes=nodes)
    except PeerError as e:
        error = str(e)
    try:
        mine = ours(primitive, nodes, prefilters=names)
    except InvalidRequest:
        assert error or refusal(placement, theirs[0]), primitive
        return "refused"
    if mine == theirs:
        return "same"
    assert NOVA_TRIPS in error or not error, (error, primitive)
    for my_question, their_question in zip(mine, theirs, strict=False):
        if my_question != their_question:
            assert refusal(placement, their_question), primitive
    refusals = [refusal(placement, query) for query in mine if query]
    assert all(is_flavors_own(words) for words in refusals if words), (mine, primitive)
    return "queried better"


@pytest.mark.deep
@pytest.mark.peer
@pytest.mark.usefixtures("quiet")
def test_queries_are_novas_for_drawn_requests(peer: Peer, placement: Adapter) -> None:
    rng = random.Random(34)
    outcomes = Counter(
        outcome(peer, placement, drawn_request(rng), NODES[: rng.choice([1, 1, 1, 2])])
        for _ in range(N_DRAWN)
    )
    print(dict(outcomes))
    assert outcomes["same"] >= N_SAME, outcomes
    assert outcomes["refused"], outcomes
    assert outcomes["queried better"], outcomes
