# SPDX-License-Identifier: Apache-2.0
"""Instances are found by host and hosts by instance; both agree."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from moorage.scheduler.hosts.instances import InstanceMap

NAMES, UUIDS = st.sampled_from("abc"), st.sampled_from("123")
STEPS = st.one_of(
    st.tuples(st.just("set_host"), NAMES, st.sets(UUIDS)),
    st.tuples(st.just("add"), NAMES, UUIDS),
    st.tuples(st.just("remove"), NAMES, UUIDS),
)


@given(st.lists(STEPS))
def test_map_is_a_dict_of_sets(steps: list[tuple[str, str, set[str] | str]]) -> None:
    instances = InstanceMap()
    model: dict[str, set[str]] = {name: set() for name in "abc"}
    for step, name, what in steps:
        getattr(instances, step)(name, what)
        match step:
            case "set_host":
                model[name] = set(what)
            case "add":
                model[name] |= {str(what)}
            case "remove":
                model[name] -= {str(what)}
    assert {name: instances.of_host(name) for name in "abc"} == model
    for uuid in "123":
        on = {name for name, uuids in model.items() if uuid in uuids}
        assert set(instances.hosts_of(uuid)) == on
    counts = {name: len(uuids) for name, uuids in model.items() if uuids}
    assert instances.count("123") == counts
    assert len(instances) == len(set().union(*model.values()))


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "describe", "sum"]),
        st.sampled_from(["h1", "h2", "h3"]),
        st.sampled_from(["i1", "i2", "i3"]),
        st.frozensets(st.sampled_from([("a", "1"), ("a", "2"), ("b", "1")])),
    ),
    max_size=40,
)


@given(MOVES)
def test_properties_are_counted_as_instances_come_and_go(moves: Any) -> None:
    factors = {("a", "1"): 1.0, ("a", "2"): 10.0, ("b", "1"): 100.0}
    known: dict[str, frozenset[tuple[str, str]]] = {}
    instances = InstanceMap()
    for what, host, uuid, properties in [*moves, ("sum", "h1", "i1", frozenset())]:
        if what in ("add", "remove"):
            getattr(instances, what)(host, uuid)
        elif what == "describe":
            instances.set_image_properties(uuid, properties)
            if instances.hosts_of(uuid):
                known[uuid] = properties
        else:
            at = {h: instances.index_of(h) for h in ("h1", "h2", "h3")}
            sums = instances.sum_properties(factors)
            for each, index in at.items():
                here = [known.get(u, ()) for u in instances.of_host(each)]
                assert sums[index] == sum(factors[p] for its in here for p in its)
        known = {u: its for u, its in known.items() if instances.hosts_of(u)}
