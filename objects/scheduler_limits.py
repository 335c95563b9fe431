# SPDX-License-Identifier: Apache-2.0
"""Limits for the chosen host, and the hosts of earlier attempts."""

from __future__ import annotations

from typing import Any, Self

from oslo_versionedobjects import fields as of

from .base import WireObject, register
from .compute_node import ComputeNode, ComputeNodeList
from .fields import NONE, declare


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
        """Create limits from a host state's dict; missing ones are None."""
        return cls(**{**dict.fromkeys(cls.fields), **limits})

    def to_dict(self) -> dict[str, Any]:
        """Return the limits that are not None."""
        values = ((name, getattr(self, name)) for name in self.fields)
        return {name: value for name, value in values if value is not None}


@register
class SchedulerRetries(WireObject):
    """The number of attempts, and their hosts."""

    VERSION = "1.1"
    fields = declare(
        hosts=of.ObjectField("ComputeNodeList"),
        num_attempts=of.IntegerField(),
    )

    @classmethod
    def from_dict(cls, context: object, retry: dict[str, Any]) -> Self:
        """Create it from the old dict form; empty if the hosts are missing."""
        if "hosts" not in retry:
            return cls()
        nodes = [
            ComputeNode(context, host=host, hypervisor_hostname=node)
            for host, node in retry["hosts"]
        ]
        return cls(
            num_attempts=retry.get("num_attempts", len(nodes)),
            hosts=ComputeNodeList(objects=nodes),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the old dict form."""
        hosts = [[node.host, node.hypervisor_hostname] for node in self.hosts]
        return {"num_attempts": self.num_attempts, "hosts": hosts}
