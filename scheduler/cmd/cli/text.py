# SPDX-License-Identifier: Apache-2.0
"""Names and numbers as text for a terminal; control characters are escaped."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from ...display import MAX_SHOWN, MAX_TEXT, number, safe, timestamp, why

__all__ = ["MAX_TEXT", "cell", "names", "number", "safe", "timestamp", "why"]


def cell(value: object, style: str = "", limit: int = MAX_SHOWN) -> Text:
    """Return a value for a table, in which square brackets have no meaning."""
    text = safe("" if value is None else value, limit)
    return Text(text, style=style, overflow="fold")


def names(values: Iterable[object]) -> str:
    """Return names as a list; "-" if there is none."""
    return ", ".join(map(safe, values)) or "-"
