# SPDX-License-Identifier: Apache-2.0
"""Resource providers followed from Placement's database, which is only read.

    poll ──▶ rows of providers whose generation or time changed ─┐
         ──▶ usage and aggregates of the next range of ids ──────┼─▶ ProviderTable
    evidence: own claims, refused claims, instances gone ────────┘

Each reading is one transaction. All providers are compared within a minute, because
Placement changes no generation when allocations are deleted or moved away.
"""

from .engines import placement_engine
from .follower import ProviderAmounts, ProviderFollower

__all__ = ["ProviderAmounts", "ProviderFollower", "placement_engine"]
