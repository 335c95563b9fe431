# SPDX-License-Identifier: Apache-2.0
"""A scheduler that ends, or cannot be made, leaves nothing behind."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import fixtures
import pytest

from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.drivers.filter_scheduler import FilterScheduler
from moorage.scheduler.errors import ConfigurationError, PluginError
from moorage.scheduler.service import build

from ..fixtures.clouds import host, write_inventory
from ..fixtures.placement_servers import adapter_to
from ..fixtures.ports import refusing_url


def test_driver_that_cannot_be_made_leaves_nothing_open(tmp_path: Path) -> None:
    def fail(_self: object, _conf: object) -> None:
        raise RuntimeError("no driver")

    conf = moorage_conf.load([], config_files=[])
    inventory = write_inventory(tmp_path, host("h1"))
    conf.set_override("inventory_file", str(inventory), group="moorage")
    with (
        fixtures.MonkeyPatch(
            f"{FilterScheduler.__module__}.FilterScheduler.__init__", fail
        ),
        pytest.raises(PluginError, match="no driver"),
    ):
        build(conf)
    scheduler = build(conf)  # the embedded Placement is open in no process
    scheduler.start()
    scheduler.stop()


@pytest.mark.parametrize(
    ("is_away", "names"),
    [(False, {"claim-reconciler"}), (True, {"claim-reconciler", "placement-watch"})],
    ids=["answers", "away"],
)
def test_scheduler_that_ends_leaves_no_thread(
    tmp_path: Path, is_away: bool, names: set[str]
) -> None:
    before = set(threading.enumerate())
    conf = moorage_conf.load([], config_files=[])
    inventory = write_inventory(tmp_path, host("h1"))
    conf.set_override("inventory_file", str(inventory), group="moorage")
    placement = adapter_to(refusing_url()) if is_away else None
    scheduler = build(conf, placement=placement)
    scheduler.start()
    started = {thread.name for thread in threading.enumerate()}
    scheduler.stop()
    assert names <= started
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("source", ["push", "nova_db"])
def test_embedded_placement_is_refused_for_hosts_that_it_does_not_know(
    source: str, tmp_path: Path
) -> None:
    conf = moorage_conf.load([], config_files=[])
    conf.set_override("source", source, group="moorage")
    conf.set_override("connection", f"sqlite:///{tmp_path}/api", group="api_database")
    with pytest.raises(ConfigurationError, match=rf"source = {source}\. Set \[placem"):
        build(conf)


def test_what_is_needed_outside_decides_on_readiness(tmp_path: Path) -> None:
    conf = moorage_conf.load([], config_files=[])
    inventory = write_inventory(tmp_path, host("h1"))
    conf.set_override("inventory_file", str(inventory), group="moorage")
    trouble = ["The broker is away."]
    scheduler = build(conf)
    scheduler.status.add_check("broker", lambda: trouble[0])
    scheduler.start()
    assert not scheduler.status.is_ready
    assert scheduler.status.readiness_note == trouble[0]
    trouble[0] = ""
    assert scheduler.status.is_ready
    scheduler.stop()


def test_slow_seeding_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    conf = moorage_conf.load([], config_files=[])
    inventory = write_inventory(tmp_path, *(host(f"h{i}") for i in range(3)))
    conf.set_override("inventory_file", str(inventory), group="moorage")
    with fixtures.MonkeyPatch("moorage.scheduler.seeding._PROGRESS_EVERY_S", 0.0):
        scheduler = build(conf)
        scheduler.start()
    scheduler.stop()
    logged = [m for m in caplog.messages if "Seeding" in m]
    assert logged[-1] == "Seeding the embedded Placement: 3 of 3 hosts"
