# SPDX-License-Identifier: Apache-2.0
"""Modules that use threads and time themselves follow a virtual time, for a while."""

from __future__ import annotations

import importlib
import random
import threading
import time
from typing import Any

from .fixtures.virtual_modules import virtual_modules
from .fixtures.virtual_time import VirtualTime


def test_names_and_what_is_bound_to_them_are_replaced_and_put_back() -> None:
    registered: Any = importlib.import_module(
        "moorage.scheduler.placement.registration"
    )
    readiness: Any = importlib.import_module("moorage.scheduler.placement.readiness")
    default = registered.RegistrationCheck.__init__.__kwdefaults__
    virtual = VirtualTime(random.Random(1))
    with virtual_modules(virtual, random.Random(1)), virtual:
        virtual.sleep(5)
        assert registered.time.monotonic() == default["clock"]() == 5
        done: list[float] = []
        thread = readiness.threading.Thread(
            target=lambda: done.append(virtual.monotonic()), name="thread"
        )
        thread.start()
        thread.join()
        assert done == [5]
    assert registered.time is time
    assert default["clock"] is time.monotonic
    assert readiness.threading is threading
