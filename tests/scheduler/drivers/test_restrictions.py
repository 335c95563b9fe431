# SPDX-License-Identifier: Apache-2.0
"""A request's own restrictions come before the filters, compared as nova does."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.objects import CellMapping, Destination
from moorage.scheduler.drivers.record import FilterStep
from moorage.scheduler.drivers.restrictions import (
    evacuated_from,
    restrict_hosts,
    restrict_to_requested_host,
)
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.placement.query import Requirements
from moorage.scheduler.request import Request

from ...conftest import CELL, host, instance_uuid, node_uuid, spec, table

OTHER_CELL = instance_uuid("another cell")
TABLE = table(
    host(host="a", nodename="n1"),
    host(host="a", nodename="n2"),
    host(host="B", nodename="N3", cell_uuid=OTHER_CELL),
)


def _to(**fields: Any) -> Destination:
    if cell := fields.pop("cell", None):
        fields["cell"] = CellMapping(uuid=cell)
    return Destination(**fields)


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        pytest.param({}, "n1 n2 N3", id="none"),
        pytest.param({"ignore_hosts": ["A"]}, "N3", id="ignored, in any case"),
        pytest.param({"ignore_hosts": ["a", "b"]}, "", id="all ignored"),
        pytest.param({"ignore_hosts": []}, "n1 n2 N3", id="none ignored"),
        pytest.param({"force_hosts": ["b"]}, "N3", id="forced host, in any case"),
        pytest.param({"force_hosts": ["z"]}, "", id="forced to an unknown host"),
        pytest.param({"force_nodes": ["n2", "N3"]}, "n2 N3", id="forced nodes"),
        pytest.param({"force_nodes": ["n3"]}, "", id="node in another case"),
        pytest.param(
            {"force_hosts": ["a"], "force_nodes": ["n2"]}, "n2", id="host and node"
        ),
        pytest.param(
            {"force_hosts": ["a"], "ignore_hosts": ["a"]}, "", id="forced, ignored"
        ),
        pytest.param({"to": {"host": "a"}}, "n1 n2", id="destination"),
        pytest.param({"to": {"host": "A"}}, "", id="destination in another case"),
        pytest.param({"to": {"host": "a", "node": "n2"}}, "n2", id="host and its node"),
        pytest.param({"to": {"host": "a", "node": "N3"}}, "", id="another's node"),
        pytest.param({"to": {"cell": OTHER_CELL}}, "N3", id="cell"),
        pytest.param(
            {"to": {"cell": OTHER_CELL, "allow_cross_cell_move": True}},
            "n1 n2 N3",
            id="a cell that may be left",
        ),
        pytest.param({"to": {"host": "B", "cell": CELL}}, "", id="not in that cell"),
    ],
)
def test_restriction(fields: dict[str, Any], left: str) -> None:
    changes = {**fields}
    if to := changes.pop("to", None):
        changes["requested_destination"] = _to(**to)
    hosts = restrict_hosts(TABLE.batch(), Request.of(spec(**changes)), [])
    assert " ".join(hosts.nodename) == left


def test_each_restriction_leaves_a_step() -> None:
    steps: list[FilterStep] = []
    spec_obj = spec(
        requested_destination=_to(host="a"), ignore_hosts=["b"], force_nodes=["n2"]
    )
    restrict_hosts(TABLE.batch(), Request.of(spec_obj), steps)
    assert [(s.name, s.n_in, s.n_out) for s in steps] == [
        ("requested_destination host", 3, 2),
        ("ignore_hosts", 2, 2),
        ("force_nodes", 2, 1),
    ]


REBUILD = {"_nova_check_type": ["rebuild"]}


@pytest.mark.parametrize(
    ("hints", "is_one"),
    [
        pytest.param(None, False, id="no hints"),
        pytest.param({}, False, id="empty"),
        pytest.param({"_nova_check_type": ["other"]}, False, id="another check"),
        pytest.param(REBUILD, True, id="rebuild"),
    ],
)
def test_hint_marks_a_rebuild(hints: Any, is_one: bool) -> None:
    assert Request.of(spec(scheduler_hints=hints)).is_rebuild is is_one


@pytest.mark.parametrize(
    ("fields", "skips"),
    [
        pytest.param({}, False, id="not forced"),
        pytest.param({"force_hosts": ["a"]}, True, id="forced host"),
        pytest.param({"force_nodes": ["n1"]}, True, id="forced node"),
        pytest.param(
            {"force_hosts": ["a"], "scheduler_hints": REBUILD}, False, id="rebuild"
        ),
        pytest.param(
            {"requested_destination": _to(host="a")}, False, id="a destination"
        ),
    ],
)
def test_forced_hosts_are_not_filtered(fields: dict[str, Any], skips: bool) -> None:
    assert Request.of(spec(**fields)).skips_filters is skips


@pytest.mark.parametrize(
    ("fields", "in_tree", "is_limited"),
    [
        pytest.param({}, None, True, id="any host"),
        pytest.param({"force_hosts": ["B"]}, "N3", True, id="a host of one node"),
        pytest.param({"force_hosts": ["a"]}, None, False, id="a host of several"),
        pytest.param({"force_nodes": ["n2"]}, "n2", True, id="a node"),
        pytest.param(
            {"requested_destination": _to(host="a", node="n1")}, "n1", True, id="both"
        ),
        pytest.param(
            {"requested_destination": _to(cell=CELL)}, None, True, id="a cell only"
        ),
    ],
)
def test_query_is_restricted_to_the_named_host(
    fields: dict[str, Any], in_tree: str | None, is_limited: bool
) -> None:
    requirements = Requirements()
    restrict_to_requested_host(Request.of(spec(**fields)), TABLE, requirements, bool)
    assert requirements.in_tree == (in_tree and node_uuid(in_tree))
    assert requirements.is_limited is is_limited


@pytest.mark.parametrize(
    ("fields", "reported"),
    [
        pytest.param({"force_hosts": ["z"]}, "host: z node: None ", id="host"),
        pytest.param({"force_nodes": ["z"]}, "host: None node: z ", id="node"),
        pytest.param(
            {"requested_destination": _to(host="B", cell=CELL)},
            "host: B node: None ",
            id="in another cell",
        ),
    ],
)
def test_unknown_host_is_reported_in_novas_words(
    fields: dict[str, Any], reported: str
) -> None:
    with pytest.raises(NoValidHost) as caught:
        restrict_to_requested_host(
            Request.of(spec(**fields)), TABLE, Requirements(), bool
        )
    assert str(caught.value) == f"No valid host was found. No such host - {reported}"


def test_evacuated_host_is_known_by_its_nodes() -> None:
    nodes = {node_uuid("n1"), node_uuid("n2")}
    asked = Request.of(spec(ignore_hosts=["A"]))
    assert evacuated_from(asked, TABLE, iter(())) == nodes
    assert evacuated_from(Request.of(spec()), TABLE, [{"root"}]) == frozenset()


def test_evacuated_host_without_a_row_is_known_by_what_the_instance_holds() -> None:
    asked = Request.of(spec(ignore_hosts=["gone"]))
    assert evacuated_from(asked, TABLE, [{"root", "child"}]) == {"root", "child"}
    elsewhere = {node_uuid("n1"), "storage"}
    assert evacuated_from(asked, TABLE, [elsewhere]) == frozenset()
