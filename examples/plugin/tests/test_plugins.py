# SPDX-License-Identifier: Apache-2.0
"""The plugins meet Moorage's contract, and work as documented."""

import pytest
from moorage_example_plugin.fill import FillWeigher
from moorage_example_plugin.power import POWER, PowerWeigher
from moorage_example_plugin.quarantine import QuarantineFilter

from moorage.testing import (
    SchedulerFixture,
    aggregate,
    batch,
    batches,
    check_plugin,
    host,
    options,
    spec,
)


def test_filter_meets_the_contract():
    # Many of the generated aggregates have the key that this filter reads.
    check_plugin(
        QuarantineFilter, batches=batches(metadata={"quarantine": ("true", "false")})
    )


def test_weigher_meets_the_contract():
    check_plugin(FillWeigher)


def test_weigher_of_a_column_keeps_the_contract():
    hosts = batches(columns={"power_watts": (0.0, 90.0, 250.5)}, declared=[POWER])
    check_plugin(PowerWeigher, batches=hosts)


def test_host_that_draws_little_power_is_preferred():
    hosts = batch(host(power_watts=250.5), declared=[POWER])
    assert PowerWeigher(options()).weigh_all(hosts, spec()).tolist() == [-250.5]


def test_quarantined_host_is_rejected():
    hosts = batch(host(host="bad"), host(host="good"), aggregates=[_quarantine("bad")])
    mask = QuarantineFilter(options()).passing(hosts, spec())
    assert mask.tolist() == [False, True]


@pytest.mark.parametrize(
    ("free_ram_mb", "total_mb", "share"), [(0, 8192, 1), (6144, 8192, 0.25), (0, 0, 0)]
)
def test_weight_is_the_share_of_memory_in_use(free_ram_mb, total_mb, share):
    hosts = batch(host(free_ram_mb=free_ram_mb, total_usable_ram_mb=total_mb))
    assert FillWeigher(options()).weigh_all(hosts, spec()).tolist() == [share]


def test_scheduler_uses_both_by_name():
    running = SchedulerFixture(
        host(host="fullest", free_ram_mb=2048),
        host(host="half-full", free_ram_mb=8192),
        host(host="empty", free_ram_mb=16384),
        aggregates=[_quarantine("fullest")],
        options={
            "filter_scheduler": {
                "enabled_filters": ["ComputeFilter", "QuarantineFilter"],
                "weight_classes": ["FillWeigher"],
            }
        },
    )
    with running:
        request = spec()
        [[selected]] = running.api.select_destinations(
            {}, request, [request.instance_uuid]
        )
    assert selected.service_host == "half-full"


def test_driver_selects_the_first_host_that_fits():
    running = SchedulerFixture(
        host(host="full", vcpus_used=8),
        host(host="first"),
        host(host="emptier", vcpus_used=0),
        options={"moorage": {"driver": "FirstFit"}},
    )
    with running:
        asked = spec()
        [[chosen]] = running.api.select_destinations({}, asked, [asked.instance_uuid])
    assert chosen.service_host == "first"


def _quarantine(*names):
    return aggregate(1, *names, quarantine="true")
