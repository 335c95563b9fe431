# SPDX-License-Identifier: Apache-2.0
"""Numbers with units, times and links, as the page's templates write them."""

from __future__ import annotations

import datetime
import math
from typing import Final
from urllib.parse import quote, urlencode

#: Characters of a name that the API accepts.
_MAX_NAME: Final = 255
_KIB: Final = 1024
#: An en dash, shown for a missing value.
_NONE: Final = "\u2013"


def count(value: float | None) -> str:
    """Return an integer with separators; an en dash for None."""
    return _NONE if value is None else f"{value:,.0f}"


def percent(share: float | None) -> str:
    """Return a share as a percentage without decimals."""
    if share is None or not math.isfinite(share):
        return _NONE
    return f"{share:.0%}"


def memory(mb: float) -> str:
    """Return an amount in MiB with the unit that fits it."""
    if mb < _KIB:
        return f"{mb:,.0f} MiB"
    if mb < 100 * _KIB * _KIB:
        return f"{mb / _KIB:,.0f} GiB"
    return f"{mb / _KIB / _KIB:,.1f} TiB"


def disk(gb: float) -> str:
    """Return an amount in nova's GB with the unit that fits it."""
    return f"{gb:,.0f} GB" if gb < 100_000 else f"{gb / 1000:,.0f} TB"


def milliseconds(ms: float | None) -> str:
    """Return a duration."""
    if ms is None:
        return _NONE
    if ms >= 10_000:
        return f"{ms / 1000:,.1f} s"
    return f"{ms:,.0f} ms" if ms >= 100 else f"{ms:.1f} ms"


def capitalized(text: str) -> str:
    """Return a text with its first letter in upper case, the others as they are."""
    return text[:1].upper() + text[1:]


def clock_time(seconds: float) -> str:
    """Return the time of day in UTC."""
    return f"{_utc(seconds):%H:%M:%S}"


def utc_time(seconds: float) -> str:
    """Return a time in UTC, to the second."""
    return f"{_utc(seconds):%Y-%m-%d %H:%M:%S}"


def _utc(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


# -- links -------------------------------------------------------------------------


def host_path(host: str | None) -> str | None:
    """Return the path of a host's page; None: no path can have this name."""
    return _path("hosts", host)


def decision_path(id_: str | None) -> str | None:
    """Return the path of a decision's page by request id or instance, or None."""
    return _path("decisions", id_)


def _path(folder: str, name: str | None) -> str | None:
    # Browsers and servers change paths with these names, also if they are quoted.
    if not name or len(name) > _MAX_NAME or {"", ".", ".."} & set(name.split("/")):
        return None
    return f"/{folder}/{quote(name, safe='', errors='replace')}"


def question_path(page: str, **values: str | None) -> str:
    """Return the path of a page with a query of the values that are not empty."""
    query_values = {
        name: value for name, value in values.items()
        if value and len(value) <= _MAX_NAME
    }  # fmt: skip
    query = urlencode(query_values, errors="replace")
    return f"/{page}?{query}" if query else f"/{page}"
