# SPDX-License-Identifier: Apache-2.0
"""Placement's answers, cached and shared by concurrent requests."""

from .cached_answer import CachedOffer, amounts_of
from .candidates_cache import CandidatesCache

__all__ = ["CachedOffer", "CandidatesCache", "amounts_of"]
