# SPDX-License-Identifier: Apache-2.0
"""Metrics are summed with their ratios; one that is missing fails, or weighs little."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.scheduler.errors import HostMetricNotFound
from moorage.weighers.metrics import MetricsWeigher

from ..conftest import aggregate, batch, hosts, options, spec

UNAVAILABLE = -10000.0


def weigher(*setting: str, **metrics: Any) -> MetricsWeigher:
    conf = options()
    for name, value in {"weight_setting": list(setting), **metrics}.items():
        conf.set_override(name, value, group="metrics")
    return MetricsWeigher(conf)


def test_metrics_are_summed_with_their_ratios() -> None:
    rows = batch(*hosts("metrics", [{"a": 2, "b": 3}, {"a": 1.5, "b": 0, "c": 9}]))
    assert weigher("a=2", "b=-1").weigh_all(rows, spec()).tolist() == [1, 3]


def test_without_a_setting_no_metric_is_needed() -> None:
    rows = batch(*hosts("metrics", [None, {"a": 1}]))
    assert weigher().weigh_all(rows, spec()).tolist() == [0, 0]


@pytest.mark.parametrize("metrics", [None, {}, {"b": 1}])
def test_required_metric_that_is_missing_fails_the_request(metrics: Any) -> None:
    rows = batch(*hosts("metrics", [{"a": 1}, metrics]))
    with pytest.raises(HostMetricNotFound) as failure:
        weigher("a=1").weigh_all(rows, spec())
    assert str(failure.value) == (
        "Metric a could not be found on the compute host node b.b. Enable "
        "MetricsFilter, or set [metrics] required to False."
    )


def test_hosts_beside_the_batch_need_no_metric() -> None:
    rows = batch(*hosts("metrics", [{"a": 1}, None])).take([0])
    assert weigher("a=1").weigh_all(rows, spec()).tolist() == [1]


@pytest.mark.parametrize(
    ("setting", "raw"),
    [
        pytest.param(["a=1"], UNAVAILABLE, id="missing"),
        pytest.param(["b=1"], 5, id="there"),
        pytest.param(["b=1", "a=1"], UNAVAILABLE, id="one of two"),
        pytest.param(["b=1", "a=0"], 5, id="missing, with ratio 0"),
    ],
)
def test_metric_that_need_not_be_there(setting: list[str], raw: float) -> None:
    rows = batch(*hosts("metrics", [{"b": 5}, {"a": 1, "b": 1}]))
    weights = weigher(*setting, required=False).weigh_all(rows, spec())
    assert weights[0] == raw


def test_missing_metric_is_passed_over_where_the_multiplier_is_0() -> None:
    off = aggregate(1, "a", metrics_weight_multiplier="0")
    rows = batch(*hosts("metrics", [{"b": 5}, {"b": 5}]), aggregates=[off])
    made = weigher("a=1", "b=2", required=False, weight_of_unavailable=-7)
    assert made.weigh_all(rows, spec()).tolist() == [10, -7]


def test_multiplier_is_the_groups_own_option_and_metadata_key() -> None:
    mine = aggregate(1, "a", metrics_weight_multiplier="3", weight_multiplier="9")
    rows = batch(*hosts("metrics", [None, None]), aggregates=[mine])
    assert weigher(weight_multiplier=-2).multipliers(rows).tolist() == [3, -2]
