# SPDX-License-Identifier: Apache-2.0
"""The request in the form of dicts (RPC 4.0 to 4.2), before there were objects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .base import WireObject, read_object
from .image import ImageMeta
from .numa import InstanceNUMATopology
from .pci import InstancePCIRequests
from .request_parts import Flavor, InstanceGroup, SchedulerRetries
from .selection import SchedulerLimits


def request_fields(
    context: object, request_spec: Mapping[str, Any], filters: Mapping[str, Any]
) -> dict[str, Any]:
    """Translate the two dicts of RPC 4.0 to 4.2 to the fields of a RequestSpec."""
    fields: dict[str, Any] = {
        "num_instances": request_spec.get("num_instances", 1),
        "image": _image(request_spec.get("image")),
        "ignore_hosts": filters.get("ignore_hosts"),
        "force_hosts": filters.get("force_hosts"),
        "force_nodes": filters.get("force_nodes"),
        "limits": _limits(filters.get("limits", {})),
        "scheduler_hints": _hints(filters.get("scheduler_hints", {})),
        "requested_destination": filters.get("requested_destination"),
        "requested_resources": None,
        "instance_group": _group(filters),
    }
    retry = filters.get("retry")
    fields["retry"] = SchedulerRetries.from_dict(context, retry) if retry else None
    flavor = request_spec.get("instance_type")
    if flavor is not None:
        is_dict = isinstance(flavor, dict)
        fields["flavor"] = _object(flavor, Flavor, make=True) if is_dict else flavor
    return fields | _instance_fields(request_spec.get("instance_properties"))


def _object(value: object, cls: type[WireObject], make: bool = False) -> Any:
    """Return an object from itself, its wire form, its JSON or (`make`) its fields."""
    if isinstance(value, str):
        value = json.loads(value)
    if not isinstance(value, dict):
        return value
    if make and "nova_object.name" not in value:
        return cls(**{k: v for k, v in value.items() if k in cls.fields})
    return read_object(value, cls)


def _image(image: object) -> ImageMeta | None:
    if isinstance(image, ImageMeta):
        return image
    return ImageMeta.from_dict(image) if isinstance(image, dict) else None


def _limits(limits: object) -> Any:
    return SchedulerLimits.from_dict(limits) if isinstance(limits, dict) else limits


def _hints(hints: dict[str, Any] | None) -> dict[str, list[Any]] | None:
    if hints is None:
        return None
    return {k: v if isinstance(v, list) else [v] for k, v in hints.items()}


def _group(filters: Mapping[str, Any]) -> Any:
    if filters.get("instance_group"):
        return filters["instance_group"]
    if filters.get("group_updated") is not True:
        return None
    group = InstanceGroup(
        policy=next(iter(filters["group_policies"])),
        hosts=list(filters["group_hosts"]),
        members=list(filters["group_members"]),
    )
    if filters.get("group_uuid"):
        group.uuid = filters["group_uuid"]
    group.obj_reset_changes(["hosts"])
    return group


def _instance_fields(instance: object) -> dict[str, Any]:
    if instance is None:
        return {}
    if not isinstance(instance, dict):
        names = ("numa_topology", "pci_requests", "uuid", *_OWNER)
        instance = {name: getattr(instance, name) for name in names}
    fields = {name: instance.get(name) for name in _OWNER}
    topology = instance.get("numa_topology")
    requests = instance.get("pci_requests")
    fields["numa_topology"] = _object(topology, InstanceNUMATopology)
    fields["pci_requests"] = _object(requests, InstancePCIRequests)
    if instance.get("uuid"):
        fields["instance_uuid"] = instance["uuid"]
    return fields


_OWNER = ("project_id", "user_id", "availability_zone")
