# SPDX-License-Identifier: Apache-2.0
"""A scheduler that ends, or cannot be made, leaves nothing behind."""

from __future__ import annotations

import threading
from pathlib import Path

import fixtures
import pytest

from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.drivers.filter_scheduler import FilterScheduler
from moorage.scheduler.service import build

from ..fixtures.clouds import host, write_inventory
from ..fixtures.placement_servers import adapter_to
from ..fixtures.ports import refusing_url


def test_driver_that_cannot_be_made_leaves_nothing_open(tmp_path: Path) -> None:
    def fail(_self: object, _parts: object) -> None:
        raise RuntimeError("no driver")

    conf = moorage_conf.load([], config_files=[])
    inventory = write_inventory(tmp_path, host("h1"))
    conf.set_override("inventory_file", str(inventory), group="moorage")
    with (
        fixtures.MonkeyPatch(
            f"{FilterScheduler.__module__}.FilterScheduler.__init__", fail
        ),
        pytest.raises(RuntimeError, match="no driver"),
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
