# SPDX-License-Identifier: Apache-2.0
"""Allocation candidates: the query, Placement's answer, and the candidates on offer.

CandidatesQuery ─▶ AllocationCandidates ─▶ QueryOffer ─▶ Offer ─▶ CandidateRows
                   (a GET's answer)        (one query)  (a request)  (on host rows)
"""

from .offer import (
    ANY_OF_MICROVERSION,
    MICROVERSION,
    AllocationCandidates,
    Amounts,
    CandidatesAnswer,
    CandidatesQuery,
    DerivedData,
    Offer,
    QueryOffer,
    amounts_by_class,
    resources_of,
)
from .rows import (
    AllocationRequest,
    CandidateContents,
    CandidateRows,
    Codes,
    HostCandidates,
    HostLayout,
    Mask,
    ProviderCoder,
    Rows,
    empty_candidates,
    indices_within,
)

__all__ = [
    "ANY_OF_MICROVERSION",
    "MICROVERSION",
    "AllocationCandidates",
    "AllocationRequest",
    "Amounts",
    "CandidateContents",
    "CandidateRows",
    "CandidatesAnswer",
    "CandidatesQuery",
    "Codes",
    "DerivedData",
    "HostCandidates",
    "HostLayout",
    "Mask",
    "Offer",
    "ProviderCoder",
    "QueryOffer",
    "Rows",
    "amounts_by_class",
    "empty_candidates",
    "indices_within",
    "resources_of",
]
