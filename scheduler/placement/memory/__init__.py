# SPDX-License-Identifier: Apache-2.0
"""Candidates from the providers in memory; Placement is queried where in doubt.

get ─┬─ table is recent, query is covered ─▶ TableOffer (trees; candidates on demand)
     └─ otherwise ─▶ CandidatesCache ─▶ GET /allocation_candidates

before NoValidHost: read again what lacks only room ─┬─▶ TableOffer
                                                     └─▶ GET with limit=1
"""

from .confirming import Confirmations
from .source import ProviderCandidatesSource
from .table_offer import TableOffer

__all__ = ["Confirmations", "ProviderCandidatesSource", "TableOffer"]
