# SPDX-License-Identifier: Apache-2.0
"""A scheduler that cannot be made leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import fixtures
import pytest

from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.drivers.filter_scheduler import FilterScheduler
from moorage.scheduler.service import build

from ..clouds import host, write_inventory


def test_driver_that_cannot_be_made_leaves_nothing_open(tmp_path: Path) -> None:
    def fail(self: object, parts: object) -> None:
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
