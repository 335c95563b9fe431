# SPDX-License-Identifier: Apache-2.0
"""Reporting of hosts to schedulers: a library for any agent, and a small agent.

`Reporter` is the library: it gets the state of hosts and sends the changes over a
`Bus`. ``moorage-agent`` is the agent, for a machine that is not a nova compute.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .bus import TOPIC, Bus, BusUnavailable
    from .reporter import Reply, Reporter

__all__ = ["TOPIC", "Bus", "BusUnavailable", "Reply", "Reporter"]


def __getattr__(name: str) -> object:
    """Import on first use: oslo.messaging only after the threading backend is set."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "reporter" if name.startswith("Rep") else "bus"
    return getattr(importlib.import_module(f".{module}", __name__), name)
