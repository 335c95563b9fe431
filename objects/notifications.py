# SPDX-License-Identifier: Apache-2.0
"""The payloads of nova's versioned notifications of select_destinations.

Names, versions and fields are nova 34's (``nova.notifications.objects``). They are
never received, so they are not in `REGISTRY`. A field that is not set in the request is
None, where the payload allows that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar

from oslo_versionedobjects import fields as of

from . import enums
from .base import WireObject, register
from .fields import NONE, EnumField, class_of, declare, element_of, type_of
from .image import ImageMetaProps

if TYPE_CHECKING:
    from .request_parts import InstanceGroup
    from .request_spec import RequestSpec

#: All payloads by name.
PAYLOADS: Final[dict[str, Any]] = {}

_Class = TypeVar("_Class", bound="type[Payload]")


def _payload(cls: _Class) -> _Class:
    return register(cls, PAYLOADS)


def _value(source: WireObject, name: str) -> Any:
    """Return a field, or None if it is not set; defaults are not used."""
    return getattr(source, name) if name in source else None


class Payload(WireObject):
    """The base of all payloads; created by `of`, serialized like all objects."""

    #: Functions that compute fields from the source object; other fields are copied
    #: from the source's field of the same name.
    COMPUTED: ClassVar[Mapping[str, Callable[[Any], Any]]] = MappingProxyType({})
    #: The fields that are omitted if the source has no value; others are None then.
    OPTIONAL: ClassVar[Collection[str]] = ()

    @classmethod
    def of(cls, source: WireObject) -> Self:
        """Return the payload of an object, with the payloads of nested objects.

        Raises
        ------
        ValueError
            The source lacks a field that the payload requires.
        """
        payload = cls()
        for name, field in cls.fields.items():
            compute = cls.COMPUTED.get(name)
            value = compute(source) if compute else _value(source, name)
            if value is not None or name not in cls.OPTIONAL:
                setattr(payload, name, _payloads_of(value, type_of(field)))
        return payload

    def _changed_in(
        self,
        data: Mapping[str, Any],  # noqa: ARG002 - the base class's
    ) -> set[str]:
        # A payload is created for one notification: it has no changes.
        return set()


def _payloads_of(value: Any, kind: of.FieldType[Any]) -> Any:
    if value is None:
        return None
    if isinstance(kind, of.Object):
        return PAYLOADS[class_of(kind)[0]].of(value)
    if isinstance(kind, of.List):
        return [_payloads_of(item, type_of(element_of(kind))) for item in value]
    return value


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
    OPTIONAL = tuple(fields)


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


@_payload
class VirtCPUTopologyPayload(Payload):
    """Sockets, cores and threads of a guest."""

    VERSION = "1.0"
    fields = declare(
        sockets=of.IntegerField(nullable=True, default=1),
        cores=of.IntegerField(nullable=True, default=1),
        threads=of.IntegerField(nullable=True, default=1),
    )


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


@_payload
class InstancePCIRequestsPayload(Payload):
    """All requested PCI devices of an instance."""

    VERSION = "1.0"
    fields = declare(
        instance_uuid=of.UUIDField(),
        requests=of.ListOfObjectsField("InstancePCIRequestPayload"),
    )


@_payload
class CellMappingPayload(Payload):
    """A cell, without its URLs, which contain passwords."""

    VERSION = "2.0"
    fields = declare(
        uuid=of.UUIDField(),
        name=of.StringField(nullable=True),
        disabled=of.BooleanField(default=False),
    )


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
    OPTIONAL = ("host", "node", "cell")


@_payload
class SchedulerRetriesPayload(Payload):
    """The number of attempts, and the compute nodes that were tried."""

    VERSION = "1.0"
    fields = declare(
        num_attempts=of.IntegerField(),
        hosts=of.ListOfStringsField(),
    )
    COMPUTED = MappingProxyType(
        {"hosts": lambda retry: [node.hypervisor_hostname for node in retry.hosts]}
    )


def _published_rules(group: InstanceGroup) -> dict[str, Any]:
    """Return the only rule that nova's ``InstanceGroup.rules`` returns, if set."""
    return {
        name: value
        for name, value in group.rules.items()
        if name == "max_server_per_host"
    }


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
    COMPUTED = MappingProxyType({"rules": _published_rules})


def _first_of(name: str) -> Callable[[RequestSpec], str | None]:
    """Return a function that returns the first item of a list field, or None."""
    return lambda spec_obj: next(iter(_value(spec_obj, name) or ()), None)


def _security_groups(spec_obj: RequestSpec) -> list[str]:
    groups = spec_obj.security_groups
    return [group.uuid if "uuid" in group else group.name for group in groups]


@_payload
class RequestSpecPayload(Payload):
    """A request at the start and at the end of its scheduling.

    Its NUMA topology and its PCI requests must have their ``instance_uuid``.
    """

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
    COMPUTED = MappingProxyType(
        {
            "force_hosts": _first_of("force_hosts"),
            "force_nodes": _first_of("force_nodes"),
            "security_groups": _security_groups,
        }
    )
    OPTIONAL = ("image_meta",)  # nova leaves it out, too
