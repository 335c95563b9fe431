# SPDX-License-Identifier: Apache-2.0
"""Raw weights are normalized to 0..1 and multiplied as in nova."""

from __future__ import annotations

import logging
import math
from typing import Any, ClassVar

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from oslo_config import cfg

from moorage.objects import RequestSpec
from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler.hosts import HostBatch, HostState
from moorage.weighers import BaseHostWeigher
from moorage.weighers.base import normalize, weight_range
from moorage.weighers.columns import RAMWeigher

from ..conftest import aggregate, batch, hosts, options, spec

THREE = hosts("free_ram_mb", [1, 2, 3])


@pytest.mark.parametrize(
    ("raw", "ends", "normalized"),
    [
        pytest.param([0, 1, 50], {}, [0, 0.02, 1], id="failed builds"),
        pytest.param([0, -1, -5], {}, [1, 0.8, 0], id="soft anti-affinity"),
        pytest.param([5, 5, 5], {}, [0, 0, 0], id="all equal"),
        pytest.param([5, 5, 5], {"minval": 0}, [1, 1, 1], id="all equal, from 0"),
        pytest.param([0, 0], {"minval": 0}, [0, 0], id="all zero, from 0"),
        pytest.param([-50, 50, 100], {"minval": 0}, [0, 0.5, 1], id="below the least"),
        pytest.param([-5, -1], {"minval": 0}, [0, 0], id="all below the least"),
        pytest.param([0, 5, 20], {"maxval": 10}, [0, 0.5, 1], id="above the greatest"),
        pytest.param([2, 4], {"minval": 0, "maxval": 8}, [0.25, 0.5], id="both ends"),
        pytest.param([6002001, 6002002], {}, [0, 1], id="hardly different"),
        pytest.param([7], {}, [0], id="one"),
    ],
)
def test_normalize(raw: list[float], ends: Any, normalized: list[float]) -> None:
    weights = np.array(raw, np.float64)
    low, high = weight_range(weights, ends.get("minval"), ends.get("maxval"))
    of = normalize(weights, low, high)
    assert of.tolist() == pytest.approx(normalized, abs=1e-12)
    assert weights.tolist() == raw


WEIGHTS = st.floats(-1e12, 1e12)
ENDS = st.none() | st.floats(-1e6, 1e6)


def _as_in_nova(raw: list[float], low: float | None, high: float | None) -> list[float]:
    clamped = [w if low is None else max(w, low) for w in raw]
    clamped = [w if high is None else min(w, high) for w in clamped]
    high = max(clamped) if high is None else high
    low = min(clamped) if low is None else low
    if low == high:
        return [0.0] * len(raw)
    return [(w - low) / (high - low) for w in clamped]


@given(st.lists(WEIGHTS, min_size=1), ENDS, ENDS)
def test_normalize_is_novas_rule(
    raw: list[float], low: float | None, high: float | None
) -> None:
    if low is not None and high is not None and low > high:
        low, high = high, low
    weights = np.array(raw)
    normalized = normalize(weights, *weight_range(weights, low, high))
    assert normalized.tolist() == pytest.approx(_as_in_nova(raw, low, high), abs=1e-9)


@pytest.mark.parametrize(
    ("metadata", "multiplier"),
    [
        pytest.param([], 1.0, id="no aggregate"),
        pytest.param([{"other": "7"}], 1.0, id="no override"),
        pytest.param([{"ram_weight_multiplier": "2.5"}], 2.5, id="one"),
        pytest.param(
            [{"ram_weight_multiplier": "2.5"}, {"ram_weight_multiplier": "-3"}],
            -3.0,
            id="the least of two",
        ),
        pytest.param(
            [{"ram_weight_multiplier": "10"}, {"ram_weight_multiplier": "9"}],
            9.0,
            id="as numbers, not as text",
        ),
        pytest.param([{"ram_weight_multiplier": "much"}], 1.0, id="no number"),
        pytest.param(
            [{"ram_weight_multiplier": "2"}, {"ram_weight_multiplier": "much"}],
            1.0,
            id="one of two is no number",
        ),
        *[
            pytest.param([{"ram_weight_multiplier": text}], 1.0, id=text)
            for text in ("nan", "inf", "-inf", "1e999", "Infinity", "9" * 400)
        ],
        pytest.param(
            [{"ram_weight_multiplier": "-3"}, {"ram_weight_multiplier": "nan"}],
            1.0,
            id="one of two is not finite",
        ),
    ],
)
def test_aggregates_override_the_multiplier_of_their_hosts(
    metadata: list[dict[str, str]], multiplier: float, conf: cfg.ConfigOpts
) -> None:
    mine = [aggregate(i, "b", **m) for i, m in enumerate(metadata)]
    rows = batch(*THREE, aggregates=mine)
    multipliers = RAMWeigher(conf).multipliers(rows)
    assert multipliers.tolist() == [1.0, multiplier, 1.0]


@pytest.mark.parametrize("text", ["much", "nan", "1e999"])
def test_override_that_is_no_number_is_warned_of_once(
    text: str, conf: cfg.ConfigOpts, caplog: pytest.LogCaptureFixture
) -> None:
    mine = aggregate(1, "a", ram_weight_multiplier=text)
    weigher, rows = RAMWeigher(conf), batch(*THREE, aggregates=[mine])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            weigher.multipliers(rows)
    assert caplog.text.count("aggregate1: ram_weight_multiplier must be a finite") == 1


def test_option_is_the_multiplier_of_the_rest() -> None:
    weigher = RAMWeigher(options(ram_weight_multiplier=-4.0))
    assert weigher.multipliers(batch(*THREE)).tolist() == [-4.0] * 3


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_option_that_is_not_finite_stops_the_start(value: float) -> None:
    message = r"\[filter_scheduler\] ram_weight_multiplier is .*finite number"
    with pytest.raises(ConfigurationError, match=message):
        RAMWeigher(options(ram_weight_multiplier=value))


class OwnInit(BaseHostWeigher):
    """Has what a plugin needs by an `__init__` of its own."""

    MULTIPLIER: ClassVar[str | None] = "ram_weight_multiplier"

    def __init__(self, conf: cfg.ConfigOpts, *, clock: Any = None) -> None:
        self.conf, self.clock = conf, clock

    def weigh_host(self, host_state: HostState, spec_obj: RequestSpec) -> float:
        return float(host_state.free_ram_mb)


class LateMultiplier(OwnInit):
    """Chooses the option of its multiplier when it is made."""

    MULTIPLIER: ClassVar[str | None] = None

    def __init__(self, conf: cfg.ConfigOpts, *, clock: Any = None) -> None:
        BaseHostWeigher.__init__(self, conf, clock=clock)
        self.MULTIPLIER = "ram_weight_multiplier"  # type: ignore[misc]


@pytest.mark.parametrize("plugin", [OwnInit, LateMultiplier])
def test_option_counts_however_a_plugin_is_made(plugin: type[BaseHostWeigher]) -> None:
    weigher = plugin(options(ram_weight_multiplier=2.5))
    assert weigher.multipliers(batch(*THREE)).tolist() == [2.5] * 3


def test_weigher_without_an_option_is_multiplied_by_one(conf: cfg.ConfigOpts) -> None:
    assert PerHost(conf).multipliers(batch(*THREE)).tolist() == [1.0] * 3


class PerHost(BaseHostWeigher):
    def weigh_host(self, host_state: HostState, spec_obj: RequestSpec) -> float:
        return float(host_state.free_ram_mb)


class Columns(BaseHostWeigher):
    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Any:
        return hosts.free_ram_mb.astype(float)


@pytest.mark.parametrize("form", [PerHost, Columns])
def test_each_form_answers_for_the_other(
    form: type[BaseHostWeigher], conf: cfg.ConfigOpts
) -> None:
    weigher, rows = form(conf), batch(*THREE)
    weights = weigher.weigh_all(rows, spec())
    assert (weights.dtype, weights.tolist()) == (np.float64, [1.0, 2.0, 3.0])
    assert [weigher.weigh_host(h, spec()) for h in rows] == weights.tolist()


def test_weigher_with_neither_form_is_refused_when_its_class_is_made() -> None:
    with pytest.raises(TypeError, match="Neither defines neither weigh_all nor weigh"):
        type("Neither", (BaseHostWeigher,), {})
