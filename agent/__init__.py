# SPDX-License-Identifier: Apache-2.0
"""What tells schedulers of hosts: a library for any agent, and a small agent.

`Reporter` is the library: it is given the state of hosts and sends what has changed,
over a `Bus`. ``moorage-agent`` is the agent, for a machine that is no nova compute.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .bus import TOPIC, Bus, BusAway
    from .reporter import Reply, Reporter

__all__ = ["TOPIC", "Bus", "BusAway", "Reply", "Reporter"]


def __getattr__(name: str) -> object:
    """Import what is asked for: oslo.messaging only once its threads are chosen."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "reporter" if name.startswith("Rep") else "bus"
    return getattr(importlib.import_module(f".{module}", __name__), name)
