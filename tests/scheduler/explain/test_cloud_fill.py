# SPDX-License-Identifier: Apache-2.0
"""How full the hosts are, by zone and cell."""

from __future__ import annotations

import math

import numpy as np
import pytest
from oslo_config import cfg

from moorage.scheduler.errors import InvalidRequest
from moorage.scheduler.explain import cloud_fill, summarize
from moorage.scheduler.hosts import Consumption
from moorage.testing.builders import NOW, aggregate, host, node_uuid, table


def test_hosts_are_grouped_by_zone_and_cell(conf: cfg.ConfigOpts) -> None:
    hosts = table(
        host(host="c", cell_uuid="one"),
        host(host="a", cell_uuid="two"),
        host(host="b", cell_uuid="two"),
        host(host="z", cell_uuid="one"),
        aggregates=[aggregate(1, "z", "a", "b", availability_zone="z1")],
    )
    groups = cloud_fill(hosts, conf, NOW).groups
    assert [(g.name, g.cell_uuid, g.hosts) for g in groups] == [
        ("nova", "one", ["c"]),
        ("z1", "one", ["z"]),
        ("z1", "two", ["a", "b"]),
    ]


def test_hosts_are_grouped_by_cell_or_by_the_places_of_a_level(
    conf: cfg.ConfigOpts,
) -> None:
    conf.set_override("levels", ["rack", "row"], group="locality")
    places = {"a": "r2", "b": "r1", "c": "r2"}
    hosts = table(
        host(host="0", cell_uuid="one"),
        *(
            host(host=name, cell_uuid="two", places=(("rack", rack),))
            for name, rack in places.items()
        ),
    )

    def groups(by: str) -> list[tuple[str, list[str]]]:
        fill = cloud_fill(hosts, conf, NOW, by)
        assert (fill.by, fill.n_cells) == (by, 2)
        return [(each.label, each.hosts) for each in fill.groups]

    assert groups("cell") == [("cell one", ["0"]), ("cell two", ["a", "b", "c"])]
    assert groups("rack") == [
        ("rack r1", ["b"]),
        ("rack r2", ["a", "c"]),
        ("no rack", ["0"]),
    ]
    assert groups("row") == [("no row", ["0", "a", "b", "c"])]
    with pytest.raises(InvalidRequest, match="'shelf' is none of availability-zone, "):
        cloud_fill(hosts, conf, NOW, "shelf")


def test_shares_include_allocation_ratios_and_claims(conf: cfg.ConfigOpts) -> None:
    hosts = table(host(host="a", cpu_allocation_ratio=4.0, ram_allocation_ratio=0.5))
    hosts.claims.consume(node_uuid("a"), "instance", Consumption(1024, 2048, 3))
    [group] = cloud_fill(hosts, conf, NOW).groups
    shares = {name: fill.share for name, fill in group.resources.items()}
    assert shares == {
        "vcpus": pytest.approx(5 / 32),
        "memory_mb": pytest.approx((8192 + 1024) / 8192),
        "disk_gb": pytest.approx(52 / 100),
    }


def test_a_host_without_a_resource_has_no_share(conf: cfg.ConfigOpts) -> None:
    [group] = cloud_fill(table(host(vcpus_total=0)), conf, NOW).groups
    assert np.isnan(group.resources["vcpus"].shares).all()
    assert math.isnan(group.resources["vcpus"].share)


def test_nodes_of_bare_metal_do_not_count_for_what_they_lack(
    conf: cfg.ConfigOpts,
) -> None:
    nothing = {"total_usable_ram_mb": 0, "vcpus_total": 0, "total_usable_disk_gb": 0}
    node = host(
        host="ironic",
        vcpus_used=32,
        free_ram_mb=-131072,
        free_disk_mb=-409600,
        **nothing,
    )
    [group] = cloud_fill(table(host(host="a"), node), conf, NOW).groups
    shares = {name: fill.share for name, fill in group.resources.items()}
    assert shares == {"vcpus": 2 / 8, "memory_mb": 0.5, "disk_gb": 0.5}


def test_conditions_are_those_of_the_list_of_hosts(conf: cfg.ConfigOpts) -> None:
    hosts = table(
        host(host="a", last_seen_up=NOW - 5),
        host(host="b", last_seen_up=NOW - 61),
        host(host="c", last_seen_up=math.nan),
        host(host="d", disabled=True, last_seen_up=NOW - 61),
        host(host="e", disabled=True, forced_down=True),
        host(host="f"),
    )
    fill = cloud_fill(hosts, conf, NOW)
    listed = [each.condition for each in summarize(hosts, conf, NOW).hosts]
    assert fill.groups[0].conditions == listed
    assert {k.value: n for k, n in fill.conditions.items()} == {
        "forced down": 1, "disabled": 1, "down": 2, "up": 2,
    }  # fmt: skip


def test_no_hosts_are_no_groups(conf: cfg.ConfigOpts) -> None:
    fill = cloud_fill(table(), conf, NOW)
    assert (fill.groups, fill.n_hosts, fill.n_instances) == ((), 0, 0)
