# SPDX-License-Identifier: Apache-2.0
"""PCI devices: of a host, single and in pools, and of a request."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Self

from oslo_versionedobjects import fields as of

from . import enums
from .base import ObjectList, Persistent, WireObject, register
from .envelope import version_tuple
from .fields import EnumField, Since, declare


@register
class PciDevice(Persistent, WireObject):
    """A PCI device."""

    VERSION = "1.7"
    fields = declare(
        address=of.StringField(),
        compute_node_id=of.IntegerField(nullable=True),
        dev_id=of.StringField(nullable=True),
        dev_type=EnumField(enums.PCI_DEVICE_TYPE),
        extra_info=of.DictOfStringsField(default={}),
        id=of.IntegerField(),
        instance_uuid=of.StringField(nullable=True),
        label=of.StringField(nullable=True),
        numa_node=Since("1.3", of.IntegerField(nullable=True)),
        parent_addr=Since("1.4", of.StringField(nullable=True)),
        product_id=of.StringField(),
        request_id=Since("1.2", of.StringField(nullable=True)),
        status=EnumField(enums.PCI_DEVICE_STATUS),
        uuid=Since("1.6", of.UUIDField()),
        vendor_id=of.StringField(),
    )
    ADDED_VALUES = MappingProxyType(
        {
            "status": {"unclaimable": "1.5", "unavailable": "1.5"},
            "dev_type": {"vdpa": "1.7"},
        }
    )

    def obj_make_compatible(
        self, primitive: dict[str, Any], target_version: str
    ) -> None:
        """Move the parent to `extra_info`, where old versions have it."""
        parent = primitive.get("parent_addr")
        if parent is not None and version_tuple(target_version) < (1, 4):
            primitive.setdefault("extra_info", {})["phys_function"] = parent
        super().obj_make_compatible(primitive, target_version)


@register
class PciDeviceList(ObjectList):
    """A list of PCI devices."""

    VERSION = "1.3"
    fields = declare(objects=of.ListOfObjectsField("PciDevice"))


@register
class PciDevicePool(WireObject):
    """The number of free devices of one kind on a host."""

    VERSION = "1.1"
    fields = declare(
        count=of.IntegerField(),
        numa_node=Since("1.1", of.IntegerField(nullable=True)),
        product_id=of.StringField(),
        tags=of.DictOfNullableStringsField(),
        vendor_id=of.StringField(),
    )

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """Create a pool from its flat form; keys that are not fields are tags."""
        field_names = ("vendor_id", "product_id", "count")
        return cls(
            numa_node=value.get("numa_node"),
            tags={
                key: tag
                for key, tag in value.items()
                if key not in (*field_names, "numa_node")
            },
            **{key: value[key] for key in field_names},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the flat form, with tags beside the fields."""
        flat = {
            name: getattr(self, name)
            for name in self.fields
            if name in self and name != "tags"
        }
        return flat | dict(self.tags if "tags" in self else {})


@register
class PciDevicePoolList(ObjectList):
    """A list of PCI device pools."""

    VERSION = "1.1"
    fields = declare(objects=of.ListOfObjectsField("PciDevicePool"))


@register
class InstancePCIRequest(WireObject):
    """A number of devices that match one of the specs."""

    VERSION = "1.4"
    fields = declare(
        alias_name=of.StringField(nullable=True),
        count=of.IntegerField(),
        is_new=of.BooleanField(default=False),
        numa_policy=Since(
            "1.2", EnumField(enums.PCI_NUMA_AFFINITY_POLICY, nullable=True)
        ),
        request_id=Since("1.1", of.UUIDField(nullable=True)),
        requester_id=Since("1.3", of.StringField(nullable=True)),
        spec=of.ListOfDictOfNullableStringsField(),
    )
    FLAVOR_ALIAS = 0
    NEUTRON_PORT = 1

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
