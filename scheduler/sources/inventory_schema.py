# SPDX-License-Identifier: Apache-2.0
"""The JSON schema of an inventory file: its own keys, and the host columns."""

from __future__ import annotations

from typing import Any, Final

from ..hosts import Columns

#: Placement keeps amounts as signed 32-bit integers.
_MAX_AMOUNT = 2**31 - 1

_NAME = {"type": "string", "minLength": 1, "maxLength": 255}
_UUID = {
    "type": "string",
    "pattern": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
}
_AMOUNT = {"type": "integer", "minimum": 0, "maximum": _MAX_AMOUNT}
_TOTAL = {"type": "integer", "minimum": 1, "maximum": _MAX_AMOUNT}
_RATIO = {"type": "number", "exclusiveMinimum": 0}
_TEXTS = {
    "type": "object",
    "propertyNames": {"type": "string"},
    "additionalProperties": {"type": "string"},
}


def _object(required: tuple[str, ...], properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(required),
        "properties": properties,
        "additionalProperties": False,
    }


_RESOURCE = _object(
    ("total",),
    {
        "total": _TOTAL,
        "reserved": _AMOUNT,
        "min_unit": _TOTAL,
        "max_unit": _TOTAL,
        "step_size": _TOTAL,
        "allocation_ratio": _RATIO,
    },
)

#: The keys of a host that are not columns: values for Placement, and amounts in the
#: form that a user of the file knows.
HOST_KEYS: Final[dict[str, Any]] = {
    "node": _NAME,
    "cell": _NAME,
    "vcpus": _AMOUNT,
    "memory_mb": _AMOUNT,
    "local_gb": _AMOUNT,
    "memory_mb_used": _AMOUNT,
    "local_gb_used": _AMOUNT,
    "reserved_host_cpus": _AMOUNT,
    "reserved_host_memory_mb": _AMOUNT,
    "reserved_host_disk_mb": _AMOUNT,
    "traits": {"type": "array", "items": _NAME},
    "resources": {"type": "object", "additionalProperties": _RESOURCE},
    "instances": {"type": "array", "items": _UUID},
}
#: The schemas of columns without a default that a file has under their own names, and
#: may omit, except the host.
_REQUIRED = {"host": _NAME, "uuid": _UUID, "vcpus_used": _AMOUNT}


def inventory_schema(columns: Columns) -> dict[str, Any]:
    """Return the schema for hosts with these columns."""
    column_schemas = {n: c.kind.schema for n, c in columns.items() if c.is_file_key}
    host = _object(
        ("host", "cell", "vcpus", "memory_mb", "local_gb"),
        {**_REQUIRED, **HOST_KEYS, **column_schemas},
    )
    cell = _object(("name",), {"name": _NAME, "uuid": _UUID})
    aggregate = _object(
        ("name", "hosts"),
        {
            "name": _NAME,
            "uuid": _UUID,
            "metadata": _TEXTS,
            "hosts": {"type": "array", "items": _NAME},
        },
    )
    return _object(
        ("cells", "hosts"),
        {
            "cells": {"type": "array", "minItems": 1, "items": cell},
            "aggregates": {"type": "array", "items": aggregate},
            "hosts": {"type": "array", "minItems": 1, "items": host},
            # Holds anchors for YAML's merge keys; not read otherwise.
            "templates": {"type": "object"},
        },
    )
