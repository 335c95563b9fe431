# SPDX-License-Identifier: Apache-2.0
"""Loading of the host columns, also those of plugins, and reading of their values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from ...objects import REPORT_KEYS
from ..entry_points import load_plugins
from ..errors import PluginError
from ..hosts import COLUMNS, Column, Columns, HostBatch, HostRecord, HostState
from .inventory_schema import HOST_KEYS

_GROUP: Final = "moorage.columns"
_SHOWN_NAME: Final = 255
_Value = TypeVar("_Value")

#: Names that no column of a plugin may have: reports, files or hosts use them.
_RESERVED: Final = frozenset(
    {
        *REPORT_KEYS,
        *HOST_KEYS,
        *dir(HostBatch),
        *HostBatch.__annotations__,
        *dir(HostState),
    }
)

#: Columns that a delta cannot change: they identify the host.
IDENTITY: Final = frozenset({"host", "nodename", "uuid", "cell_uuid"})


class RefusedReport(ValueError):
    """Raised when a report has an invalid value.

    Attributes
    ----------
    host : str
        The name or UUID of its host, or "?" where neither is known.
    """

    def __init__(self, host: str, why: str) -> None:
        super().__init__(f"host '{host}': {why}")
        self.host = host


def load_columns() -> Columns:
    """Return all columns by name: those of `HostRecord`, and those of plugins.

    An entry point of the group ``moorage.columns`` is a `Column`, or a list of them.

    Raises
    ------
    PluginError
        A declaration cannot be imported, is invalid, or has the name of another.
    """
    columns = COLUMNS
    for name, declared in sorted(load_plugins(_GROUP).items()):
        declarations = declared if isinstance(declared, list | tuple) else [declared]
        try:
            columns = with_columns(declarations, columns)
        except (TypeError, ValueError) as e:
            raise PluginError(f"{_GROUP}: plugin {name!r}: {e}") from e
    return columns


def with_columns(declared: Iterable[Column], columns: Columns = COLUMNS) -> Columns:
    """Return the columns extended by the declared ones.

    Raises
    ------
    TypeError
        A declaration is not a `Column`.
    ValueError
        The name of a declared column is in use, or the column has no default.
    """
    by_name = dict(columns)
    for column in declared:
        if not isinstance(column, Column):
            raise TypeError(f"{column!r} is not a Column, nor a list of them")
        if not column.has_default:
            raise ValueError(
                f"column {column.name!r} has no default, which hosts that do not "
                "report it need"
            )
        if column.name in by_name or column.name in _RESERVED:
            use = "a column" if column.name in by_name else "in use for something else"
            raise ValueError(f"column {column.name!r}: the name is already {use}")
        by_name[column.name] = column
    return MappingProxyType(by_name)


# -- reading reports -------------------------------------------------------------------


def read_record(
    data: Mapping[str, Any], last_seen_up: float, columns: Columns = COLUMNS
) -> HostRecord:
    """Read a whole report.

    Parameters
    ----------
    data : mapping
        The fields of a report; those that are not columns are ignored.
    last_seen_up : float
        Seconds since the epoch.

    Raises
    ------
    RefusedReport
        A value is missing or wrong; the message names host and column.
    """
    name = reported_name(data)
    missing = [n for n, c in COLUMNS.items() if not c.has_default and n not in data]
    if missing:
        raise RefusedReport(name, f"{', '.join(missing)}: not reported")
    values = read_columns(data, name, columns)
    if len(columns) == len(COLUMNS):
        return HostRecord(**values, last_seen_up=last_seen_up)
    extra = {n: values.pop(n) for n in values.keys() - COLUMNS.keys()}
    return HostRecord(**values, extra=extra, last_seen_up=last_seen_up)


def read_columns(
    values: Mapping[str, Any],
    host: str,
    columns: Columns = COLUMNS,
    excluding: Collection[str] = (),
) -> dict[str, Any]:
    """Read values by column; names that are not columns of reports are left out.

    Parameters
    ----------
    host : str
        The name of the host that reports the values, for error messages.
    excluding : collection of str
        Columns that must not be among the values.

    Raises
    ------
    RefusedReport
        A value is wrong; the message names host and column.
    """
    read_values: dict[str, Any] = {}
    for name, value in values.items():
        column = columns.get(name)
        if column is None or not column.is_reported:  # a column of a newer agent
            continue
        if name in excluding:
            raise RefusedReport(host, f"{name}: only a whole report can change it")
        try:
            read_values[name] = column.read(value)
        except (ValueError, RecursionError) as e:
            raise RefusedReport(host, f"{name}: {e}") from e
    return read_values


def read_field(
    data: Mapping[str, Any], name: str, read: Callable[[Any], _Value], host: str
) -> _Value:
    """Read one required field.

    Raises
    ------
    RefusedReport
        The field is missing, or its value is wrong.
    """
    if name not in data:
        raise RefusedReport(host, f"{name}: not reported")
    try:
        return read(data[name])
    except ValueError as e:
        raise RefusedReport(host, f"{name}: {e}") from e


def reported_name(data: Mapping[str, Any]) -> str:
    """Return the name that a report gives its host, unchecked, for messages."""
    return str(data.get("host") or data.get("uuid") or "?")[:_SHOWN_NAME]


def serializable(
    values: Mapping[str, Any], columns: Columns = COLUMNS
) -> dict[str, Any]:
    """Return the reported columns among values, in a form that JSON can represent.

    The values come from a report or from the host table.
    """
    values_by_name = {}
    for name, value in values.items():
        column = columns.get(name)
        if column is not None and column.is_reported:
            written = value if column.write is None else column.write(value)
            values_by_name[name] = written
    return values_by_name


def report_values(record: HostRecord, columns: Columns = COLUMNS) -> dict[str, Any]:
    """Return the columns of a record as a report has them.

    Raises
    ------
    RefusedReport
        The record has a value of an unknown column.
    """
    values = {name: getattr(record, name) for name in COLUMNS} | dict(record.extra)
    unknown = values.keys() - columns.keys()
    if unknown:
        raise RefusedReport(record.host, f"{', '.join(sorted(unknown))}: no columns")
    return serializable(values, columns)
