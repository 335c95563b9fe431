# SPDX-License-Identifier: Apache-2.0
"""The payloads of nova's versioned notifications of select_destinations.

Names, versions and fields are nova 34's (``nova.notifications.objects``). They are
never received, so they are not in `REGISTRY`. A field that is not set in the request is
None, where the payload allows that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar

from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields as of

from . import enums
from .base import WireObject
from .fields import NONE, EnumField, declare
from .image import ImageMetaProps
from .writing import writer

if TYPE_CHECKING:
    from .request_parts import Destination, InstanceGroup, SchedulerRetries
    from .request_spec import RequestSpec

#: All payloads by name.
PAYLOADS: Final[dict[str, type[Payload]]] = {}

_Class = TypeVar("_Class", bound="type[Payload]")


def _payload(cls: _Class) -> _Class:
    ovo.VersionedObjectRegistry.objectify(cls)
    cls._readers = {}
    cls._writers = {n: (f"_obj_{n}", writer(f)) for n, f in cls.fields.items()}
    PAYLOADS[cls.obj_name()] = cls
    return cls


def _value(source: WireObject, name: str) -> Any:
    """Return a field, or None if it is not set; defaults are not used."""
    return getattr(source, name) if name in source else None


class Payload(WireObject):
    """The base of all payloads; created by `of`, serialized like all objects."""

    #: Fields that are copied from the source's fields of the same names.
    COPIED: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of(cls, source: Any) -> Self:
        """Return the payload of an object.

        Raises
        ------
        ValueError
            The source lacks a field that the payload requires.
        """
        made = cls()
        for name in cls.COPIED:
            setattr(made, name, _value(source, name))
        return made

    def _changed_in(
        self,
        data: Mapping[str, Any],  # noqa: ARG002 - the base class's
    ) -> set[str]:
        # A payload is created for one notification: it has no changes.
        return set()


@_payload
class FlavorPayload(Payload):
    """A flavor."""

    VERSION = "1.4"
    fields = declare(
        flavorid=of.StringField(nullable=True),
        memory_mb=of.IntegerField(nullable=True),
        vcpus=of.IntegerField(nullable=True),
        root_gb=of.IntegerField(nullable=True),
        ephemeral_gb=of.IntegerField(nullable=True),
        name=of.StringField(),
        swap=of.IntegerField(),
        rxtx_factor=of.FloatField(nullable=True),
        vcpu_weight=of.IntegerField(nullable=True),
        disabled=of.BooleanField(),
        is_public=of.BooleanField(),
        extra_specs=of.DictOfStringsField(nullable=True),
        projects=of.ListOfStringsField(nullable=True),
        description=of.StringField(nullable=True),
    )
    COPIED = tuple(fields)


@_payload
class ImageMetaPropsPayload(Payload):
    """The properties of an image that are set."""

    VERSION = "1.20"
    fields = declare(
        **{
            name: field
            for name, field in ImageMetaProps.fields.items()
            if name != "hw_ephemeral_encryption_secret_uuid"
        }
    )

    @classmethod
    def of(cls, source: ImageMetaProps) -> Self:
        """Return the payload; unset properties stay unset."""
        made = cls()
        for name in cls.fields:
            if name in source:
                setattr(made, name, getattr(source, name))
        return made


@_payload
class ImageMetaPayload(Payload):
    """An image."""

    VERSION = "1.0"
    fields = declare(
        id=of.UUIDField(nullable=True),
        name=of.StringField(nullable=True),
        status=of.StringField(nullable=True),
        visibility=of.StringField(nullable=True),
        protected=of.FlexibleBooleanField(nullable=True),
        checksum=of.StringField(nullable=True),
        owner=of.StringField(nullable=True),
        size=of.IntegerField(nullable=True),
        virtual_size=of.IntegerField(nullable=True),
        container_format=of.StringField(nullable=True),
        disk_format=of.StringField(nullable=True),
        created_at=of.DateTimeField(nullable=True),
        updated_at=of.DateTimeField(nullable=True),
        tags=of.ListOfStringsField(nullable=True),
        direct_url=of.StringField(nullable=True),
        min_ram=of.IntegerField(nullable=True),
        min_disk=of.IntegerField(nullable=True),
        properties=of.ObjectField("ImageMetaPropsPayload"),
    )
    COPIED = tuple(name for name in fields if name != "properties")

    @classmethod
    def of(cls, source: Any) -> Self:
        """Return the payload of an ImageMeta."""
        made = super().of(source)
        made.properties = ImageMetaPropsPayload.of(source.properties)
        return made


@_payload
class VirtCPUTopologyPayload(Payload):
    """Sockets, cores and threads of a guest."""

    VERSION = "1.0"
    fields = declare(
        sockets=of.IntegerField(nullable=True, default=1),
        cores=of.IntegerField(nullable=True, default=1),
        threads=of.IntegerField(nullable=True, default=1),
    )
    COPIED = tuple(fields)


@_payload
class InstanceNUMACellPayload(Payload):
    """A NUMA cell of a guest."""

    VERSION = "1.2"
    fields = declare(
        id=of.IntegerField(),
        cpuset=of.SetOfIntegersField(),
        pcpuset=of.SetOfIntegersField(),
        cpuset_reserved=of.SetOfIntegersField(nullable=True),
        memory=of.IntegerField(),
        pagesize=of.IntegerField(nullable=True),
        cpu_topology=of.ObjectField("VirtCPUTopologyPayload", nullable=True),
        cpu_pinning_raw=of.DictOfIntegersField(nullable=True),
        cpu_policy=EnumField(enums.CPU_ALLOCATION_POLICY, nullable=True),
        cpu_thread_policy=EnumField(enums.CPU_THREAD_ALLOCATION_POLICY, nullable=True),
    )
    COPIED = tuple(name for name in fields if name != "cpu_topology")

    @classmethod
    def of(cls, source: Any) -> Self:
        """Return the payload of an InstanceNUMACell."""
        made = super().of(source)
        topology = _value(source, "cpu_topology")
        made.cpu_topology = topology and VirtCPUTopologyPayload.of(topology)
        return made


@_payload
class InstanceNUMATopologyPayload(Payload):
    """The NUMA cells of a guest."""

    VERSION = "1.0"
    fields = declare(
        instance_uuid=of.UUIDField(),
        cells=of.ListOfObjectsField("InstanceNUMACellPayload"),
        emulator_threads_policy=EnumField(
            enums.CPU_EMULATOR_THREADS_POLICY, nullable=True
        ),
    )
    COPIED = ("instance_uuid", "emulator_threads_policy")

    @classmethod
    def of(cls, source: Any) -> Self:
        """Return the payload of an InstanceNUMATopology."""
        made = super().of(source)
        made.cells = [InstanceNUMACellPayload.of(cell) for cell in source.cells]
        return made


@_payload
class InstancePCIRequestPayload(Payload):
    """A number of PCI devices that match one of the specs."""

    VERSION = "1.1"
    fields = declare(
        count=of.IntegerField(),
        spec=of.ListOfDictOfNullableStringsField(),
        alias_name=of.StringField(nullable=True),
        request_id=of.UUIDField(nullable=True),
        numa_policy=EnumField(enums.PCI_NUMA_AFFINITY_POLICY, nullable=True),
    )
    COPIED = tuple(fields)


@_payload
class InstancePCIRequestsPayload(Payload):
    """All requested PCI devices of an instance."""

    VERSION = "1.0"
    fields = declare(
        instance_uuid=of.UUIDField(),
        requests=of.ListOfObjectsField("InstancePCIRequestPayload"),
    )
    COPIED = ("instance_uuid",)

    @classmethod
    def of(cls, source: Any) -> Self:
        """Return the payload of an InstancePCIRequests."""
        made = super().of(source)
        made.requests = [InstancePCIRequestPayload.of(each) for each in source.requests]
        return made


@_payload
class CellMappingPayload(Payload):
    """A cell, without its URLs, which contain passwords."""

    VERSION = "2.0"
    fields = declare(
        uuid=of.UUIDField(),
        name=of.StringField(nullable=True),
        disabled=of.BooleanField(default=False),
    )
    COPIED = tuple(fields)


@_payload
class DestinationPayload(Payload):
    """The requested destination; host, node and cell only if set."""

    VERSION = "1.0"
    fields = declare(
        host=of.StringField(),
        node=of.StringField(nullable=True),
        cell=of.ObjectField("CellMappingPayload", nullable=True),
        aggregates=of.ListOfStringsField(nullable=True, default=NONE),
    )
    COPIED = ("aggregates",)

    @classmethod
    def of(cls, source: Destination) -> Self:
        """Return the payload of a Destination."""
        made = super().of(source)
        for name in ("host", "node"):
            if _value(source, name) is not None:
                setattr(made, name, getattr(source, name))
        if _value(source, "cell") is not None:
            made.cell = CellMappingPayload.of(source.cell)
        return made


@_payload
class SchedulerRetriesPayload(Payload):
    """The number of attempts, and the nodes."""

    VERSION = "1.0"
    fields = declare(
        num_attempts=of.IntegerField(),
        hosts=of.ListOfStringsField(),
    )
    COPIED = ("num_attempts",)

    @classmethod
    def of(cls, source: SchedulerRetries) -> Self:
        """Return the payload of a SchedulerRetries."""
        made = super().of(source)
        made.hosts = [node.hypervisor_hostname for node in source.hosts]
        return made


@_payload
class ServerGroupPayload(Payload):
    """A server group."""

    VERSION = "1.1"
    fields = declare(
        uuid=of.UUIDField(),
        name=of.StringField(nullable=True),
        user_id=of.StringField(nullable=True),
        project_id=of.StringField(nullable=True),
        policies=of.ListOfStringsField(nullable=True),
        members=of.ListOfStringsField(nullable=True),
        hosts=of.ListOfStringsField(nullable=True),
        policy=of.StringField(nullable=True),
        rules=of.DictOfStringsField(),
    )
    COPIED = tuple(name for name in fields if name != "rules")

    @classmethod
    def of(cls, source: InstanceGroup) -> Self:
        """Return the payload of an InstanceGroup."""
        made = super().of(source)
        known = ("max_server_per_host",)
        made.rules = {k: v for k, v in source.rules.items() if k in known}
        return made


@_payload
class RequestSpecPayload(Payload):
    """A request at the start and at the end of its scheduling."""

    VERSION = "1.1"
    fields = declare(
        instance_uuid=of.UUIDField(),
        project_id=of.StringField(nullable=True),
        user_id=of.StringField(nullable=True),
        availability_zone=of.StringField(nullable=True),
        flavor=of.ObjectField("FlavorPayload", nullable=True),
        force_hosts=of.StringField(nullable=True),
        force_nodes=of.StringField(nullable=True),
        ignore_hosts=of.ListOfStringsField(nullable=True),
        image_meta=of.ObjectField("ImageMetaPayload", nullable=True),
        instance_group=of.ObjectField("ServerGroupPayload", nullable=True),
        image=of.ObjectField("ImageMetaPayload", nullable=True),
        numa_topology=of.ObjectField("InstanceNUMATopologyPayload", nullable=True),
        pci_requests=of.ObjectField("InstancePCIRequestsPayload", nullable=True),
        num_instances=of.IntegerField(default=1),
        requested_destination=of.ObjectField("DestinationPayload", nullable=True),
        retry=of.ObjectField("SchedulerRetriesPayload", nullable=True),
        scheduler_hints=of.DictOfListOfStringsField(nullable=True),
        security_groups=of.ListOfStringsField(),
    )
    COPIED = (
        "ignore_hosts",
        "instance_uuid",
        "project_id",
        "user_id",
        "availability_zone",
        "num_instances",
        "scheduler_hints",
    )
    _NESTED: ClassVar[Mapping[str, type[Payload]]] = {
        "flavor": FlavorPayload,
        "image": ImageMetaPayload,
        "numa_topology": InstanceNUMATopologyPayload,
        "pci_requests": InstancePCIRequestsPayload,
        "requested_destination": DestinationPayload,
        "retry": SchedulerRetriesPayload,
        "instance_group": ServerGroupPayload,
    }

    @classmethod
    def of(cls, source: RequestSpec) -> Self:
        """Return the payload of a RequestSpec; ``image_meta`` is left out, as by nova.

        The NUMA topology and the PCI requests must have their ``instance_uuid``.
        """
        made = super().of(source)
        for name, kind in cls._NESTED.items():
            value = _value(source, name)
            setattr(made, name, None if value is None else kind.of(value))
        for name in ("force_hosts", "force_nodes"):
            names = _value(source, name)
            setattr(made, name, names[0] if names else None)
        made.security_groups = [
            group.uuid if "uuid" in group else group.name
            for group in source.security_groups
        ]
        return made
