# SPDX-License-Identifier: Apache-2.0
"""The requested PCI devices of an instance."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from oslo_versionedobjects import fields as of

from .base import WireObject, register
from .enums import EnumField, PCINUMAAffinityPolicy
from .fields import declare


@register
class InstancePCIRequest(WireObject):
    """A number of devices that match one of the specs."""

    VERSION = "1.4"
    fields = declare(
        alias_name=of.StringField(nullable=True),
        count=of.IntegerField(),
        is_new=of.BooleanField(default=False),
        numa_policy=EnumField(PCINUMAAffinityPolicy(), nullable=True),
        request_id=of.UUIDField(nullable=True),
        requester_id=of.StringField(nullable=True),
        spec=of.ListOfDictOfNullableStringsField(),
    )
    FLAVOR_ALIAS = 0
    NEUTRON_PORT = 1

    ADDED = MappingProxyType(
        {"request_id": "1.1", "numa_policy": "1.2", "requester_id": "1.3"}
    )
    ADDED_VALUES = MappingProxyType({"numa_policy": {"socket": "1.4"}})

    @property
    def source(self) -> int:
        """The origin of the request: `FLAVOR_ALIAS` or `NEUTRON_PORT`."""
        return self.NEUTRON_PORT if self.alias_name is None else self.FLAVOR_ALIAS

    def _default_of(self, name: str) -> Any:  # noqa: ARG002 - the base class's
        # nova reads every unset field of a request as None.
        return None


@register
class InstancePCIRequests(WireObject):
    """All PCI requests of an instance."""

    VERSION = "1.1"
    fields = declare(
        instance_uuid=of.UUIDField(),
        requests=of.ListOfObjectsField("InstancePCIRequest"),
    )
