# SPDX-License-Identifier: Apache-2.0
"""Every filter of ours: both forms agree, order is nothing to it, it writes nothing."""

from __future__ import annotations

import copy
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from moorage.filters import BaseHostFilter
from moorage.filters.locality import LocalityFilter
from moorage.objects import ImageMeta, ImageMetaProps, RequestSpec
from moorage.scheduler.drivers.filtering import explain_rejections
from moorage.scheduler.drivers.plugins import load_filters
from moorage.scheduler.entry_points import load_plugins
from moorage.scheduler.hosts import (
    COLUMNS,
    Consumption,
    HostAggregate,
    HostBatch,
    HostRecord,
)

from ..conftest import (
    NOW,
    aggregate,
    batch,
    group,
    host,
    image,
    instance_uuid,
    options,
    spec,
)
from ..fixtures.property_tests import examples

OURS = sorted(
    name
    for name, plugin in load_plugins("moorage.filters").items()
    if plugin.__module__.startswith("moorage.filters.")
)


def _filters() -> list[BaseHostFilter]:
    conf = options(
        enabled_filters=OURS,
        isolated_hosts=["h0", "h4"],
        isolated_images=[instance_uuid("image")],
        max_io_ops_per_host=2,
        max_instances_per_host=3,
    )
    conf.set_override("weight_setting", ["cpu=1.0"], group="metrics")
    conf.set_override("levels", ["rack"], group="locality")
    return load_filters(conf, lambda: NOW)


FILTERS = _filters()
UUIDS = [instance_uuid(i) for i in range(4)]


@st.composite
def records(draw: st.DrawFn) -> list[HostRecord]:
    """Some hosts that differ in the columns that our filters read."""
    return [
        host(
            host=f"h{i}",
            free_ram_mb=draw(st.sampled_from([0, 1024, 2048])),
            disabled=draw(st.booleans()),
            forced_down=draw(st.booleans()),
            last_seen_up=draw(
                st.sampled_from([NOW, NOW - 61, float("inf"), float("nan")])
            ),
            num_io_ops=draw(st.integers(0, 3)),
            num_instances=draw(st.integers(0, 5)),
            host_ip=draw(st.sampled_from([None, "10.0.0.1", "10.0.1.1", "fd00::1"])),
            metrics=draw(st.sampled_from([None, {}, {"cpu": 1.0}])),
            places=draw(st.sampled_from([(), (("rack", "r1"),), (("rack", "r2"),)])),
            stats=draw(st.sampled_from([{}, {"tier": "1"}, {"tier": "x"}])),
            cpu_info=draw(
                st.sampled_from([None, "{}", "[]", '{"maxphysaddr": {"bits": 42}}'])
            ),
            hypervisor_version=draw(st.sampled_from([0, 6002001, 8000000])),
            supported_instances=draw(
                st.sampled_from(
                    [
                        (),
                        (("x86_64", "kvm", "hvm"),),
                        (("aarch64", "kvm", "hvm"), ("x86_64", "qemu", "hvm")),
                    ]
                )
            ),
        )
        for i in range(draw(st.integers(1, 6)))
    ]


REQUESTS = st.builds(
    spec,
    extra_specs=st.sampled_from(
        [
            {},
            {"capabilities:free_ram_mb": ">= 1024"},
            {"capabilities:tier": "1", "tier": "1"},
            {"capabilities:cpu_info:maxphysaddr:bits": ">= 40"},
            {"aggregate_instance_extra_specs:tier": ">= 1"},
        ]
    ),
    image=st.sampled_from(
        [
            None,
            image(),
            image(hw_architecture="x86_64", img_hv_requested_version=">=7.0"),
            image(img_hv_type="kvm", hw_maxphysaddr_bits=48),
            ImageMeta(
                id=instance_uuid("image"), properties=ImageMetaProps(os_distro="rhel")
            ),
        ]
    ),
    instance_group=st.sampled_from(
        [
            None,
            group("affinity", hosts=["h0", "h3"]),
            group("anti-affinity", members=UUIDS),
            group("anti-affinity", members=UUIDS, rules={"max_server_per_host": "2"}),
        ]
    ),
    scheduler_hints=st.deferred(lambda: HINTS),
)
HINTS: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        {"same_host": UUIDS[:1]},
        {"same_host": UUIDS[:2], "different_host": UUIDS[2:]},
        {"build_near_host_ip": ["10.0.0.9"], "cidr": ["/24"]},
        {"query": ['["and", [">", "$free_ram_mb", 0], ["=", "$host_ip", "10.0.0.1"]]']},
        {"query": ['["=", "$stats.tier", "1", "$metrics.cpu"]']},
        {"in_rack": ["r1"], "different_rack": UUIDS[:1]},
        {"group_level": ["rack"], "max_server_per_rack": ["2"]},
        {"same_rack": UUIDS[:2]},
    ]
)
METADATA = st.sampled_from(
    [
        {},
        {"tier": "1,2"},
        {"tier": "x", "os_distro": "ubuntu"},
        {"os_distro": "rhel", "filter_tenant_id": "other"},
        {"filter_tenant_id2": "project", "instance_type": "big"},
        {"instance_type": "big, plain", "max_io_ops_per_host": "1"},
        {"max_io_ops_per_host": "x", "max_instances_per_host": "2"},
    ]
)
MEMBERS = st.lists(st.sampled_from(["h0", "h1", "h2"]), unique=True)
AGGREGATES = st.lists(st.tuples(MEMBERS, METADATA), max_size=4).map(
    lambda drawn: [aggregate(i, *m, **meta) for i, (m, meta) in enumerate(drawn)]
)
INSTANCES = st.dictionaries(
    st.sampled_from(["h0", "h1", "h2"]), st.lists(st.sampled_from(UUIDS), unique=True)
)


def _copied(rows: HostBatch) -> dict[str, list[Any]]:
    names = (*COLUMNS, "aggregates")
    return {name: [repr(v) for v in getattr(rows, name)] for name in names}


@examples(0.8)
@given(
    records=records(),
    spec_obj=REQUESTS,
    on=INSTANCES,
    aggregates=AGGREGATES,
    data=st.data(),
)
def test_filters_keep_the_contract(
    records: list[HostRecord],
    spec_obj: RequestSpec,
    on: dict[str, list[str]],
    aggregates: list[HostAggregate],
    data: st.DataObject,
) -> None:
    # All filters get what was drawn: drawing it takes longer than they do.
    rows = batch(*records, instances=on, aggregates=aggregates)
    if data.draw(st.booleans(), label="one placed already"):
        rows = rows.with_instance(
            0, instance_uuid("placed"), Consumption(memory_mb=1, disk_mb=1, vcpus=1)
        )
    order = np.array(data.draw(st.permutations(range(len(rows)))))
    hosts_before = _copied(rows)
    for filter_ in FILTERS:
        _check_contract(filter_, rows, spec_obj, order)
        assert _copied(rows) == hosts_before, filter_


def _check_contract(
    filter_: BaseHostFilter,
    rows: HostBatch,
    spec_obj: RequestSpec,
    order: np.ndarray[Any, Any],
) -> None:
    request_before, own_before = copy.deepcopy(spec_obj), dict(vars(filter_))
    prepared = filter_.prepare(spec_obj)
    mask = prepared.passing(rows, spec_obj)

    assert (mask.dtype, mask.shape) == (np.dtype(bool), (len(rows),))
    assert [prepared.host_passes(h, spec_obj) for h in rows] == mask.tolist()
    reasons = [prepared.explain_rejection(h, spec_obj) for h in rows]
    assert [reason is None for reason in reasons] == mask.tolist()
    assert all(t.attribute and t.required and t.available for t in reasons if t)
    assert prepared.passing(rows.take(order), spec_obj).tolist() == mask[order].tolist()
    assert spec_obj.obj_to_primitive() == request_before.obj_to_primitive()
    assert vars(filter_) == own_before


@pytest.mark.parametrize("filter_", FILTERS, ids=lambda f: type(f).__name__)
def test_filter_explains_its_rejection(filter_: Any) -> None:
    assert filter_.REASON != "rejected by the filter"


@examples(0.8)
@given(records=records(), spec_obj=REQUESTS, on=INSTANCES, aggregates=AGGREGATES)
def test_all_reasons_are_those_of_the_filters_that_reject(
    records: list[HostRecord],
    spec_obj: RequestSpec,
    on: dict[str, list[str]],
    aggregates: list[HostAggregate],
) -> None:
    for row in batch(*records, instances=on, aggregates=aggregates):
        rejecting = [
            f for f in FILTERS if not f.prepare(spec_obj).host_passes(row, spec_obj)
        ]
        reasons = explain_rejections(FILTERS, row, spec_obj)
        assert [t.filter for t in reasons] == [type(f).__name__ for f in rejecting]
        for filter_, found in zip(rejecting, reasons, strict=True):
            if isinstance(filter_, LocalityFilter):
                assert found.reason.partition(":")[0] in spec_obj.scheduler_hints
            else:
                assert found.reason == filter_.reason_for(spec_obj)


#: On rebuild? Once a request? As in nova 34.
FLAGS = {
    "AggregateImagePropertiesIsolation": (True, True),
    "AggregateInstanceExtraSpecsFilter": (False, True),
    "AggregateIoOpsFilter": (False, False),
    "AggregateMultiTenancyIsolation": (False, True),
    "AggregateNumInstancesFilter": (False, False),
    "AggregateTypeAffinityFilter": (False, True),
    "AllHostsFilter": (False, True),
    "DifferentHostFilter": (False, True),
    "IoOpsFilter": (False, False),
    "IsolatedHostsFilter": (True, True),
    "LocalityFilter": (False, False),  # nova has none
    "JsonFilter": (False, False),
    "MetricsFilter": (False, False),
    "NumInstancesFilter": (False, False),
    "NUMATopologyFilter": (False, False),
    "PciPassthroughFilter": (False, False),
    "SameHostFilter": (False, True),
    "SimpleCIDRAffinityFilter": (False, True),
    "ComputeFilter": (False, True),
    "ComputeCapabilitiesFilter": (False, True),
    "ImagePropertiesFilter": (True, True),
    "ServerGroupAntiAffinityFilter": (False, False),
    "ServerGroupAffinityFilter": (False, False),
}


def test_filters_run_for_the_same_requests_as_novas() -> None:
    flags = {
        type(f).__name__: (f.RUN_ON_REBUILD, f.run_filter_once_per_request)
        for f in FILTERS
    }
    assert flags == FLAGS
