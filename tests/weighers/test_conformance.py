# SPDX-License-Identifier: Apache-2.0
"""Every weigher of ours: raw weights of nova, forms that agree, nothing written."""

from __future__ import annotations

import copy
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from moorage.objects import CellMapping, Destination, InstanceGroup, RequestSpec
from moorage.scheduler.drivers.plugins import load_weighers
from moorage.scheduler.hosts import (
    COLUMNS,
    Consumption,
    HostBatch,
    HostRecord,
    properties_of_image,
)
from moorage.weighers import BaseHostWeigher
from moorage.weighers.fragmentation import FragmentationWeigher
from moorage.weighers.metrics import MetricsWeigher

from ..conftest import (
    CELL,
    NOW,
    aggregate,
    batch,
    group,
    host,
    hosts,
    image,
    instance_uuid,
    options,
    spec,
    table,
)
from ..fixtures.property_tests import examples

CONF = options()
WEIGHERS = {type(w).__name__: w for w in load_weighers(CONF, lambda: NOW)}
CONF.set_override("weight_setting", ["m=2", "n=0.5"], group="metrics")
CONF.set_override("required", False, group="metrics")
WEIGHERS["MetricsWeigher"] = MetricsWeigher(CONF)
FLAVORS = ["1:512=5", "4:4096/2p=1"]
CONF.set_override("fragmentation_flavors", FLAVORS, group="filter_scheduler")
WEIGHERS["FragmentationWeigher"] = FragmentationWeigher(CONF)
IMAGE = image(hw_disk_bus="virtio", os_distro="ubuntu")
UUIDS = [instance_uuid(i) for i in range(4)]
AMOUNTS = st.integers(-(2**40), 2**40)
COUNTS = st.integers(0, 100)


@st.composite
def records(draw: st.DrawFn) -> list[HostRecord]:
    """Some hosts that differ in the columns that our weighers read."""
    return [
        host(
            host=f"h{i}",
            free_ram_mb=draw(AMOUNTS),
            free_disk_mb=draw(AMOUNTS),
            vcpus_used=draw(COUNTS),
            cpu_allocation_ratio=draw(st.floats(0.1, 16)),
            num_io_ops=draw(COUNTS),
            num_instances=draw(COUNTS),
            failed_builds=draw(COUNTS),
            cell_uuid=draw(st.sampled_from([CELL, UUIDS[0]])),
            metrics=draw(st.sampled_from([None, {"m": 1.5}, {"m": -2, "n": 3}])),
        )
        for i in range(draw(st.integers(1, 6)))
    ]


GROUPS = st.sampled_from(
    [
        None,
        group("soft-affinity", members=UUIDS),
        group("soft-anti-affinity", members=UUIDS),
        group("affinity", members=UUIDS),
    ]
)
INSTANCES = st.dictionaries(
    st.sampled_from(["h0", "h1", "h2"]), st.lists(st.sampled_from(UUIDS), unique=True)
)


def _copied(rows: HostBatch) -> dict[str, list[Any]]:
    names = (*COLUMNS, "aggregates")
    return {name: [repr(v) for v in getattr(rows, name)] for name in names}


#: Of an aggregate.
MULTIPLIERS = {
    name: "7" for w in WEIGHERS.values() if (name := w.MULTIPLIER_KEY or w.MULTIPLIER)
}


@examples(0.6)
@given(records=records(), of=GROUPS, on=INSTANCES, data=st.data())
def test_weighers_keep_the_contract(
    records: list[HostRecord],
    of: InstanceGroup | None,
    on: dict[str, list[str]],
    data: st.DataObject,
) -> None:
    # All weighers get what was drawn: drawing it takes longer than they do.
    filled = table(
        *records, instances=on, aggregates=[aggregate(1, "h0", **MULTIPLIERS)]
    )
    for uuid in UUIDS[:2]:
        filled.instances.set_image_properties(uuid, properties_of_image(IMAGE))
    rows = filled.batch()
    if data.draw(st.booleans(), label="one placed already"):
        rows = rows.with_instance(
            0, instance_uuid("placed"), Consumption(memory_mb=1, disk_mb=1, vcpus=1)
        )
    spec_obj: RequestSpec = spec(
        instance_group=of,
        image=IMAGE,
        requested_destination=Destination(
            cell=CellMapping(uuid=CELL), allow_cross_cell_move=True
        ),
    )
    order = np.array(data.draw(st.permutations(range(len(rows)))))
    hosts_before = _copied(rows)
    for weigher in WEIGHERS.values():
        _check_contract(weigher, rows, spec_obj, order)
        assert _copied(rows) == hosts_before, weigher


def _check_contract(
    weigher: BaseHostWeigher,
    rows: HostBatch,
    spec_obj: RequestSpec,
    order: np.ndarray[Any, Any],
) -> None:
    request_before, own_before = copy.deepcopy(spec_obj), dict(vars(weigher))
    prepared = weigher.prepare(spec_obj)
    raw, multipliers = prepared.weigh_all(rows, spec_obj), prepared.multipliers(rows)

    assert (raw.dtype, raw.shape) == (np.float64, (len(rows),))
    assert (multipliers.dtype, multipliers.shape) == (np.float64, (len(rows),))
    assert abs(multipliers[0]) == 7
    assert [prepared.weigh_host(h, spec_obj) for h in rows] == raw.tolist()
    reordered = rows.take(order)
    assert prepared.weigh_all(reordered, spec_obj).tolist() == raw[order].tolist()
    assert prepared.multipliers(reordered).tolist() == multipliers[order].tolist()
    assert spec_obj.obj_to_primitive() == request_before.obj_to_primitive()
    assert vars(weigher) == own_before


#: Weigher: class minimum, multiplier with the options' defaults; as in nova 34.
RANGES = {
    "BuildFailureWeigher": (None, -1000000.0),
    "CPUWeigher": (0, 1.0),
    "CrossCellWeigher": (None, 1000000.0),
    "DiskWeigher": (0, 1.0),
    "FragmentationWeigher": (None, 0.0),  # nova has none
    "HypervisorVersionWeigher": (None, 1.0),
    "ImagePropertiesWeigher": (None, 0.0),
    "IoOpsWeigher": (0, -1.0),
    "LifetimeWeigher": (-1.0, 0.0),  # nova has none
    "LocalityWeigher": (None, 1.0),  # nova has none
    "MetricsWeigher": (None, 1.0),
    "NumInstancesWeigher": (None, 0.0),
    "PCIWeigher": (None, 1.0),
    "RAMWeigher": (0, 1.0),
    "ServerGroupSoftAffinityWeigher": (None, 1.0),
    "ServerGroupSoftAntiAffinityWeigher": (None, 1.0),
}


def test_weighers_have_novas_ranges_and_defaults() -> None:
    rows = batch(host())
    ranges = {n: (w.minval, w.multipliers(rows)[0]) for n, w in WEIGHERS.items()}
    assert ranges == RANGES
    assert {n: w.maxval for n, w in WEIGHERS.items() if w.maxval is not None} == {
        "LifetimeWeigher": 0.0
    }


@pytest.mark.parametrize(
    ("name", "column", "values", "raw"),
    [
        ("RAMWeigher", "free_ram_mb", [-5, 0, 8], [-5, 0, 8]),
        ("DiskWeigher", "free_disk_mb", [-5, 0, 8], [-5, 0, 8]),
        ("CPUWeigher", "vcpus_used", [0, 10, 20], [12, 2, -8]),
        ("IoOpsWeigher", "num_io_ops", [0, 3], [0, 3]),
        ("NumInstancesWeigher", "num_instances", [0, 3], [0, 3]),
        ("BuildFailureWeigher", "failed_builds", [0, 1, 50], [0, 1, 50]),
        ("HypervisorVersionWeigher", "hypervisor_version", [0, 6002001], [0, 6002001]),
    ],
)
def test_raw_weight(
    name: str, column: str, values: list[int], raw: list[float]
) -> None:
    rows = batch(*hosts(column, values, vcpus_total=8, cpu_allocation_ratio=1.5))
    assert WEIGHERS[name].weigh_all(rows, spec()).tolist() == raw


def test_build_failures_of_an_aggregate_are_negated_too() -> None:
    mine = aggregate(1, "a", build_failure_weight_multiplier="5")
    rows = batch(*hosts("failed_builds", [0, 1]), aggregates=[mine])
    multipliers = WEIGHERS["BuildFailureWeigher"].multipliers(rows)
    assert multipliers.tolist() == [-5.0, -1000000.0]


AFFINITY = "ServerGroupSoftAffinityWeigher"
ANTI_AFFINITY = "ServerGroupSoftAntiAffinityWeigher"


@pytest.mark.parametrize(
    ("name", "of", "raw"),
    [
        pytest.param(AFFINITY, None, [0, 0, 0], id="no group"),
        pytest.param(AFFINITY, group("soft-affinity"), [0, 0, 0], id="no members"),
        pytest.param(
            AFFINITY, group("soft-affinity", members=UUIDS[:2]), [2, 1, 0], id="members"
        ),
        pytest.param(
            AFFINITY,
            InstanceGroup(policies=["soft-affinity"], members=UUIDS[:2]),
            [2, 1, 0],
            id="the old list of policies",
        ),
        pytest.param(
            AFFINITY,
            group("soft-anti-affinity", members=UUIDS[:2]),
            [0, 0, 0],
            id="the other policy",
        ),
        pytest.param(
            ANTI_AFFINITY,
            group("soft-anti-affinity", members=UUIDS[:2]),
            [-2, -1, 0],
            id="apart",
        ),
        pytest.param(
            ANTI_AFFINITY,
            group("anti-affinity", members=UUIDS[:2]),
            [0, 0, 0],
            id="the hard policy",
        ),
    ],
)
def test_members_of_the_group(
    name: str, of: InstanceGroup | None, raw: list[float]
) -> None:
    on = {"a": UUIDS[:3], "b": UUIDS[1:3], "c": UUIDS[3:]}
    rows = batch(*hosts("free_ram_mb", [1, 2, 3]), instances=on)
    weights = WEIGHERS[name].weigh_all(rows, spec(instance_group=of))
    assert weights.tolist() == raw
