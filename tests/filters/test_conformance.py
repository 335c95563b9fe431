# SPDX-License-Identifier: Apache-2.0
"""Every filter of ours: both forms agree, order is nothing to it, it writes nothing."""

from __future__ import annotations

import copy
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from moorage.objects import RequestSpec
from moorage.scheduler.drivers.plugins import load_filters
from moorage.scheduler.hosts import Consumption, HostBatch, HostRecord
from moorage.scheduler.hosts.record import INTERNED, NUMBERS

from ..conftest import NOW, batch, group, host, image, instance_uuid, options, spec

FILTERS = load_filters(options(), lambda: NOW)
UUIDS = [instance_uuid(i) for i in range(4)]


@st.composite
def records(draw: st.DrawFn) -> list[HostRecord]:
    """Some hosts that differ in what our filters look at."""
    return [
        host(
            host=f"h{i}",
            free_ram_mb=draw(st.sampled_from([0, 1024, 2048])),
            disabled=draw(st.booleans()),
            forced_down=draw(st.booleans()),
            last_seen_up=draw(
                st.sampled_from([NOW, NOW - 61, float("inf"), float("nan")])
            ),
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
        ]
    ),
    image=st.sampled_from(
        [
            None,
            image(),
            image(hw_architecture="x86_64", img_hv_requested_version=">=7.0"),
            image(img_hv_type="kvm", hw_maxphysaddr_bits=48),
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
)
INSTANCES = st.dictionaries(
    st.sampled_from(["h0", "h1", "h2"]), st.lists(st.sampled_from(UUIDS), unique=True)
)


def _copied(rows: HostBatch) -> dict[str, list[Any]]:
    names = (*NUMBERS, *INTERNED, "aggregates")
    return {name: [repr(v) for v in getattr(rows, name)] for name in names}


@pytest.mark.parametrize("filter_", FILTERS, ids=lambda f: type(f).__name__)
@settings(max_examples=40, deadline=None)
@given(records=records(), asked=REQUESTS, on=INSTANCES, data=st.data())
def test_filter_keeps_the_contract(
    filter_: Any,
    records: list[HostRecord],
    asked: RequestSpec,
    on: dict[str, list[str]],
    data: st.DataObject,
) -> None:
    rows = batch(*records, instances=on)
    if data.draw(st.booleans(), label="one placed already"):
        rows = rows.with_instance(
            0, instance_uuid("placed"), Consumption(memory_mb=1, disk_mb=1, vcpus=1)
        )
    request_before, hosts_before = copy.deepcopy(asked), _copied(rows)
    own_before = dict(vars(filter_))
    prepared = filter_.prepare(asked)
    mask = prepared.passing(rows, asked)

    assert (mask.dtype, mask.shape) == (np.dtype(bool), (len(rows),))
    assert [prepared.host_passes(h, asked) for h in rows] == mask.tolist()
    order = np.array(data.draw(st.permutations(range(len(rows)))))
    assert prepared.passing(rows.take(order), asked).tolist() == mask[order].tolist()
    assert asked.obj_to_primitive() == request_before.obj_to_primitive()
    assert _copied(rows) == hosts_before
    assert vars(filter_) == own_before


@pytest.mark.parametrize("filter_", FILTERS, ids=lambda f: type(f).__name__)
def test_filter_says_why_it_rejects(filter_: Any) -> None:
    assert filter_.REASON != "the filter says no"


#: On rebuild? Once a request? As in nova 34.
FLAGS = {
    "ComputeFilter": (False, True),
    "ComputeCapabilitiesFilter": (False, True),
    "ImagePropertiesFilter": (True, True),
    "ServerGroupAntiAffinityFilter": (False, False),
    "ServerGroupAffinityFilter": (False, False),
}


def test_filters_are_asked_when_nova_asks_its_own() -> None:
    asked = {
        type(f).__name__: (f.RUN_ON_REBUILD, f.run_filter_once_per_request)
        for f in FILTERS
    }
    assert asked == FLAGS
