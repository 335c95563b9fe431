# SPDX-License-Identifier: Apache-2.0
"""Validation of reported values, and their conversion to host table columns."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeGuard, TypeVar

from ...hosts import HostPools, HostRecord, HostTopology

#: Reads a column's value; raises ValueError with what is expected instead.
ReadValue = Callable[[Any], Any]

_Value = TypeVar("_Value")

_INT64: Final = 2**63
_UUID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE
)
_MAX_NAME: Final = 255
_SHOWN: Final = 60


class RefusedReport(ValueError):
    """Raised when a report has an invalid value.

    Attributes
    ----------
    host : str
        The name or UUID of its host, or "?" where neither is known.
    """

    def __init__(self, host: str, why: str) -> None:
        """Set the host and what is wrong with its report."""
        super().__init__(f"host '{host}': {why}")
        self.host = host


def _wrong(value: object, needed: str) -> ValueError:
    text = repr(value)
    text = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return ValueError(f"{text} where {needed} is needed")


def _integer(value: object) -> int:
    if type(value) is int and -_INT64 <= value < _INT64:
        return value
    raise _wrong(value, "an integer of 64 bits")


def read_count(value: object) -> int:
    """Read a non-negative integer."""
    if type(value) is int and 0 <= value < _INT64:
        return value
    raise _wrong(value, "an integer from 0 on")


def _is_number(value: object) -> TypeGuard[int | float]:
    try:
        return (type(value) is int or type(value) is float) and math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def _ratio(value: object) -> float:
    if _is_number(value) and value > 0:
        return float(value)
    raise _wrong(value, "a number above 0")


def _boolean(value: object) -> bool:
    if type(value) is bool:
        return value
    raise _wrong(value, "true or false")


def _name(value: object) -> str:
    if type(value) is str and 0 < len(value) <= _MAX_NAME:
        return value
    raise _wrong(value, f"a text of 1 to {_MAX_NAME} characters")


def _text(value: object) -> str | None:
    if value is None or type(value) is str:
        return value
    raise _wrong(value, "a text or null")


def read_uuid(value: object) -> str:
    """Read a UUID; it is returned in lower case."""
    if type(value) is str and _UUID.fullmatch(value):
        return value.lower()
    raise _wrong(value, "a UUID")


def read_uuids(value: object) -> list[str]:
    """Read a list of UUIDs."""
    if type(value) is not list:
        raise _wrong(value, "a list of UUIDs")
    return [read_uuid(each) for each in value]


def _texts(value: object) -> Mapping[str, str]:
    if type(value) is dict and all(
        type(k) is str and type(v) is str for k, v in value.items()
    ):
        return MappingProxyType(value)
    raise _wrong(value, "texts by name")


def _numbers(value: object) -> Mapping[str, float] | None:
    if value is None:
        return None
    if type(value) is dict and all(
        type(k) is str and _is_number(v) for k, v in value.items()
    ):
        return MappingProxyType(value)
    raise _wrong(value, "numbers by name, or null")


def _triples(value: object) -> tuple[tuple[str, ...], ...]:
    if type(value) is list and all(
        type(each) is list and len(each) == 3 and all(type(t) is str for t in each)
        for each in value
    ):
        return tuple(map(tuple, value))
    raise _wrong(value, "a list of [architecture, hypervisor type, VM mode]")


def _topology(value: object) -> HostTopology | None:
    return None if value is None or value == "" else HostTopology.read(value)


#: Names that a delta cannot change: they identify the host.
IDENTITY: Final = frozenset({"host", "nodename", "uuid", "cell_uuid"})

#: The columns of a report, and how each is read. last_seen_up is not among them: it is
#: the time when the report is received.
COLUMNS: Final[Mapping[str, ReadValue]] = MappingProxyType(
    {
        "host": _name,
        "nodename": _name,
        "uuid": read_uuid,
        "cell_uuid": read_uuid,
        "total_usable_ram_mb": read_count,
        "free_ram_mb": _integer,
        "total_usable_disk_gb": read_count,
        "free_disk_mb": _integer,
        "disk_mb_used": read_count,
        "vcpus_total": read_count,
        "vcpus_used": read_count,
        "cpu_allocation_ratio": _ratio,
        "ram_allocation_ratio": _ratio,
        "disk_allocation_ratio": _ratio,
        "num_instances": read_count,
        "num_io_ops": read_count,
        "failed_builds": read_count,
        "stats": _texts,
        "hypervisor_type": _text,
        "hypervisor_version": read_count,
        "hypervisor_hostname": _text,
        "supported_instances": _triples,
        "cpu_info": _text,
        "metrics": _numbers,
        "host_ip": _text,
        "numa_topology": _topology,
        "pci_stats": HostPools.read,
        "disabled": _boolean,
        "forced_down": _boolean,
        "service_version": read_count,
    }
)

#: Columns without a default.
_REQUIRED: Final = (
    "host",
    "nodename",
    "uuid",
    "cell_uuid",
    "total_usable_ram_mb",
    "free_ram_mb",
    "total_usable_disk_gb",
    "free_disk_mb",
    "disk_mb_used",
    "vcpus_total",
    "vcpus_used",
)

#: Columns that may be reported as objects; the store has them as text.
_OBJECTS: Final = ("numa_topology", "pci_stats")


def read_record(data: Mapping[str, Any], last_seen_up: float) -> HostRecord:
    """Read a whole report.

    Parameters
    ----------
    data : mapping
        The fields of a HostReport; those that are not columns are ignored.
    last_seen_up : float
        Seconds since the epoch.

    Raises
    ------
    RefusedReport
        A value is missing or wrong; the message names host and field.
    """
    missing = [name for name in _REQUIRED if name not in data]
    if missing:
        raise RefusedReport(reported_name(data), f"{', '.join(missing)}: not reported")
    return HostRecord(
        **read_columns(data, reported_name(data)), last_seen_up=last_seen_up
    )


def read_columns(
    values: Mapping[str, Any], host: str, excluding: Collection[str] = ()
) -> dict[str, Any]:
    """Read some columns; names that are not columns are left out.

    Parameters
    ----------
    host : str
        The name of their host, for error messages.
    excluding : collection of str
        Names that must not be among them.

    Raises
    ------
    RefusedReport
        A value is wrong; the message names host and field.
    """
    read: dict[str, Any] = {}
    for name, value in values.items():
        reader = COLUMNS.get(name)
        if reader is None:  # a column of a newer agent
            continue
        if name in excluding:
            raise RefusedReport(host, f"{name}: only a whole report can change it")
        try:
            read[name] = reader(value)
        except (ValueError, RecursionError) as e:
            raise RefusedReport(host, f"{name}: {e}") from e
    return read


def read_field(
    data: Mapping[str, Any], name: str, read: Callable[[Any], _Value], host: str
) -> _Value:
    """Read one required field.

    Raises
    ------
    RefusedReport
        It is missing, or its value is wrong.
    """
    if name not in data:
        raise RefusedReport(host, f"{name}: not reported")
    try:
        return read(data[name])
    except ValueError as e:
        raise RefusedReport(host, f"{name}: {e}") from e


def reported_name(data: Mapping[str, Any]) -> str:
    """Return the name that a report gives its host, unchecked, for messages."""
    return str(data.get("host") or data.get("uuid") or "?")[:_MAX_NAME]


def serializable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns among these values in a form that JSON can represent."""
    found = {name: value for name, value in values.items() if name in COLUMNS}
    for name in _OBJECTS:
        value = found.get(name)
        if value is not None and type(value) is not str:
            write = getattr(value, "obj_to_primitive", None)
            found[name] = json.dumps(write() if callable(write) else value)
    return found
