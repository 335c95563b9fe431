# SPDX-License-Identifier: Apache-2.0
"""The request of a conductor: one or more equal instances."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Self

from oslo_versionedobjects import fields as of

from . import legacy
from .base import WireObject, register
from .fields import NONE, Since, declare
from .network import NetworkMetadata, NetworkRequestList, SecurityGroupList
from .request_parts import RequestLevelParams

# nova sets these when it creates a request; old or partial requests may lack them.
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
        return {g.requester_id: g.provider_uuids for g in self.requested_resources}

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
        return cls(
            context, **legacy.request_fields(context, request_spec, filter_properties)
        )
