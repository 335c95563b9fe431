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


def safe(value: object, most: int = _MAX_SHOWN) -> str:
    """Return a value as text whose control characters are escaped, shortened."""
    text = str(value)
    if len(text) > most:
        text = f"{text[:most]}…"
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if unicodedata.category(character) not in _HIDDEN:
        return character
    return character.encode("unicode_escape").decode("ascii")


def listed(names: Sequence[str], most: int) -> str:
    """Return names as a list: of more than `most` the first, and how many more."""
    suffix = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{suffix}"


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with its sign; it is missing where JSON cannot hold it."""
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

    What its caller got has counts of hosts; of a failed part it leaves out the cause.
    """
    keys = ["user_message", "reason"]
    if decision["outcome"] == "failed":
        keys.reverse()
    message: str = decision[keys[0]] or decision[keys[1]]
    return message.removeprefix("No valid host was found.").strip()
