# SPDX-License-Identifier: Apache-2.0
"""Store decisions in a database, which outlives the processes that made them.

    decision ─▶ DecisionLog ─▶ add ─▶ queue ─▶ codec ─▶ writer ─▶ database
                                                                    │
                                                    page, view ◀────┘

The thread that decides only appends to a bounded queue. Another thread encodes records
and writes them; while the database does not answer, it keeps the newest records and
retries.
"""

from .codec import UnreadableRecord
from .queries import DecisionPage, DecisionQuery, Demand, StoredDecision
from .store import DecisionStore

__all__ = [
    "DecisionPage",
    "DecisionQuery",
    "DecisionStore",
    "Demand",
    "StoredDecision",
    "UnreadableRecord",
]
