# SPDX-License-Identifier: Apache-2.0
"""What an agent reports of a compute node: all of it, or what has changed since.

These objects are ours, not nova's, and stand apart from nova's in `REGISTRY`: they
have the namespace "moorage" and keys ``moorage_object.*``, so that a serializer hands
them on as they came. One report that cannot be read then spoils no other of its cast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields as of

from .envelope import version_tuple
from .errors import MalformedObject, UnsupportedObject
from .fields import NONE, Fields, declare

SERIAL_NAMESPACE: Final = "moorage_object"
PROJECT_NAMESPACE: Final = "moorage"

_NAME: Final = f"{SERIAL_NAMESPACE}.name"
_NAMESPACE: Final = f"{SERIAL_NAMESPACE}.namespace"
_VERSION: Final = f"{SERIAL_NAMESPACE}.version"
_DATA: Final = f"{SERIAL_NAMESPACE}.data"


_ADDRESS: Final[Fields] = declare(
    uuid=of.UUIDField(),
    incarnation=of.UUIDField(),
    revision=of.IntegerField(),
    reply_topic=of.StringField(nullable=True, default=NONE),
    reply_server=of.StringField(nullable=True, default=NONE),
)


class Columns(of.FieldType[Any]):
    """Some columns of a host: JSON values by name."""

    def coerce(
        self,
        obj: ovo.VersionedObject | None,  # noqa: ARG002 - FieldType's signature
        attr: str,
        value: object,
    ) -> dict[str, Any]:
        """Take a dict whose keys are texts."""
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return value
        raise ValueError(f"{attr} is not values by column")


class ColumnsField(of.AutoTypedField[Any]):
    """A field that holds some columns of a host."""

    AUTO_TYPE = Columns()


class ReportObject(ovo.VersionedObject):
    """What both kinds of report have in common.

    Attributes
    ----------
    uuid : str
        The compute node's UUID, which is its root resource provider's too.
    incarnation : str
        A UUID that the agent makes when it starts.
    revision : int
        The number of this state of the node, which only grows within an incarnation.
    reply_topic, reply_server : str, optional
        Where the agent can be asked for a whole report: a topic of the message bus,
        and the server on it. None: it cannot be asked.
    """

    OBJ_SERIAL_NAMESPACE = SERIAL_NAMESPACE
    OBJ_PROJECT_NAMESPACE = PROJECT_NAMESPACE

    if TYPE_CHECKING:  # the fields

        def __getattr__(self, name: str) -> Any:
            """Read a field."""

    @classmethod
    def obj_class_from_name(cls, objname: str, objver: str) -> type[ReportObject]:
        """Look a class up among ours."""
        return _known(objname, objver)

    def obj_to_primitive(
        self,
        target_version: str | None = None,
        version_manifest: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """Write the object; what is not set is left out."""
        primitive: dict[str, Any] = super().obj_to_primitive(
            target_version, version_manifest
        )
        # Nobody asks which fields an agent had changed; the key costs a third.
        primitive.pop(f"{SERIAL_NAMESPACE}.changes", None)
        return primitive


class HostReport(ReportObject):
    """All that is known of a compute node, under the names of nova's HostState.

    Attributes
    ----------
    host, nodename, cell_uuid : str
        The compute service's host, the node's hypervisor_hostname, its cell.
    free_ram_mb, free_disk_mb, disk_mb_used : int
        MiB; what is free may be negative.
    numa_topology, pci_stats : str, optional
        JSON text of a NUMATopology and of a PciDevicePoolList, as in nova's columns.
    instances : list of str
        UUIDs of all instances that the node has. A claim of one that is among them is
        included in what the report says is free.
    """

    VERSION = "1.0"

    fields = declare(
        **_ADDRESS,
        host=of.StringField(),
        nodename=of.StringField(),
        cell_uuid=of.UUIDField(),
        total_usable_ram_mb=of.IntegerField(),
        free_ram_mb=of.IntegerField(),
        total_usable_disk_gb=of.IntegerField(),
        free_disk_mb=of.IntegerField(),
        disk_mb_used=of.IntegerField(),
        vcpus_total=of.IntegerField(),
        vcpus_used=of.IntegerField(),
        cpu_allocation_ratio=of.FloatField(default=1.0),
        ram_allocation_ratio=of.FloatField(default=1.0),
        disk_allocation_ratio=of.FloatField(default=1.0),
        num_instances=of.IntegerField(default=0),
        num_io_ops=of.IntegerField(default=0),
        failed_builds=of.IntegerField(default=0),
        stats=of.DictOfStringsField(),
        hypervisor_type=of.StringField(nullable=True, default=NONE),
        hypervisor_version=of.IntegerField(default=0),
        hypervisor_hostname=of.StringField(nullable=True, default=NONE),
        supported_instances=of.Field(of.List(of.List(of.String()))),
        cpu_info=of.StringField(nullable=True, default=NONE),
        metrics=of.Field(of.Dict(of.Float()), nullable=True, default=NONE),
        host_ip=of.StringField(nullable=True, default=NONE),
        numa_topology=of.StringField(nullable=True, default=NONE),
        pci_stats=of.StringField(nullable=True, default=NONE),
        disabled=of.BooleanField(default=False),
        forced_down=of.BooleanField(default=False),
        service_version=of.IntegerField(default=0),
        instances=of.ListOfStringsField(),
    )


class HostDelta(ReportObject):
    """What has changed of a compute node since a revision; nothing: a sign of life.

    Attributes
    ----------
    since : int
        The revision that the changes are on top of; equal to `revision` where nothing
        has changed.
    changes : dict
        Values by column, under the names and in the form of HostReport's fields; the
        names of host, node and cell are no such columns.
    instances_added, instances_removed : list of str
        UUIDs.
    """

    VERSION = "1.0"

    fields = declare(
        **_ADDRESS,
        since=of.IntegerField(),
        changes=ColumnsField(),
        instances_added=of.ListOfStringsField(),
        instances_removed=of.ListOfStringsField(),
    )


REPORTS: dict[str, type[ReportObject]] = {}
for _cls in (HostReport, HostDelta):
    ovo.VersionedObjectRegistry.objectify(_cls)
    REPORTS[_cls.obj_name()] = _cls


def _known(name: str, version: str) -> type[ReportObject]:
    cls = REPORTS.get(name)
    if cls is None:
        raise UnsupportedObject(name)
    major = version_tuple(cls.VERSION)[0]
    if version_tuple(version)[0] != major:
        raise MalformedObject(f"version {major}.x of {name}", version, _VERSION)
    return cls


def report_data(primitive: object) -> tuple[type[ReportObject], dict[str, Any]]:
    """Return what kind of report a primitive is, and its fields, which are not checked.

    A newer minor version is taken for what is known of it.

    Raises
    ------
    MalformedObject
        It is no report, or of another major version.
    """
    if type(primitive) is not dict:
        raise MalformedObject("a HostReport or HostDelta", primitive)
    try:
        name, version = primitive[_NAME], primitive[_VERSION]
        namespace, data = primitive[_NAMESPACE], primitive[_DATA]
    except KeyError as e:
        raise MalformedObject(f"an object that has {e}", primitive) from None
    if namespace != PROJECT_NAMESPACE:
        raise MalformedObject(f"namespace '{PROJECT_NAMESPACE}'", namespace, _NAMESPACE)
    if type(data) is not dict:
        raise MalformedObject("a dict", data, _DATA)
    if version == "1.0" and type(name) is str and name in REPORTS:  # the fast way
        return REPORTS[name], data
    for key, value in ((_NAME, name), (_VERSION, version)):
        if type(value) is not str:
            raise MalformedObject("a text", value, key)
    return _known(name, version), data
