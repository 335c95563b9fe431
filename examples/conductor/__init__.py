# SPDX-License-Identifier: Apache-2.0
"""An example of a conductor: schedule, build, retry, migrate; see README.md."""

from .computes import Computes
from .conductor import Attempt, BuildFailed, Conductor, Context, Move, Server

__all__ = [
    "Attempt",
    "BuildFailed",
    "Computes",
    "Conductor",
    "Context",
    "Move",
    "Server",
]
