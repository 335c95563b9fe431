# SPDX-License-Identifier: Apache-2.0
"""Candidates from the providers in memory; Placement is queried where in doubt.

get ─┬─ table is recent, query is covered ─▶ TableOffer (trees; candidates on demand)
     └─ otherwise ─▶ CandidatesCache ─▶ GET /allocation_candidates

before NoValidHost: read providers without room again ─┬─▶ TableOffer with more
                                                       └─▶ GET: has Placement more?
"""

from .confirming import Confirmations
from .lag import Lag
from .source import ProviderCandidatesSource
from .table_offer import TableOffer

__all__ = ["Confirmations", "Lag", "ProviderCandidatesSource", "TableOffer"]
