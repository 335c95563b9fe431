# SPDX-License-Identifier: Apache-2.0
"""The JSON schema of an inventory file."""

from __future__ import annotations

from typing import Any, Final

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

_NUMBERS = {
    "type": "object",
    "propertyNames": {"type": "string"},
    "additionalProperties": {"type": "number"},
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

_HOST = _object(
    ("host", "cell", "vcpus", "memory_mb", "local_gb"),
    {
        "host": _NAME,
        "node": _NAME,
        "uuid": _UUID,
        "cell": _NAME,
        "vcpus": _TOTAL,
        "memory_mb": _TOTAL,
        "local_gb": _AMOUNT,
        "vcpus_used": _AMOUNT,
        "memory_mb_used": _AMOUNT,
        "local_gb_used": _AMOUNT,
        "reserved_host_cpus": _AMOUNT,
        "reserved_host_memory_mb": _AMOUNT,
        "reserved_host_disk_mb": _AMOUNT,
        "cpu_allocation_ratio": _RATIO,
        "ram_allocation_ratio": _RATIO,
        "disk_allocation_ratio": _RATIO,
        "num_instances": _AMOUNT,
        "num_io_ops": _AMOUNT,
        "failed_builds": _AMOUNT,
        "stats": _TEXTS,
        "metrics": _NUMBERS,
        "hypervisor_type": _NAME,
        "hypervisor_version": _AMOUNT,
        "supported_instances": {
            "type": "array",
            "items": {
                "type": "array",
                "items": _NAME,
                "minItems": 3,
                "maxItems": 3,
            },
        },
        "cpu_info": {"type": "object"},
        "numa_topology": {"type": ["object", "string"]},
        "pci_stats": {"type": ["object", "array", "string"]},
        "host_ip": _NAME,
        "disabled": {"type": "boolean"},
        "forced_down": {"type": "boolean"},
        "traits": {"type": "array", "items": _NAME},
        "resources": {"type": "object", "additionalProperties": _RESOURCE},
        "instances": {"type": "array", "items": _UUID},
    },
)

SCHEMA: Final = _object(
    ("cells", "hosts"),
    {
        "cells": {
            "type": "array",
            "minItems": 1,
            "items": _object(("name",), {"name": _NAME, "uuid": _UUID}),
        },
        "aggregates": {
            "type": "array",
            "items": _object(
                ("name", "hosts"),
                {
                    "name": _NAME,
                    "uuid": _UUID,
                    "metadata": _TEXTS,
                    "hosts": {"type": "array", "items": _NAME},
                },
            ),
        },
        "hosts": {"type": "array", "minItems": 1, "items": _HOST},
        # Holds anchors for YAML's merge keys; not read otherwise.
        "templates": {"type": "object"},
    },
)
