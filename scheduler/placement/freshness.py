# SPDX-License-Identifier: Apache-2.0
"""How long an answer of Placement may be reused, by its headers.

Placement itself sends ``Cache-Control: no-cache`` with every answer: reuse it only
after asking again. It answers no conditional GET with 304, so asking again costs as
much as the first time. Answers are reused nevertheless for ``[moorage]
candidates_max_age``: the claim is what Placement decides, and it refuses a stale
candidate. What a proxy adds is obeyed: ``no-store`` and ``max-age``, less ``Age``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

_NO_STORE: Final = "no-store"
_MAX_AGE: Final = "max-age"


def max_age_s(response: object) -> float:
    """Return the seconds for which a response may be reused, 0 for none.

    Infinite without a limit, and for an adapter whose responses have no headers.
    """
    headers: Mapping[str, str] = getattr(response, "headers", None) or {}
    limits = [math.inf]
    for directive in headers.get("Cache-Control", "").lower().split(","):
        name, _, value = directive.strip().partition("=")
        if name == _NO_STORE:
            limits.append(0.0)
        elif name == _MAX_AGE:
            # One that cannot be read allows nothing (RFC 9111, 4.2.1).
            limits.append(_seconds(value) - _seconds(headers.get("Age", "0")))
    return max(0.0, min(limits))


def _seconds(text: str) -> float:
    value = text.strip().strip('"')
    return float(value) if value.isdecimal() else 0.0
