# SPDX-License-Identifier: Apache-2.0
"""The scheduler's answer: a host, its allocation request, its limits."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields as of

from .base import WireObject, register
from .fields import declare


@register
class Selection(ovo.ComparableVersionedObject, WireObject):
    """A chosen host or an alternate."""

    VERSION = "1.1"
    fields = declare(
        allocation_request=of.StringField(nullable=True),
        allocation_request_version=of.StringField(nullable=True),
        availability_zone=of.StringField(nullable=True),
        cell_uuid=of.UUIDField(),
        compute_node_uuid=of.UUIDField(),
        limits=of.ObjectField("SchedulerLimits", nullable=True),
        nodename=of.StringField(),
        service_host=of.StringField(),
    )
    ADDED = MappingProxyType({"availability_zone": "1.1"})

    def to_dict(self) -> dict[str, Any]:
        """Return the form that callers before 4.5 get."""
        limits = self.limits.to_dict() if self.limits is not None else {}
        if "numa_topology" in limits:
            limits["numa_topology"] = limits["numa_topology"].obj_to_primitive()
        return {"host": self.service_host, "nodename": self.nodename, "limits": limits}
