# SPDX-License-Identifier: Apache-2.0
"""Names, numbers and times as text for people; control characters are escaped."""

from __future__ import annotations

import datetime
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final

#: Characters of a name that are shown; names may have any length.
_MAX_SHOWN: Final = 255
#: Control, format (such as the direction of text), private and surrogate characters.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})


def safe(value: object, limit: int = _MAX_SHOWN) -> str:
    """Return a value as text whose control characters are escaped, shortened."""
    text = str(value)
    if len(text) > limit:
        text = f"{text[:limit]}…"
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if unicodedata.category(character) not in _HIDDEN:
        return character
    return character.encode("unicode_escape").decode("ascii")


def listed(names: Sequence[str], limit: int) -> str:
    """Return names as a list: the first `limit` of them, and the number of others."""
    suffix = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{', '.join(names[:limit])}{suffix}"


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with its sign; "-" for None: JSON has no infinity and no NaN."""
    # 0.0 is added because a zero may be negative.
    return "-" if value is None else f"{value + 0.0:+.{digits}f}"


def local_time(seconds: float) -> datetime.datetime:
    """Return a time in the local zone."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).astimezone()


def timestamp(seconds: float) -> str:
    """Return a time in the local zone, to the second."""
    return f"{local_time(seconds):%Y-%m-%d %H:%M:%S}"


def why(decision: Mapping[str, Any]) -> str:
    """Return why a decision selected no host.

    The message to the caller has counts of hosts; if a part failed, only the reason
    names the cause.
    """
    keys = ["user_message", "reason"]
    if decision["outcome"] == "failed":
        keys.reverse()
    message: str = decision[keys[0]] or decision[keys[1]]
    return message.removeprefix("No valid host was found.").strip()
