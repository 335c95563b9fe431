# SPDX-License-Identifier: Apache-2.0
"""Placement's answers, cached and shared by concurrent requests."""

from .cached_answer import CountedClaim
from .candidates_cache import CacheStats, CandidatesCache

__all__ = ["CacheStats", "CandidatesCache", "CountedClaim"]
