# SPDX-License-Identifier: Apache-2.0
"""From what an agent reports to the host table's columns, each value checked."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeGuard, TypeVar

from ...hosts import HostPools, HostRecord, HostTopology

#: What reads one column's value, or raises ValueError with what would be right.
Read = Callable[[Any], Any]

_Value = TypeVar("_Value")

_INT64: Final = 2**63
_UUID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE
)
_MAX_NAME: Final = 255
_SHOWN: Final = 60


class RefusedReport(ValueError):
    """A report with something in it that cannot be used.

    Attributes
    ----------
    host : str
        The name or UUID of the host that it is about, as far as it is known.
    """

    def __init__(self, host: str, why: str) -> None:
        """Tell whose report it is and what is wrong."""
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


def count(value: object) -> int:
    """Read an integer that is not negative."""
    if type(value) is int and 0 <= value < _INT64:
        return value
    raise _wrong(value, "an integer from 0 on")


def _is_number(value: object) -> TypeGuard[int | float]:
    try:
        return (type(value) is int or type(value) is float) and math.isfinite(value)
    except OverflowError:  # an integer that no float holds
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


def uuid_of(value: object) -> str:
    """Read a UUID; the answer has lower case."""
    if type(value) is str and _UUID.fullmatch(value):
        return value.lower()
    raise _wrong(value, "a UUID")


def uuids_of(value: object) -> list[str]:
    """Read a list of UUIDs."""
    if type(value) is not list:
        raise _wrong(value, "a list of UUIDs")
    return [uuid_of(each) for each in value]


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


#: Names that a delta cannot change: the host is another one then.
IDENTITY: Final = frozenset({"host", "nodename", "uuid", "cell_uuid"})

#: Every column that a report tells, with what reads it. last_seen_up is not among
#: them: it is when the report came.
COLUMNS: Final[Mapping[str, Read]] = MappingProxyType(
    {
        "host": _name,
        "nodename": _name,
        "uuid": uuid_of,
        "cell_uuid": uuid_of,
        "total_usable_ram_mb": count,
        "free_ram_mb": _integer,
        "total_usable_disk_gb": count,
        "free_disk_mb": _integer,
        "disk_mb_used": count,
        "vcpus_total": count,
        "vcpus_used": count,
        "cpu_allocation_ratio": _ratio,
        "ram_allocation_ratio": _ratio,
        "disk_allocation_ratio": _ratio,
        "num_instances": count,
        "num_io_ops": count,
        "failed_builds": count,
        "stats": _texts,
        "hypervisor_type": _text,
        "hypervisor_version": count,
        "hypervisor_hostname": _text,
        "supported_instances": _triples,
        "cpu_info": _text,
        "metrics": _numbers,
        "host_ip": _text,
        "numa_topology": _topology,
        "pci_stats": HostPools.read,
        "disabled": _boolean,
        "forced_down": _boolean,
        "service_version": count,
    }
)

#: Columns of a report that has no default for them.
_NEEDED: Final = (
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

#: Columns that may come as objects, which the store keeps as text.
_OBJECTS: Final = ("numa_topology", "pci_stats")


def record_of(data: Mapping[str, Any], last_seen_up: float) -> HostRecord:
    """Read a whole report.

    Parameters
    ----------
    data : mapping
        The fields of a HostReport; those that are no columns are left alone.
    last_seen_up : float
        Seconds since the epoch.

    Raises
    ------
    RefusedReport
        A value is missing or wrong; the message names host and field.
    """
    missing = [name for name in _NEEDED if name not in data]
    if missing:
        raise RefusedReport(told_name(data), f"{', '.join(missing)}: not reported")
    return HostRecord(**columns_of(data, told_name(data)), last_seen_up=last_seen_up)


def columns_of(
    values: Mapping[str, Any], host: str, but: Collection[str] = ()
) -> dict[str, Any]:
    """Read some columns; names that are no columns are left out.

    Parameters
    ----------
    host : str
        Whose they are, for the message.
    but : collection of str
        Names that must not be among them.

    Raises
    ------
    RefusedReport
        A value is wrong; the message names host and field.
    """
    read: dict[str, Any] = {}
    for name, value in values.items():
        reader = COLUMNS.get(name)
        if reader is None:  # of a newer agent
            continue
        if name in but:
            raise RefusedReport(host, f"{name}: only a whole report can change it")
        try:
            read[name] = reader(value)
        except (ValueError, RecursionError) as e:
            raise RefusedReport(host, f"{name}: {e}") from e
    return read


def field(
    data: Mapping[str, Any], name: str, read: Callable[[Any], _Value], host: str
) -> _Value:
    """Read one field that has to be there.

    Raises
    ------
    RefusedReport
        It is not, or is wrong.
    """
    if name not in data:
        raise RefusedReport(host, f"{name}: not reported")
    try:
        return read(data[name])
    except ValueError as e:
        raise RefusedReport(host, f"{name}: {e}") from e


def told_name(data: Mapping[str, Any]) -> str:
    """Return what a report calls its host, checked or not, for a message."""
    return str(data.get("host") or data.get("uuid") or "?")[:_MAX_NAME]


def kept(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns among these as they can be written as JSON."""
    found = {name: value for name, value in values.items() if name in COLUMNS}
    for name in _OBJECTS:
        value = found.get(name)
        if value is not None and type(value) is not str:
            write = getattr(value, "obj_to_primitive", None)
            found[name] = json.dumps(write() if callable(write) else value)
    return found
