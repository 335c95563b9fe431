# SPDX-License-Identifier: Apache-2.0
"""Candidates computed from the providers in memory, and Placement asked where in doubt.

get ─┬─ table is recent, query is covered ─▶ TableOffer (trees; candidates on demand)
     └─ otherwise ─▶ CandidatesCache ─▶ GET /allocation_candidates

before NoValidHost: read again what lacks only room ─┬─▶ TableOffer
                                                     └─▶ GET with limit=1
"""

from .confirming import Confirmations
from .source import Follower, ProviderCandidatesSource
from .table_offer import TableOffer

__all__ = ["Confirmations", "Follower", "ProviderCandidatesSource", "TableOffer"]
