# SPDX-License-Identifier: Apache-2.0
"""The request of a conductor: one or more equal instances."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

from oslo_versionedobjects import fields as of

from .base import WireObject, read_object, register
from .fields import NONE, Since, declare
from .image import ImageMeta
from .network import NetworkMetadata, NetworkRequestList, SecurityGroupList
from .numa import InstanceNUMATopology
from .pci import InstancePCIRequests
from .request_parts import Flavor, InstanceGroup, RequestLevelParams, SchedulerRetries
from .selection import SchedulerLimits

# nova sets these fields when it creates a request; old or partial requests may lack
# them.
_NONE_IF_UNSET = (
    "availability_zone",
    "force_hosts",
    "force_nodes",
    "ignore_hosts",
    "image",
    "instance_group",
    "limits",
    "numa_topology",
    "pci_requests",
    "project_id",
    "retry",
    "scheduler_hints",
    "user_id",
)


@register
class RequestSpec(WireObject):
    """The request that filters and weighers get as `spec_obj`."""

    VERSION = "1.15"
    fields = declare(
        availability_zone=of.StringField(nullable=True),
        flavor=of.ObjectField("Flavor"),
        force_hosts=of.ListOfStringsField(nullable=True),
        force_nodes=of.ListOfStringsField(nullable=True),
        id=of.IntegerField(),
        ignore_hosts=of.ListOfStringsField(nullable=True),
        image=of.ObjectField("ImageMeta", nullable=True),
        instance_group=of.ObjectField("InstanceGroup", nullable=True),
        instance_uuid=of.UUIDField(),
        is_bfv=Since("1.11", of.BooleanField()),
        limits=of.ObjectField("SchedulerLimits", nullable=True),
        network_metadata=Since("1.10", of.ObjectField("NetworkMetadata")),
        num_instances=of.IntegerField(default=1),
        numa_topology=of.ObjectField("InstanceNUMATopology", nullable=True),
        pci_requests=of.ObjectField("InstancePCIRequests", nullable=True),
        project_id=of.StringField(nullable=True),
        request_level_params=Since("1.13", of.ObjectField("RequestLevelParams")),
        requested_destination=Since(
            "1.6", of.ObjectField("Destination", nullable=True, default=NONE)
        ),
        requested_networks=Since("1.14", of.ObjectField("NetworkRequestList")),
        requested_resources=Since(
            "1.12", of.ListOfObjectsField("RequestGroup", nullable=True, default=NONE)
        ),
        retry=of.ObjectField("SchedulerRetries", nullable=True),
        scheduler_hints=of.DictOfListOfStringsField(nullable=True),
        security_groups=Since("1.8", of.ObjectField("SecurityGroupList")),
        user_id=Since("1.9", of.StringField(nullable=True)),
    )
    UNSET = MappingProxyType(
        dict.fromkeys(_NONE_IF_UNSET, lambda: None)
        | {
            "is_bfv": lambda: False,
            "network_metadata": lambda: NetworkMetadata(physnets=set(), tunneled=False),
            "request_level_params": RequestLevelParams,
            "requested_networks": NetworkRequestList,
            "security_groups": SecurityGroupList,
        }
    )

    @property
    def vcpus(self) -> int:
        """The flavor's CPUs."""
        return int(self.flavor.vcpus)

    @property
    def memory_mb(self) -> int:
        """The flavor's memory, MiB."""
        return int(self.flavor.memory_mb)

    @property
    def root_gb(self) -> int:
        """The flavor's root disk, GiB."""
        return int(self.flavor.root_gb)

    @property
    def ephemeral_gb(self) -> int:
        """The flavor's ephemeral disks, GiB."""
        return int(self.flavor.ephemeral_gb)

    @property
    def swap(self) -> int:
        """The flavor's swap, MiB."""
        return int(self.flavor.swap)

    @property
    def root_required(self) -> set[str]:
        """Traits that the root provider must have."""
        traits: set[str] = self.request_level_params.root_required
        return traits

    @property
    def root_forbidden(self) -> set[str]:
        """Traits that the root provider must not have."""
        traits: set[str] = self.request_level_params.root_forbidden
        return traits

    @property
    def same_subtree(self) -> list[list[str]]:
        """Request groups that must be allocated from one subtree."""
        groups: list[list[str]] = self.request_level_params.same_subtree
        return groups

    def get_request_group_mapping(self) -> dict[str, list[str]] | None:
        """Return the provider UUIDs by requester; None without requested resources."""
        if self.requested_resources is None:
            return None
        return {
            group.requester_id: group.provider_uuids
            for group in self.requested_resources
        }

    def get_scheduler_hint(self, hint_name: str, default: object = None) -> Any:
        """Return a hint: its value, or the list if there are several."""
        values = (self.scheduler_hints or {}).get(hint_name, default)
        return values[0] if isinstance(values, list) and len(values) == 1 else values

    @classmethod
    def from_primitives(
        cls,
        context: object,
        request_spec: dict[str, Any],
        filter_properties: dict[str, Any],
    ) -> Self:
        """Create a request from the two dicts that callers before RPC 4.3 send."""
        fields = _fields_of_dicts(context, request_spec, filter_properties)
        return cls(context, **fields)


# -- the request as dicts (RPC 4.0 to 4.2), before there were objects ------------------


def _fields_of_dicts(
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
        return cls(**{name: item for name, item in value.items() if name in cls.fields})
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
    return {
        name: values if isinstance(values, list) else [values]
        for name, values in hints.items()
    }


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
