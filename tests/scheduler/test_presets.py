# SPDX-License-Identifier: Apache-2.0
"""[moorage] preset sets multipliers that no one has set, and records say so."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from moorage.scheduler.conf import load, registered_opts
from moorage.scheduler.conf.presets import PRESETS, multiplier
from moorage.scheduler.service import build
from moorage.scheduler.views.options import apply_options, set_options

from ..fixtures.clouds import (
    host,
    new_uuids,
    selected,
    started_scheduler,
    write_inventory,
)

#: Beside each other, nova's weighers select the first one, and packing the second one.
HOSTS = (
    host("large", vcpus=16, memory_mb=32768, local_gb=200),
    host("small", vcpus=4, memory_mb=8192, local_gb=50),
)
CPU = ("filter_scheduler", "cpu_weight_multiplier")


def options(**of_moorage: Any) -> cfg.ConfigOpts:
    conf = load([], config_files=[])
    for name, value in of_moorage.items():
        conf.set_override(name, value, group="moorage")
    return conf


@pytest.mark.parametrize("name", PRESETS)
def test_presets_set_options_that_exist_to_values_that_these_can_have(
    name: str,
) -> None:
    opts = {(group, opt.dest): opt for group, opt, _ in registered_opts(options())}
    for key, value in PRESETS[name].multipliers.items():
        assert opts[key].type(value) == value
        assert multiplier(options(preset=name), *key) == (value, name)


@pytest.mark.parametrize("driver", ["filter_scheduler", "solver"])
@pytest.mark.parametrize(
    ("given", "expected", "origins"),
    [
        pytest.param({}, "large", set(), id="default"),
        pytest.param({"moorage": {"preset": "nova"}}, "large", set(), id="nova"),
        pytest.param(
            {"moorage": {"preset": "pack"}},
            "small",
            {"CPUWeigher", "RAMWeigher", "DiskWeigher"},
            id="pack",
        ),
        pytest.param(
            {
                "moorage": {"preset": "pack"},
                "filter_scheduler": {
                    "ram_weight_multiplier": 1.0,
                    "disk_weight_multiplier": 1.0,
                },
            },
            "large",
            {"CPUWeigher"},
            id="an option that is set to its default outranks the preset",
        ),
    ],
)
def test_preset_decides_where_no_option_is_set(
    driver: str,
    given: dict[str, dict[str, object]],
    expected: str,
    origins: set[str],
    tmp_path: Path,
) -> None:
    given = {**given, "moorage": {**given.get("moorage", {}), "driver": driver}}
    with started_scheduler(tmp_path, *HOSTS, options=given) as scheduler:
        uuids = new_uuids(1)
        assert selected(scheduler, uuids[0]).service_host == expected
        [record] = scheduler.decisions.newest()
        packing = {n: o for n, o in record.origins.items() if o == "-1 by preset pack"}
        assert set(packing) == origins


@pytest.mark.parametrize(
    ("flavors", "expected"),
    [
        pytest.param([], "used", id="without flavors, the fuller host"),
        pytest.param(["2:1024=1", "4:30720=1"], "empty", id="room for a large flavor"),
    ],
)
def test_pack_keeps_room_for_the_flavors_that_are_set(
    flavors: list[str], expected: str, tmp_path: Path
) -> None:
    """The fuller host has the last room for 4 vCPUs with 30 GiB; the empty one more."""
    hosts = (
        host("empty", vcpus=16, memory_mb=65536),
        host("used", vcpus=4, memory_mb=31744),
    )
    given: dict[str, dict[str, object]] = {
        "moorage": {"preset": "pack"},
        "filter_scheduler": {"fragmentation_flavors": flavors},
    }
    with started_scheduler(tmp_path, *hosts, options=given) as scheduler:
        placed = selected(scheduler, new_uuids()[0], vcpus=2, memory_mb=2048)
        assert placed.service_host == expected
        [record] = scheduler.decisions.newest()
        origin = record.origins.get("FragmentationWeigher", "")
        assert origin.startswith("8 by preset pack") == bool(flavors)


def test_metadata_of_an_aggregate_outranks_the_preset(tmp_path: Path) -> None:
    metadata = {f"{name}_weight_multiplier": "1" for name in ("cpu", "ram", "disk")}
    aggregate = {"name": "all", "hosts": ["large", "small"], "metadata": metadata}
    conf = options(preset="pack")
    file = write_inventory(tmp_path, *HOSTS, aggregates=[aggregate])
    conf.set_override("inventory_file", str(file), group="moorage")
    scheduler = build(conf)
    try:
        scheduler.start()
        assert selected(scheduler, new_uuids()[0]).service_host == "large"
    finally:
        scheduler.stop()


def test_preset_that_is_reloaded_applies(tmp_path: Path) -> None:
    with started_scheduler(tmp_path, *HOSTS) as scheduler:
        scheduler.conf.set_override("preset", "pack", group="moorage")
        scheduler.reset()
        assert selected(scheduler, new_uuids()[0]).service_host == "small"


def test_view_has_what_outranks_a_preset() -> None:
    conf = options(preset="pack")
    conf.set_override(CPU[1], 1.0, group=CPU[0])
    stored = set_options(conf)
    assert stored["moorage"]["preset"] == "pack"
    replayed = options()
    assert apply_options(replayed, stored)
    ram = ("filter_scheduler", "ram_weight_multiplier")
    assert multiplier(replayed, *CPU) == (1.0, "")
    assert multiplier(replayed, *ram) == (-1.0, "pack")


@pytest.mark.parametrize(
    ("changes", "is_warned"),
    [
        pytest.param({}, True, id="by default"),
        pytest.param({"preset": "nova"}, False, id="the operator chose nova"),
        pytest.param({"preset": "pack"}, False, id="pack"),
        pytest.param({"preset": "balanced"}, False, id="balanced"),
    ],
)
def test_start_warns_of_large_flavors_that_nothing_keeps_room_for(
    changes: dict[str, object],
    is_warned: bool,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = {"decision_store_connection": f"sqlite:///{tmp_path}/decisions.sqlite"}
    with started_scheduler(tmp_path, *HOSTS, options={"moorage": store}) as scheduler:
        for vcpus in (1, 9):  # more than half of the largest host has
            selected(scheduler, new_uuids()[0], vcpus=vcpus)
    caplog.clear()
    caplog.set_level(logging.WARNING, "moorage.scheduler.lifecycle")
    again = {"moorage": {**store, **changes}}
    with started_scheduler(tmp_path, *HOSTS, options=again):
        warnings = [m for m in caplog.messages if "flavor(s)" in m]
    assert len(warnings) == is_warned
    assert all(m.startswith("Recent requests were for 1 flavor(s)") for m in warnings)
