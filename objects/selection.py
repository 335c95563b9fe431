# SPDX-License-Identifier: Apache-2.0
"""The scheduler's answer: a host, its allocation request, its limits."""

from __future__ import annotations

from typing import Any, Self

from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields as of

from .base import WireObject, register
from .fields import NONE, Since, declare


@register
class SchedulerLimits(WireObject):
    """Limits that the chosen host must enforce."""

    VERSION = "1.0"
    fields = declare(
        disk_gb=of.IntegerField(nullable=True, default=NONE),
        memory_mb=of.IntegerField(nullable=True, default=NONE),
        numa_topology=of.ObjectField("NUMATopologyLimits", nullable=True, default=NONE),
        vcpu=of.IntegerField(nullable=True, default=NONE),
    )

    @classmethod
    def from_dict(cls, limits: dict[str, Any]) -> Self:
        """Create limits from a host state's dict; missing limits are None."""
        unlimited = dict.fromkeys(cls.fields)
        return cls(**{**unlimited, **limits}) if limits else cls.of_valid(**unlimited)

    def to_dict(self) -> dict[str, Any]:
        """Return the limits that are not None."""
        values = ((name, getattr(self, name)) for name in self.fields)
        return {name: value for name, value in values if value is not None}


@register
class Selection(ovo.ComparableVersionedObject, WireObject):
    """A chosen host or an alternate."""

    VERSION = "1.1"
    fields = declare(
        allocation_request=of.StringField(nullable=True),
        allocation_request_version=of.StringField(nullable=True),
        availability_zone=Since("1.1", of.StringField(nullable=True)),
        cell_uuid=of.UUIDField(),
        compute_node_uuid=of.UUIDField(),
        limits=of.ObjectField("SchedulerLimits", nullable=True),
        nodename=of.StringField(),
        service_host=of.StringField(),
    )

    def to_dict(self) -> dict[str, Any]:
        """Return the form that callers before RPC 4.5 get."""
        limits = self.limits.to_dict() if self.limits is not None else {}
        if "numa_topology" in limits:
            limits["numa_topology"] = limits["numa_topology"].obj_to_primitive()
        return {"host": self.service_host, "nodename": self.nodename, "limits": limits}
