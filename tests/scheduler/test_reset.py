# SPDX-License-Identifier: Apache-2.0
"""`Scheduler.reset` loads all plugins again, and uses all of the new ones or none."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from moorage.filters import BaseHostFilter
from moorage.scheduler.drivers.record import DecisionRecord
from moorage.scheduler.errors import NoValidHost, PluginError
from moorage.testing import SchedulerFixture, host, spec
from moorage.weighers import BaseHostWeigher

from ..fixtures.clouds import CONTEXT, new_uuids

GROUP = "filter_scheduler"


class GateFilter(BaseHostFilter):
    """Pass all hosts, after the gate was opened."""

    has_begun = threading.Event()
    gate = threading.Event()

    def passing(self, hosts: Any, spec_obj: Any) -> Any:
        self.has_begun.set()
        assert self.gate.wait(60)
        return hosts.free_ram_mb > 0


class BrokenWeigher(BaseHostWeigher):
    """Look for what is not there when it is made."""

    def __init__(self, conf: Any, **more: Any) -> None:
        super().__init__(conf, **more)
        racks: dict[str, Any] = {}
        self.racks = racks["rack"]

    def weigh_host(self, host_state: Any, spec_obj: Any) -> float:
        return float(self.racks[host_state.host])


@pytest.fixture
def cloud() -> Iterator[SchedulerFixture]:
    """Two hosts and the filter ComputeFilter."""
    options = {
        GROUP: {
            "enabled_filters": ["ComputeFilter"],
            "weight_classes": ["RAMWeigher"],
            "available_filters": [f"{__name__}.GateFilter"],
        }
    }
    with SchedulerFixture(
        host(host="large", free_ram_mb=16000), host(host="small"), options=options
    ) as cloud:
        yield cloud


def _set(cloud: SchedulerFixture, **values: object) -> None:
    for name, value in values.items():
        cloud.scheduler.conf.set_override(name, value, GROUP)


def _select(cloud: SchedulerFixture, n_instances: int = 1) -> DecisionRecord:
    """Return the record of a request that was decided."""
    uuids = new_uuids(n_instances)
    cloud.scheduler.select_destinations(
        CONTEXT, spec(num_instances=n_instances, instance_uuid=uuids[0]), uuids, True
    )
    return cloud.scheduler.decisions.newest(1)[0]


def _filters(record: DecisionRecord) -> list[str]:
    return [step.name for step in record.steps]


def _weighers(record: DecisionRecord) -> list[str]:
    return [part.name for part in record.instances[0].top_hosts[0].parts]


def test_changed_lists_take_effect(cloud: SchedulerFixture) -> None:
    before = _select(cloud)
    _set(
        cloud,
        enabled_filters=["IoOpsFilter", "ComputeFilter"],
        weight_classes=["CPUWeigher", "DiskWeigher"],
    )
    cloud.scheduler.reset()
    after = _select(cloud)
    assert (_filters(before), _weighers(before)) == (["ComputeFilter"], ["RAMWeigher"])
    assert _filters(after) == ["IoOpsFilter", "ComputeFilter"]
    assert _weighers(after) == ["CPUWeigher", "DiskWeigher"]


def test_option_that_a_plugin_reads_when_it_is_made_takes_effect(
    cloud: SchedulerFixture,
) -> None:
    _set(cloud, enabled_filters=["ImagePropertiesFilter"])
    cloud.scheduler.reset()
    _select(cloud)
    _set(cloud, image_properties_default_architecture="aarch64")
    cloud.scheduler.reset()
    with pytest.raises(NoValidHost):
        _select(cloud)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        pytest.param(
            {"enabled_filters": ["IoOpsFilter", "NoSuchFilter"]},
            r"\[filter_scheduler\] enabled_filters: there is no filter 'NoSuchFilter'",
            id="filter",
        ),
        pytest.param(
            {"enabled_filters": ["IoOpsFilter"], "weight_classes": ["NoSuchWeigher"]},
            r"\[filter_scheduler\] weight_classes: there is no weigher",
            id="weigher",
        ),
        pytest.param(
            {"weight_classes": ["no.such.module.Weigher"]},
            "no.such.module.Weigher cannot be used: ModuleNotFoundError",
            id="path",
        ),
        pytest.param(
            {
                "enabled_filters": ["ImagePropertiesFilter"],
                "image_properties_default_architecture": "arm64",
            },
            r"'ImagePropertiesFilter' \(moorage.filters.image_properties, of moorage "
            r"[^)]+\) cannot be made: .*arm64",
            id="option of a filter",
        ),
        pytest.param(
            {"weight_classes": [f"{__name__}.BrokenWeigher"]},
            r"'BrokenWeigher' \(.*test_reset.*\) cannot be made: KeyError: 'rack'",
            id="weigher that fails",
        ),
    ],
)
def test_wrong_plugin_is_named_and_leaves_all_in_use(
    wrong: dict[str, Any], message: str, cloud: SchedulerFixture
) -> None:
    _set(cloud, **wrong)
    with pytest.raises(PluginError, match=message):
        cloud.scheduler.reset()
    record = _select(cloud)
    assert (_filters(record), _weighers(record)) == (["ComputeFilter"], ["RAMWeigher"])


def test_running_decision_keeps_its_plugins(
    cloud: SchedulerFixture,
) -> None:
    _set(cloud, enabled_filters=["GateFilter", "IoOpsFilter"])
    cloud.scheduler.reset()
    GateFilter.has_begun.clear()
    GateFilter.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(_select, cloud, 2)
        assert GateFilter.has_begun.wait(60)
        _set(cloud, enabled_filters=["ComputeFilter"], weight_classes=["CPUWeigher"])
        cloud.scheduler.reset()
        meanwhile = _select(cloud)
        GateFilter.gate.set()
        begun_before = call.result(60)
    assert _filters(meanwhile) == ["ComputeFilter"]
    # One round of filters an instance, the second one long after the change.
    assert set(_filters(begun_before)) == {"GateFilter", "IoOpsFilter"}
    assert _weighers(begun_before) == ["RAMWeigher"]


def test_reload_does_not_undo_what_another_thread_sets(
    cloud: SchedulerFixture,
) -> None:
    scheduler, ends = cloud.scheduler, threading.Event()
    plugins = scheduler.lifecycle.load_plugins()

    def reload() -> None:
        while not ends.is_set():
            scheduler.use(plugins)

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(1) as pool:
            reloading = pool.submit(reload)
            for _ in range(2000):
                announced: list[object] = []
                scheduler.publish_claims = announced.extend
                ends.wait(0)  # lets the other thread run
                kept = scheduler.publish_claims
                if kept != announced.extend:
                    break
            ends.set()
            reloading.result()
    finally:
        sys.setswitchinterval(interval_s)
    assert kept == announced.extend
