# SPDX-License-Identifier: Apache-2.0
"""One query for allocation candidates."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

#: The microversion of nova 34. Since 1.38 a claim must name a consumer type.
MICROVERSION: Final = "1.36"
#: The first microversion with any-of traits; older ones refuse ``in:``.
ANY_OF_MICROVERSION: Final = "1.39"

#: A parameter of a port's or device's group, whose suffix has a UUID of the request.
_UNIQUE_PARAM: Final = re.compile(
    r"(resources|required|member_of|in_tree)"
    r"([\w-]*[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}[\w-]*)"
)
#: The same in a canonical query; its length is at least that of a UUID.
_CANONICAL_SUFFIX: Final = "00000000-0000-0000-0000-{:012d}"


@dataclass(frozen=True, slots=True)
class CandidatesQuery:
    """One GET /allocation_candidates; equal queries share a cached answer.

    Attributes
    ----------
    params : tuple of (name, value)
        Sorted; a name can occur more than once.
    limit : int or None
        Most candidates in the answer, also among `params`; None: all.
    """

    params: tuple[tuple[str, str], ...]
    limit: int | None = None

    @property
    def microversion(self) -> str:
        """The query's own; its candidates are claimed with `MICROVERSION`."""
        is_newer = any(
            name.startswith("required") and value.startswith("in:")
            for name, value in self.params
        )
        return ANY_OF_MICROVERSION if is_newer else MICROVERSION

    @property
    def path(self) -> str:
        """The path and query to GET, below Placement's endpoint."""
        return _path(self.params)

    def canonical(self) -> tuple[CandidatesQuery, Mapping[str, str]]:
        """Return the same query with stable suffixes, and {suffix there: suffix here}.

        The suffix of a port or device is new in each request; without it, requests of
        one flavor share an answer. Numbered by content, equal groups by suffix.
        """
        groups: dict[str, list[tuple[str, str]]] = {}
        for name, value in self.params:
            if match := _UNIQUE_PARAM.fullmatch(name):
                groups.setdefault(match[2], []).append((match[1], value))
        if not groups:
            return self, {}
        order = sorted(groups, key=lambda suffix: (groups[suffix], suffix))
        renamed = {s: _CANONICAL_SUFFIX.format(n) for n, s in enumerate(order)}
        params = [
            (kind + renamed[suffix], value)
            for suffix, group in groups.items()
            for kind, value in group
        ]
        for name, value in self.params:
            if name == "same_subtree":
                suffixes = [renamed.get(s, s) for s in value.split(",")]
                params.append((name, ",".join(sorted(suffixes))))
            elif not _UNIQUE_PARAM.fullmatch(name):
                params.append((name, value))
        query = CandidatesQuery(tuple(sorted(params)), self.limit)
        return query, {new: old for old, new in renamed.items()}

    def unlimited(self) -> CandidatesQuery:
        """Return the same query without a limit."""
        return CandidatesQuery(tuple(p for p in self.params if p[0] != "limit"))


# Encoding takes longer than all else that a cached answer needs.
@functools.lru_cache(maxsize=1024)
def _path(params: tuple[tuple[str, str], ...]) -> str:
    return f"/allocation_candidates?{urlencode(params)}"
