# SPDX-License-Identifier: Apache-2.0
"""The change that MetricsFilter is not enabled says what else it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.errors import HostMetricNotFound, NoValidHost
from moorage.scheduler.service import Scheduler, build

from ...fixtures.clouds import CONTEXT, host, write_inventory
from ...fixtures.placed_clouds import chosen_hosts, placing


def _scheduler(folder: Path, filters: list[str], *, is_required: bool) -> Scheduler:
    conf = moorage_conf.load([], config_files=[])
    path = write_inventory(folder, host("a"), host("b"))
    conf.set_override("inventory_file", str(path), group="moorage")
    conf.set_override("enabled_filters", filters, group="filter_scheduler")
    conf.set_override("weight_setting", ["cpu.frequency=1.0"], group="metrics")
    conf.set_override("required", is_required, group="metrics")
    scheduler = build(conf)
    scheduler.start()
    return scheduler


@pytest.mark.parametrize("is_required", [True, False], ids=["required", "optional"])
def test_request_without_metrics_filter_needs_what_closest_says(
    tmp_path: Path, is_required: bool
) -> None:
    scheduler = _scheduler(tmp_path, ["MetricsFilter"], is_required=is_required)
    spec, uuids = placing()
    with pytest.raises(NoValidHost):
        chosen_hosts(scheduler, spec, uuids)
    [group] = scheduler.explainer.closest(CONTEXT, spec).groups
    scheduler.stop()
    [change] = group.changes
    assert change.text == "metrics cpu.frequency reported by the hosts"
    assert change.needs_operator
    assert change.alternative.startswith("MetricsFilter not in enabled_filters")
    says_more = change.alternative.endswith("and [metrics] required = False")
    assert says_more == is_required
    scheduler = _scheduler(tmp_path, ["ComputeFilter"], is_required=is_required)
    if is_required:
        with pytest.raises(HostMetricNotFound):
            chosen_hosts(scheduler, spec, uuids)
    else:
        assert chosen_hosts(scheduler, spec, uuids)
    scheduler.stop()
