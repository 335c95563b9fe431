# SPDX-License-Identifier: Apache-2.0
"""The plugins keep Moorage's contract, and do what their docstrings say."""

import pytest
from moorage_example_plugin.fill import FillWeigher
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


def test_filter_keeps_the_contract():
    # Aggregates of all kinds, and often with the key that this filter reads.
    check_plugin(
        QuarantineFilter, batches=batches(metadata={"quarantine": ("true", "false")})
    )


def test_weigher_keeps_the_contract():
    check_plugin(FillWeigher)


def test_quarantined_host_is_rejected():
    hosts = batch(host(host="ill"), host(host="well"), aggregates=[_quarantine("ill")])
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
        asked = spec()
        [[chosen]] = running.api.select_destinations({}, asked, [asked.instance_uuid])
    assert chosen.service_host == "half-full"


def test_driver_takes_the_first_host_that_fits():
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
