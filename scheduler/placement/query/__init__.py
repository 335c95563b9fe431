# SPDX-License-Identifier: Apache-2.0
"""A request's query to Placement: the parameters of GET /allocation_candidates."""

from .build import Requirements, build_fallback_query, build_query

__all__ = ["Requirements", "build_fallback_query", "build_query"]
