# SPDX-License-Identifier: Apache-2.0
"""A host has to report every metric that hosts are weighed by."""

from __future__ import annotations

import pytest

from moorage.filters.metrics import MetricsFilter
from moorage.scheduler.conf import load

from ..conftest import batch, hosts, spec


def _filter(*settings: str) -> MetricsFilter:
    conf = load([], config_files=[])
    conf.set_override("weight_setting", list(settings), group="metrics")
    return MetricsFilter(conf)


@pytest.mark.parametrize(
    ("settings", "passing"),
    [
        pytest.param([], [True, True, True, True], id="none required"),
        pytest.param(["cpu=1.0"], [True, True, False, False], id="one"),
        pytest.param(["cpu=1.0", "mem=-1"], [True, False, False, False], id="two"),
        pytest.param(["other=1"], [False] * 4, id="one that nobody has"),
    ],
)
def test_metrics(settings: list[str], passing: list[bool]) -> None:
    metrics = [{"cpu": 1.0, "mem": 2.0}, {"cpu": 1.0}, {}, None]
    rows = batch(*hosts("metrics", metrics))
    assert _filter(*settings).passing(rows, spec()).tolist() == passing


def test_host_without_monitors_is_rejected_and_fails_no_request() -> None:
    rows = batch(*hosts("metrics", [None]))
    reason = _filter("cpu=1", "mem=1").explain_rejection(rows[0], spec())
    assert reason is not None
    assert (reason.attribute, reason.required, reason.available) == (
        "metrics",
        "cpu, mem",
        "nothing",
    )


def test_setting_that_is_none_is_ignored_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    filter_ = _filter("cpu=1.0", "mem", "disk=x", "=1")
    assert filter_.passing(batch(*hosts("metrics", [{"cpu": 1}])), spec()).all()
    (record,) = caplog.records
    assert record.getMessage().endswith("not NAME=NUMBER: mem, disk=x, =1")


def test_filters_of_other_settings_do_not_share_answers() -> None:
    rows = batch(*hosts("metrics", [{"cpu": 1.0}]))
    assert _filter("cpu=1").passing(rows, spec()).all()
    assert not _filter("mem=1").passing(rows, spec()).any()
