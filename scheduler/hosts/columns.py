# SPDX-License-Identifier: Apache-2.0
"""What a host column is: name, type, unit, default and meaning, declared once."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeGuard

import numpy as np
import numpy.typing as npt

from ...objects import HVSpec
from .launches import Launches
from .numa import HostTopology
from .pci import HostPools

_INT64: Final = 2**63
#: The end of the year 9999, after which datetime has no time.
_END_OF_TIME: Final = 253_402_300_800
#: Placement keeps amounts as signed 32-bit integers.
_MAX_AMOUNT: Final = 2**31 - 1
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_MAX_NAME: Final = 255
_SHOWN: Final = 60


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ColumnType:
    """What a column holds, and how a report or a file has it.

    Attributes
    ----------
    name : str
        The type's name in error messages and in the documentation.
    dtype : numpy dtype
        object: a column of interned values, each stored once.
    read : callable
        Return a value for the table from a reported one; raise ValueError, saying what
        is needed instead.
    schema : mapping
        The JSON schema of the value in an inventory file.
    write : callable, optional
        Return what is reported for a value, in a form that JSON can represent; None:
        the value itself.
    """

    name: str
    dtype: npt.DTypeLike
    read: Callable[[Any], Any]
    schema: Mapping[str, Any]
    write: Callable[[Any], Any] | None = None


# -- reading reported values -----------------------------------------------------------


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


def read_time(value: object) -> float:
    """Read seconds since the epoch."""
    if _is_number(value) and 0 <= value < _END_OF_TIME:
        return float(value)
    raise _wrong(value, "seconds since the epoch")


def _is_number(value: object) -> TypeGuard[int | float]:
    try:
        return (type(value) is int or type(value) is float) and math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def _number(value: object) -> float:
    if _is_number(value):
        return float(value)
    raise _wrong(value, "a finite number")


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
    return [read_uuid(item) for item in value]


def read_texts(value: object) -> Mapping[str, str]:
    """Read texts by name."""
    if type(value) is dict and all(
        type(k) is str and type(v) is str for k, v in value.items()
    ):
        return MappingProxyType(value)
    raise _wrong(value, "texts by name")


def _places(value: object) -> tuple[tuple[str, str], ...]:
    if type(value) is dict and all(
        type(text) is str and 0 < len(text) <= _MAX_NAME
        for pair in value.items()
        for text in pair
    ):
        return tuple(sorted(value.items()))
    raise _wrong(value, f"names of 1 to {_MAX_NAME} characters by level")


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
        type(triple) is list
        and len(triple) == 3
        and all(type(text) is str for text in triple)
        for triple in value
    ):
        return tuple(_canonical(*triple) for triple in value)
    raise _wrong(value, "a list of [architecture, hypervisor type, VM mode]")


@functools.lru_cache(maxsize=256)
def _canonical(arch: str, hv_type: str, vm_mode: str) -> tuple[str, ...]:
    spec = HVSpec(arch=arch, hv_type=hv_type, vm_mode=vm_mode)
    return (spec.arch, spec.hv_type, spec.vm_mode)


def _cpu_info(value: object) -> str | None:
    if type(value) is not dict:
        return _text(value)
    try:
        return json.dumps(value, sort_keys=True)
    except TypeError as e:  # YAML has dates, and keys of any type
        raise ValueError(f"cannot be written as JSON: {e}") from e


def _topology(value: object) -> HostTopology | None:
    return None if value is None or value == "" else HostTopology.read(value)


def _launches(value: object) -> Launches | None:
    if value is None:
        return None
    if type(value) is list and all(
        type(launch) is list
        and tuple(map(type, launch)) == (int, str, int, int, str)
        and min(launch[0], launch[2], launch[3]) >= 0
        and max(launch[0], launch[2], launch[3]) < _INT64
        for launch in value
    ):
        return tuple(sorted(tuple(launch) for launch in value))
    raise _wrong(value, "a list of [launched_at, project_id, vcpus, memory_mb, image]")


def _as_json(value: Any) -> str | None:
    """Return the JSON of a column that nova-compute reports as an object."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, HostTopology):
        return value.write()
    if isinstance(value, HostPools):
        value = value.to_dicts()
    primitive = getattr(value, "obj_to_primitive", None)
    return json.dumps(primitive() if callable(primitive) else value, sort_keys=True)


def _as_dict(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if value is None else dict(value)


def _as_names(value: Sequence[tuple[str, str]]) -> dict[str, str]:
    return dict(value)


def _as_lists(
    value: Sequence[Sequence[str | int]] | None,
) -> list[list[str | int]] | None:
    return None if value is None else [list(item) for item in value]


_AMOUNT_SCHEMA = {"type": "integer", "minimum": 0, "maximum": _MAX_AMOUNT}
_INTEGER_SCHEMA = {"type": "integer", "minimum": -_INT64, "maximum": _INT64 - 1}
_NAME_SCHEMA = {"type": "string", "minLength": 1, "maxLength": _MAX_NAME}
_UUID_SCHEMA = {"type": "string", "pattern": f"^{_UUID.pattern}$"}


def _mapping_schema(kind: str) -> dict[str, Any]:
    return {
        "type": "object",
        "propertyNames": {"type": "string"},
        "additionalProperties": {"type": kind},
    }


_TRIPLES_SCHEMA = {
    "type": "array",
    "items": {"type": "array", "items": _NAME_SCHEMA, "minItems": 3, "maxItems": 3},
}

_COUNT_SCHEMA = {"type": "integer", "minimum": 0, "maximum": _INT64 - 1}
_LAUNCHES_SCHEMA = {
    "type": ["array", "null"],
    "items": {
        "type": "array",
        "prefixItems": [
            _COUNT_SCHEMA,
            {"type": "string"},
            _COUNT_SCHEMA,
            _COUNT_SCHEMA,
            {"type": "string"},
        ],
        "minItems": 5,
        "maxItems": 5,
    },
}

AMOUNT = ColumnType("integer from 0 on", np.int64, read_count, _AMOUNT_SCHEMA)
INTEGER = ColumnType("integer", np.int64, _integer, _INTEGER_SCHEMA)
NUMBER = ColumnType("number", np.float64, _number, {"type": "number"})
RATIO = ColumnType(
    "number above 0", np.float64, _ratio, {"type": "number", "exclusiveMinimum": 0}
)
#: Seconds since the epoch; a source measures it, so that no report has it.
TIME = ColumnType("time", np.float64, float, {"type": "number"})
BOOLEAN = ColumnType("boolean", np.bool_, _boolean, {"type": "boolean"})
NAME = ColumnType("text", object, _name, _NAME_SCHEMA)
TEXT = ColumnType("text or null", object, _text, {"type": ["string", "null"]})
OPTIONAL_NAME = ColumnType("text or null", object, _text, _NAME_SCHEMA)
UUID = ColumnType("UUID", object, read_uuid, _UUID_SCHEMA)
TEXTS = ColumnType(
    "texts by name", object, read_texts, _mapping_schema("string"), _as_dict
)
NUMBERS = ColumnType(
    "numbers by name, or null", object, _numbers, _mapping_schema("number"), _as_dict
)
#: Hashable, so that interning it is fast: pairs of level and place, by level.
PLACES = ColumnType(
    "names by level",
    object,
    _places,
    {
        "type": "object",
        "propertyNames": _NAME_SCHEMA,
        "additionalProperties": _NAME_SCHEMA,
    },
    _as_names,
)
TRIPLES = ColumnType(
    "list of [architecture, hypervisor type, VM mode]",
    object,
    _triples,
    _TRIPLES_SCHEMA,
    _as_lists,
)
LAUNCHES = ColumnType(
    "list of [launched_at, project_id, vcpus, memory_mb, image], or null",
    object,
    _launches,
    _LAUNCHES_SCHEMA,
    _as_lists,
)
CPU_INFO = ColumnType("JSON text, or null", object, _cpu_info, {"type": "object"})
TOPOLOGY = ColumnType(
    "NUMATopology of nova, or null",
    object,
    _topology,
    {"type": ["object", "string"]},
    _as_json,
)
POOLS = ColumnType(
    "PciDevicePoolList of nova, or null",
    object,
    HostPools.read,
    {"type": ["object", "array", "string"]},
    _as_json,
)

#: The types of columns that plugins declare.
_SCALARS: Mapping[object, ColumnType] = MappingProxyType(
    {int: INTEGER, float: NUMBER, bool: BOOLEAN, str: TEXT}
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The declaration of a column of the host table.

    Attributes
    ----------
    name : str
        Its name in reports and files, and as an attribute of hosts.
    dtype : type
        int, float, bool or str: a column of int64, float64, bool or interned texts, of
        which each may be None. Moorage's own columns have other types, too.
    default : object
        The value of hosts that do not report it; `dataclasses.MISSING`: all must report
        it.
    unit : str
    description : str
    is_novas : bool
        Whether nova's HostState has it, so that extra specs may refer to it.
    is_reported : bool
        Whether agents report it.
    is_in_file : bool
        Whether an inventory file may have it.
    is_supply : bool
        Whether it describes a host's supply or access to it, on which Placement's
        answers depend.
    kind, read, write
        The column type, and its two functions.

    Raises
    ------
    ValueError
        The name is not an identifier, the type is not supported, or the default is not
        of that type.
    """

    name: str
    dtype: type | ColumnType
    default: Any
    unit: str = ""
    description: str
    is_novas: bool = False
    is_reported: bool = True
    is_in_file: bool = True
    is_supply: bool = False
    kind: ColumnType = dataclasses.field(init=False, repr=False)
    read: Callable[[Any], Any] = dataclasses.field(init=False, repr=False)
    write: Callable[[Any], Any] | None = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not re.fullmatch("[a-z][a-z0-9_]*", str(self.name)):
            raise ValueError(
                f"column {self.name!r}: the name has to be a lower-case identifier"
            )
        kind = self.dtype
        if not isinstance(kind, ColumnType):
            column_type = _SCALARS.get(kind) if isinstance(kind, type) else None
            if column_type is None:
                raise ValueError(
                    f"column {self.name!r}: dtype {kind!r} is not supported; use int, "
                    "float, bool or str"
                )
            kind = column_type
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "read", kind.read)
        object.__setattr__(self, "write", kind.write)
        if isinstance(self.dtype, type) and self.has_default:
            try:
                object.__setattr__(self, "default", kind.read(self.default))
            except ValueError as e:
                raise ValueError(f"column {self.name!r}: the default is {e}") from e

    @property
    def has_default(self) -> bool:
        """Whether a report may omit it."""
        return self.default is not dataclasses.MISSING

    @property
    def is_file_key(self) -> bool:
        """Whether a host in an inventory file can have the column under its name.

        Values of columns without a default are derived from other keys of the file.
        """
        return self.is_in_file and self.has_default

    @property
    def is_interned(self) -> bool:
        """Whether its values are interned, instead of numbers in an array."""
        return self.kind.dtype is object
