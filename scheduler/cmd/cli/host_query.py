# SPDX-License-Identifier: Apache-2.0
"""Which hosts `moorage hosts` lists, in which order, and as CSV."""

from __future__ import annotations

import csv
import dataclasses
import fnmatch
import glob
import io
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import click

from .tables import Answer
from .text import safe

#: Names of texts and of numbers that a host has, besides its levels of places.
TEXTS: Final = ("host", "node", "cell", "zone", "state")
_AMOUNTS: Final = {"vcpu": "vcpus", "ram": "memory_mb", "disk": "disk_gb"}
NUMBERS: Final = (
    *_AMOUNTS,
    *(f"free_{name}" for name in _AMOUNTS),
    "seen",
    "instances",
    "claims",
    *(f"stranded_{name}" for name in _AMOUNTS),
)
#: What the name of the number of a flavor's instances that fit begins with.
FITS: Final = "fits:"
#: The prefix of a level that has the name of another value.
_PLACE: Final = "place:"
#: What a formula of a spreadsheet begins with.
_FORMULA: Final = ("=", "+", "-", "@")
#: Characters of a field of CSV: all of any name.
_MAX_FIELD: Final = 10_000
_COMPARISON: Final = re.compile(
    r"\s*(fits:[^<>=!]+?|(?:place:)?[\w-]+)\s*(<=|>=|!=|=|<|>)\s*(.*?)\s*"
)
_JOINED: Final = re.compile(
    r"""((?:[=<>]\s*'[^']*'|[=<>]\s*"[^"]*"|.)+?)(?:\s+and\s+|$)""",
    re.DOTALL | re.IGNORECASE,
)
_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}


#: A text, a number, or the places of one level.
Value = str | float | tuple[str, ...]


def host_values(host: Answer) -> dict[str, Value]:
    """Return a host's values by name: `TEXTS`, `NUMBERS`, and its places by level.

    A level with the name of another value, such as zone, is place:zone.

    vcpu, ram and disk are the used share of the capacity, in percent; free_vcpu,
    free_ram and free_disk what is left of it, in vCPUs, MiB and GB; seen is in seconds.
    stranded_vcpu, stranded_ram and stranded_disk are free, and of no use to a recent
    flavor; fits:NAME is how many more instances of a flavor fit. A number that is not
    known is NaN, which no comparison but != matches.
    """
    values: dict[str, Value] = {
        "host": host["host"],
        "node": host["node"],
        "cell": host.get("cell") or host["cell_uuid"],
        "zone": host["zone"],
        "state": host["condition"],
        "seen": math.nan if host["seen_s"] is None else host["seen_s"],
        "instances": math.nan if host["n_instances"] is None else host["n_instances"],
        "claims": host["n_claims"],
    }
    for (name, key), ratio in zip(
        _AMOUNTS.items(), host["allocation_ratios"], strict=True
    ):
        used, capacity = host[key][0], host[key][1] * ratio
        values[name] = 100 * used / capacity if capacity else math.nan
        values[f"free_{name}"] = capacity - used
    # A server of an earlier release sends neither room nor instances.
    stranded = host.get("stranded") or (math.nan,) * len(_AMOUNTS)
    for name, amount in zip(_AMOUNTS, stranded, strict=True):
        values[f"stranded_{name}"] = amount
    for name, n_instances in (host.get("fits") or {}).items():
        values[f"{FITS}{name}"] = n_instances
    if (instances := host.get("instances")) is not None:
        values["uuids"] = tuple(instances)
    for level, names in host["places"].items():
        values[_value_name(level)] = tuple(names)
    return values


def _value_name(level: str) -> str:
    """Return the name of the value with a host's places of a level."""
    is_taken = level in (*TEXTS, *NUMBERS, "uuids")
    return f"{_PLACE}{level}" if is_taken else level


@dataclasses.dataclass(frozen=True, slots=True)
class _Condition:
    """One comparison: text patterns with * for = and !=, or numbers.

    Of several places of one level, one matches: = holds if any does, != if none does.
    """

    name: str
    sign: str
    expected: str | float

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Return whether a host's values match."""
        value = values.get(self.name, "")
        if isinstance(self.expected, str):
            texts = (value or ("",)) if isinstance(value, tuple) else (str(value),)
            matches = any(fnmatch.fnmatchcase(text, self.expected) for text in texts)
            return matches is (self.sign == "=")
        return _COMPARE[self.sign](value, self.expected)


def is_number(name: str) -> bool:
    """Return whether the value of this name is a number, and not a text."""
    return name in NUMBERS or name.startswith(FITS)


def equals(name: str, text: str) -> _Condition:
    """Return the condition that a value is exactly this text, without patterns."""
    return _Condition(name, "=", glob.escape(text))


def in_place(text: str) -> _Condition:
    """Return the condition that a host is in a place, as LEVEL=NAME names it.

    Raises
    ------
    click.BadParameter
        It names no level or no place.
    """
    level, _, name = text.partition("=")
    if not level or not name:
        raise click.BadParameter(
            f"{safe(text, 50)!r} is not LEVEL=NAME, such as rack=r1"
        )
    return equals(_value_name(level), name)


def parse_where(text: str) -> list[_Condition]:
    """Return the conditions of an expression: comparisons joined by ``and``.

    A text in quotation marks may have this word, too.

    Raises
    ------
    click.BadParameter
        A part is no comparison, or compares a text with < or >.
    """
    return [_parsed(part) for part in _JOINED.findall(text.strip()) or [""]]


def _parsed(text: str) -> _Condition:
    parts = _COMPARISON.fullmatch(text)
    if parts is None:
        raise click.BadParameter(
            f"{safe(text, 50)!r} is no comparison such as vcpu>80 or zone=z*"
        )
    name, sign, value = parts.groups()
    if is_number(name):
        try:
            return _Condition(name, sign, float(value.removesuffix("%")))
        except ValueError:
            raise click.BadParameter(
                f"{name}: {safe(value, 50)!r} is no number"
            ) from None
    if sign not in ("=", "!="):
        raise click.BadParameter(
            f"{name} is a text: use = or !=; numbers are {', '.join(NUMBERS)}"
        )
    return _Condition(name, sign, value.strip("'\""))


def select_hosts(
    hosts: Iterable[Answer], conditions: Sequence[_Condition], sort: str | None
) -> list[Answer]:
    """Return the hosts that match all conditions, sorted by a value.

    Parameters
    ----------
    sort : str or None
        The name of a value; with ``-`` before it, the largest is the first. Unknown
        numbers are the last.

    Raises
    ------
    click.BadParameter
        No host has a value of a name that is used.
    """
    hosts_with_values = [(host, host_values(host)) for host in hosts]
    known_names = {name for _, values in hosts_with_values for name in values}
    used_names = {condition.name for condition in conditions}
    if sort:
        used_names.add(sort.removeprefix("-"))
    if hosts_with_values and (unknown := sorted(used_names - known_names)):
        raise click.BadParameter(
            f"No host has {safe(unknown[0], 50)!r}; "
            f"there are {', '.join(sorted(known_names))}"
        )
    matching = [
        (host, values)
        for host, values in hosts_with_values
        if all(condition.holds(values) for condition in conditions)
    ]
    if sort:
        name, is_descending = sort.removeprefix("-"), sort.startswith("-")
        sign = -1 if is_descending else 1

        def key(pair: tuple[Answer, Mapping[str, Value]]) -> tuple[bool, Any]:
            value = pair[1].get(name, "")
            if isinstance(value, float | int):
                return math.isnan(value), 0.0 if math.isnan(value) else sign * value
            return False, _text(value)

        is_text = not is_number(name)
        matching.sort(key=key, reverse=is_descending and is_text)
    return [host for host, _ in matching]


def _text(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else ", ".join(value)


def _csv_field(value: Value) -> str | float:
    """Return a value as a spreadsheet shows it; a number that is not known is empty.

    Control characters are escaped. A text that a spreadsheet would take for a formula
    is preceded by an apostrophe.
    """
    if isinstance(value, float | int):
        return "" if math.isnan(value) else value
    text = safe(_text(value), _MAX_FIELD)
    return f"'{text}" if text.startswith(_FORMULA) else text


def hosts_csv(hosts: Sequence[Answer]) -> str:
    """Return hosts as CSV with a header: a column for each value, unrounded."""
    rows = [host_values(host) for host in hosts]
    names = dict.fromkeys(name for row in rows for name in row)
    fits = [name for name in names if name.startswith(FITS)]
    levels = set(names).difference(TEXTS, NUMBERS, fits)
    columns = [*TEXTS, *sorted(levels), *NUMBERS, *fits]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _csv_field(value) for name, value in row.items()})
    return text.getvalue()
