# SPDX-License-Identifier: Apache-2.0
"""Instances are found by host and hosts by instance; both tell the same."""

from __future__ import annotations

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
