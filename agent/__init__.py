# SPDX-License-Identifier: Apache-2.0
"""Reporting of hosts to schedulers: a library for any agent, and a small agent.

`Reporter` is the library: it gets the state of hosts and sends the changes over a
`Bus`, or their whole state over a `KafkaBus`. ``moorage-agent`` is the agent, for a
machine that is not a nova compute.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .bus import TOPIC, Bus, BusUnavailable
    from .kafka_bus import KafkaBus
    from .reporter import Reply, Reporter

__all__ = ["TOPIC", "Bus", "BusUnavailable", "KafkaBus", "Reply", "Reporter"]

#: The modules of the public names that are not in `bus`.
_MODULES = {"KafkaBus": "kafka_bus", "Reply": "reporter", "Reporter": "reporter"}


def __getattr__(name: str) -> object:
    """Import on first use: a backend must be set before oslo.messaging is imported."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f".{_MODULES.get(name, 'bus')}", __name__)
    return getattr(module, name)
