# SPDX-License-Identifier: Apache-2.0
"""Hosts as an operator asks for them: state, age, fill, claims, pages."""

from __future__ import annotations

import math
from typing import Any

import pytest
from oslo_config import cfg

from moorage.scheduler.explain import HostSummary, summarize
from moorage.scheduler.hosts import Consumption
from moorage.testing.builders import NOW, aggregate, host, node_uuid, table


def _one(conf: cfg.ConfigOpts, **changes: Any) -> HostSummary:
    [summary] = summarize(table(host(**changes)), conf, NOW).hosts
    return summary


@pytest.mark.parametrize(
    ("changes", "condition", "seen_s"),
    [
        ({}, "up", None),
        ({"last_seen_up": NOW - 5}, "up", 5.0),
        ({"last_seen_up": NOW - 61}, "down", 61.0),
        ({"last_seen_up": math.nan}, "down", None),
        ({"disabled": True, "last_seen_up": NOW - 61}, "disabled", 61.0),
        ({"disabled": True, "forced_down": True}, "forced down", None),
    ],
)
def test_the_condition_is_what_compute_filter_sees(
    conf: cfg.ConfigOpts, changes: Any, condition: str, seen_s: float | None
) -> None:
    summary = _one(conf, **changes)
    assert (summary.condition, summary.seen_s) == (condition, seen_s)


@pytest.mark.parametrize(
    ("is_disabled", "reason", "shown"),
    [(True, "fan", "fan"), (True, None, ""), (False, "fan", "")],
)
def test_reason_is_that_of_a_disabled_host(
    conf: cfg.ConfigOpts, is_disabled: bool, reason: str | None, shown: str
) -> None:
    summary = _one(conf, disabled=is_disabled, disabled_reason=reason)
    assert summary.disabled_reason == shown


@pytest.mark.parametrize("name", ["north", ""], ids=["named", "unnamed"])
def test_a_cell_without_a_name_is_its_uuid(conf: cfg.ConfigOpts, name: str) -> None:
    hosts = table(host())
    [cell_uuid] = hosts.batch().cell_uuid.tolist()
    hosts.put_cell_names({cell_uuid: name})
    [summary] = summarize(hosts, conf, NOW).hosts
    assert (summary.cell_uuid, summary.cell) == (cell_uuid, name or cell_uuid)


def test_fill_includes_claims(conf: cfg.ConfigOpts) -> None:
    hosts = table(host(host="a"), aggregates=[aggregate(1, "a", availability_zone="z")])
    hosts.claims.consume(node_uuid("a"), "instance", Consumption(1024, 2048, 3))
    [summary] = summarize(hosts, conf, NOW).hosts
    assert summary.vcpus == (5, 8)
    assert summary.memory_mb == (8192 + 1024, 16384)
    assert summary.disk_gb == (52, 100)
    assert (summary.n_instances, summary.n_claims, summary.zone) == (1, 1, "z")


def test_places_are_those_of_the_configured_levels(conf: cfg.ConfigOpts) -> None:
    conf.set_override("levels", ["rack", "row"], group="locality")
    in_row = aggregate(1, "a", **{"moorage:level": "row", "moorage:place": "left"})
    hosts = table(
        host(host="a", places=(("rack", "r1"), ("room", "m1"))), aggregates=[in_row]
    )
    [summary] = summarize(hosts, conf, NOW).hosts
    assert summary.places == {"rack": ["r1"], "row": ["left"]}


def test_pages_have_each_host_once(conf: cfg.ConfigOpts) -> None:
    names = ["a", "a-b", "a.b", "a/b", "b", "A", "\u00e4"]
    hosts = table(*(host(host=name) for name in names))
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page = summarize(hosts, conf, NOW, after=after, limit=2)
        found += [each.host for each in page.hosts]
        after = page.next
    assert sorted(found) == sorted(names)
