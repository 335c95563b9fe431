# SPDX-License-Identifier: Apache-2.0
"""Instances are found by host and hosts by instance; both agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from moorage.objects import ImageMeta, ImageMetaProps, Instance, InstanceList
from moorage.scheduler.hosts import properties_of_image, properties_of_instance
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


WIRE = Path(__file__).parents[3] / "examples/data/wire/cast-update_instance_info.json"


def found_in(metadata: dict[str, Any]) -> Any:
    return properties_of_instance(Instance(uuid=UUID, system_metadata=metadata))


UUID = "6f70656e-7374-4163-8b20-342065766572"


@pytest.mark.parametrize(
    ("kept", "properties"),
    [
        ({"image_hw_disk_bus": "virtio"}, {"hw_disk_bus": "virtio"}),
        ({"image_architecture": "x86_64"}, {"hw_architecture": "x86_64"}),
        ({"image_hw_numa_cpus.0": "3,1"}, {"hw_numa_cpus": [{1, 3}]}),
        ({"image_trait:CUSTOM_T": "required"}, {"traits_required": ["CUSTOM_T"]}),
        ({"image_hw_boot_menu": "true"}, {"hw_boot_menu": True}),
        ({"image_mappings": "[]", "image_min_ram": "1", "hw_disk_bus": "ide"}, {}),
        ({"image_os_distro": None}, {}),
        ({}, {}),
    ],
)
def test_instance_has_the_properties_of_its_image(
    kept: dict[str, str], properties: dict[str, Any]
) -> None:
    image = ImageMeta(properties=ImageMetaProps(**properties))
    assert found_in(kept) == properties_of_image(image)
    assert len(found_in(kept)) == len(properties)


def test_unreported_property_is_unknown() -> None:
    assert properties_of_instance(Instance(uuid=UUID)) is None
    assert properties_of_image(None) == frozenset()
    assert properties_of_image(ImageMeta()) == frozenset()


def test_value_that_cannot_be_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    assert found_in({"image_hw_disk_bus": "nonsense"}) == frozenset()
    assert UUID in caplog.text


def test_real_report_is_read() -> None:
    arguments = json.loads(WIRE.read_text())["message"]["args"]
    [instance] = InstanceList.obj_from_primitive(arguments["instance_info"])
    found = dict(properties_of_instance(instance) or ())
    assert found["hw_architecture"] == "x86_64"
    assert found["hw_disk_bus"] == "virtio"
