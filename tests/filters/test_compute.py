# SPDX-License-Identifier: Apache-2.0
"""A host whose compute service is disabled or down is rejected."""

from __future__ import annotations

import math
from typing import Any

import pytest
from oslo_config import cfg

from moorage.filters.compute import ComputeFilter

from ..conftest import NOW, batch, host, spec


@pytest.mark.parametrize(
    ("service", "passes"),
    [
        pytest.param({}, True, id="vouched for by its source"),
        pytest.param({"last_seen_up": NOW}, True, id="seen now"),
        pytest.param({"last_seen_up": NOW - 60}, True, id="seen just in time"),
        pytest.param({"last_seen_up": NOW - 60.1}, False, id="seen too long ago"),
        pytest.param({"last_seen_up": NOW + 60}, True, id="its clock is ahead"),
        pytest.param({"last_seen_up": NOW + 61}, False, id="its clock is far ahead"),
        pytest.param({"last_seen_up": math.nan}, False, id="never seen"),
        pytest.param({"disabled": True}, False, id="disabled"),
        pytest.param({"forced_down": True}, False, id="forced down"),
        pytest.param(
            {"forced_down": True, "last_seen_up": NOW}, False, id="forced, yet seen"
        ),
    ],
)
def test_service(service: dict[str, Any], passes: bool, conf: cfg.ConfigOpts) -> None:
    filter_ = ComputeFilter(conf, clock=lambda: NOW)
    assert filter_.passing(batch(host(**service)), spec()).tolist() == [passes]


def test_option_sets_the_age_at_which_a_service_is_down(conf: cfg.ConfigOpts) -> None:
    conf.set_override("service_down_time", 5)
    filter_ = ComputeFilter(conf, clock=lambda: NOW)
    rows = batch(
        host(host="a", last_seen_up=NOW - 5), host(host="b", last_seen_up=NOW - 6)
    )
    assert filter_.passing(rows, spec()).tolist() == [True, False]
