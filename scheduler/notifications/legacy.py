# SPDX-License-Identifier: Apache-2.0
"""The legacy (unversioned) payload, as nova 34 sends it.

It is nova's ``RequestSpec.to_legacy_request_spec_dict`` after its JSON serializer: an
object with dict compatibility becomes a dict, any other becomes its ``__dict__``, with
``_obj_`` before each field. Consumers parse that form, so it stays.
"""

from __future__ import annotations

import datetime
from typing import Any, Final

from ...objects import RequestSpec, WireObject

#: How nova's serializer writes a time.
_TIME: Final = "%Y-%m-%dT%H:%M:%S.%f"

#: Objects of the payload that have nova's dict compatibility.
_DICT_COMPATIBLE: Final = frozenset(
    {"Flavor", "InstanceNUMATopology", "InstanceNUMACell"}
)

_OF_INSTANCE: Final = (
    "numa_topology",
    "pci_requests",
    "project_id",
    "user_id",
    "availability_zone",
)
_OF_FLAVOR: Final = ("root_gb", "ephemeral_gb", "memory_mb", "vcpus")


def legacy_payload(spec_obj: RequestSpec) -> dict[str, Any]:
    """Return the payload of a request as plain data that JSON can hold."""
    image = _value(spec_obj, "image")
    flavor = _value(spec_obj, "flavor")
    request_spec = {
        "num_instances": spec_obj.num_instances,
        "image": _fields(image) if image else {},
        "instance_properties": _instance(spec_obj, flavor),
        "instance_type": _plain(flavor) if flavor is not None else {},
    }
    return {"request_spec": request_spec}


def _value(source: WireObject, name: str) -> Any:  # noqa: ANN401 - of its field's type
    return getattr(source, name) if name in source else None


def _instance(spec_obj: RequestSpec, flavor: object) -> dict[str, Any]:
    values = {
        name: _plain(getattr(spec_obj, name))
        for name in _OF_INSTANCE
        if name in spec_obj
    }
    if "instance_uuid" in spec_obj:
        values["uuid"] = spec_obj.instance_uuid
    if flavor is not None:
        values |= {name: getattr(flavor, name) for name in _OF_FLAVOR}
    return values


def _plain(value: object) -> Any:  # noqa: ANN401 - what JSON takes
    if isinstance(value, WireObject):
        return (
            _fields(value)
            if value.obj_name() in _DICT_COMPATIBLE
            else _attributes(value)
        )
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.strftime(_TIME) if isinstance(value, datetime.datetime) else value


def _fields(source: WireObject) -> dict[str, Any]:
    """Return the fields that are set, those of an image's properties included."""
    values = {}
    for name in source.fields:
        if name in source:
            value = getattr(source, name)
            is_properties = isinstance(value, WireObject) and name == "properties"
            values[name] = _fields(value) if is_properties else _plain(value)
    return values


def _attributes(source: WireObject) -> dict[str, Any]:
    """Return the ``__dict__`` of a nova object received over RPC.

    nova includes its request context, with the token; that is left out here.
    """
    return {
        "VERSION": source.VERSION,
        "_context": None,
        "_changed_fields": sorted(source.obj_what_changed()),
        **{
            f"_obj_{name}": _plain(getattr(source, name))
            for name in source.fields
            if name in source
        },
    }
