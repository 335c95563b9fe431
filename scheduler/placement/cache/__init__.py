# SPDX-License-Identifier: Apache-2.0
"""Placement's answers, cached and shared by concurrent requests."""

from .cached_answer import amounts_of
from .cached_offer import CachedOffer
from .candidates_cache import CandidatesCache

__all__ = ["CachedOffer", "CandidatesCache", "amounts_of"]
