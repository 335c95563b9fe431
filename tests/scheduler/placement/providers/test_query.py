# SPDX-License-Identifier: Apache-2.0
"""Parameters of a query are read as Placement reads them, or not at all."""

from __future__ import annotations

import pytest

from moorage.scheduler.placement.providers import ProviderQuery, QueryNotCovered

A = "00000001-0000-4000-8000-000000000000"
B = "00000002-0000-4000-8000-000000000000"


def test_a_query_is_read_from_its_url() -> None:
    query = ProviderQuery.from_url(
        "/allocation_candidates?limit=10&resources=VCPU%3A2%2CMEMORY_MB%3A512"
        f"&required=T1%2C%21T2&member_of=in%3A{A}%2C{B}&member_of=%21{B}"
        f"&resources_P-1=VGPU%3A1&required_P-1=in%3AT3%2CT4&in_tree_P-1={A}"
        "&required_Q=T5&same_subtree=_P-1%2C_Q&group_policy=isolate"
        "&root_required=T6%2C%21T7"
    )

    assert query.is_isolated
    assert query.root_required == {"T6"}
    assert query.root_forbidden == {"T7"}
    assert query.same_subtrees == ({"_P-1", "_Q"},)
    groups = {group.suffix: group for group in query.groups}
    assert groups.keys() == {"", "_P-1", "_Q"}
    plain, port, other = groups[""], groups["_P-1"], groups["_Q"]
    assert plain.amounts == {"VCPU": 2, "MEMORY_MB": 512}
    assert (plain.required, plain.forbidden) == ([{"T1"}], {"T2"})
    assert (plain.member_of, plain.forbidden_aggregates) == ([{A, B}], {B})
    assert (port.amounts, port.required) == ({"VGPU": 1}, [{"T3", "T4"}])
    assert port.in_tree == A
    assert (other.amounts, other.required) == ({}, [{"T5"}])


def test_the_last_of_several_required_counts_unless_one_is_any_of() -> None:
    twice = [("resources", "VCPU:1"), ("required", "T1"), ("required", "T2")]

    last, every = (
        ProviderQuery.parse([*twice, *more]) for more in ([], [("required", "in:T3")])
    )

    assert last.groups[0].required == [{"T2"}]
    assert every.groups[0].required == [{"T1"}, {"T2"}, {"T3"}]


@pytest.mark.parametrize(
    "params",
    [
        pytest.param([], id="nothing"),
        pytest.param([("required", "T1")], id="no resources"),
        pytest.param([("resources", "")], id="empty resources"),
        pytest.param([("resources", "VCPU:0")], id="zero"),
        pytest.param([("resources", "VCPU:4294967296")], id="more than 32 bits"),
        pytest.param([("resources", "VCPU")], id="no amount"),
        pytest.param([("resources", "VCPU:1"), ("required", "T1,")], id="empty trait"),
        pytest.param([("resources", "VCPU:1"), ("required", "T1,!T1")], id="conflict"),
        pytest.param([("resources", "VCPU:1"), ("root_required", "A,!A")], id="root"),
        pytest.param([("resources", "VCPU:1"), ("member_of", "agg")], id="no UUID"),
        pytest.param(
            [("resources", "VCPU:1"), ("member_of", f"{A},{B}")], id="a list without in"
        ),
        pytest.param(
            [("resources", "VCPU:1"), ("in_tree", A.replace("-", ""))],
            id="another form of UUID",
        ),
        pytest.param([("resources", "VCPU:1"), ("same_subtree", "_A")], id="no such"),
        pytest.param(
            [("resources", "VCPU:1"), ("required_A", "T1")], id="without resources"
        ),
        pytest.param([("resources1", "A:1"), ("resources2", "A:1")], id="no policy"),
        pytest.param(
            [("resources", "VCPU:1"), ("group_policy", "some")], id="unknown policy"
        ),
        pytest.param([("resources", "VCPU:1"), ("limit", "0")], id="limit"),
        pytest.param([("resources", "VCPU:1"), ("new", "1")], id="unknown parameter"),
    ],
)
def test_what_placement_refuses_is_left_to_it(params: list[tuple[str, str]]) -> None:
    with pytest.raises(QueryNotCovered):
        ProviderQuery.parse(params)
