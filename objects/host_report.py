# SPDX-License-Identifier: Apache-2.0
"""An agent's reports of a compute node: its whole state, or the changes since.

These objects are ours, not nova's, and are not in `REGISTRY`: they have the namespace
"moorage" and keys ``moorage_object.*``, so that a serializer passes them through
unread. A malformed report then does not affect the others of its cast.
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
        """Return the value if it is a dict with string keys."""
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return value
        raise ValueError(f"{attr} is not a dict of values by column")


class ColumnsField(of.AutoTypedField[Any]):
    """A field with some columns of a host."""

    AUTO_TYPE = Columns()


class ReportObject(ovo.VersionedObject):
    """The base of both kinds of report.

    Attributes
    ----------
    uuid : str
        The compute node's UUID, which is also that of its root resource provider.
    incarnation : str
        A UUID that the agent generates when it starts.
    revision : int
        The number of this state of the node; it only grows within an incarnation.
    reply_topic, reply_server : str, optional
        Topic of the message bus and server on it, where a whole report can be
        requested. None: the agent takes no requests.
    """

    OBJ_SERIAL_NAMESPACE = SERIAL_NAMESPACE
    OBJ_PROJECT_NAMESPACE = PROJECT_NAMESPACE

    if TYPE_CHECKING:  # the fields

        def __getattr__(self, name: str) -> Any:
            """Read a field."""

    @classmethod
    def obj_class_from_name(cls, objname: str, objver: str) -> type[ReportObject]:
        """Return a report class by name and version."""
        return _report_class(objname, objver)

    def obj_to_primitive(
        self,
        target_version: str | None = None,
        version_manifest: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """Return the wire form; unset fields are left out."""
        primitive: dict[str, Any] = super().obj_to_primitive(
            target_version, version_manifest
        )
        # The names of the changed fields are not used, and are a third of the size.
        primitive.pop(f"{SERIAL_NAMESPACE}.changes", None)
        return primitive


class HostReport(ReportObject):
    """The whole state of a compute node, with the names of nova's HostState.

    Attributes
    ----------
    host, nodename, cell_uuid : str
        The compute service's host, the node's hypervisor_hostname, its cell.
    free_ram_mb, free_disk_mb, disk_mb_used : int
        MiB; the free amounts may be negative.
    numa_topology, pci_stats : str, optional
        JSON of a NUMATopology and of a PciDevicePoolList, as in nova's columns.
    instances : list of str
        UUIDs of all instances on the node. The free amounts already include the claims
        of these instances.
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
    """The changes of a compute node since a revision; without changes, a heartbeat.

    Attributes
    ----------
    since : int
        The revision that the changes apply to; equal to `revision` if nothing has
        changed.
    changes : dict
        Values by column, with the names and formats of HostReport's fields; the names
        of host, node and cell cannot change.
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


def _report_class(name: str, version: str) -> type[ReportObject]:
    cls = REPORTS.get(name)
    if cls is None:
        raise UnsupportedObject(name)
    major = version_tuple(cls.VERSION)[0]
    if version_tuple(version)[0] != major:
        raise MalformedObject(f"version {major}.x of {name}", version, _VERSION)
    return cls


def report_data(primitive: object) -> tuple[type[ReportObject], dict[str, Any]]:
    """Return the class and the fields of a report; the fields are not validated.

    Of a newer minor version, the known fields are used.

    Raises
    ------
    MalformedObject
        It is not a report, or has another major version.
    """
    if type(primitive) is not dict:
        raise MalformedObject("a HostReport or HostDelta", primitive)
    try:
        name, version = primitive[_NAME], primitive[_VERSION]
        namespace, data = primitive[_NAMESPACE], primitive[_DATA]
    except KeyError as e:
        raise MalformedObject(f"an object with {e}", primitive) from None
    if namespace != PROJECT_NAMESPACE:
        raise MalformedObject(f"namespace '{PROJECT_NAMESPACE}'", namespace, _NAMESPACE)
    if type(data) is not dict:
        raise MalformedObject("a dict", data, _DATA)
    if version == "1.0" and type(name) is str and name in REPORTS:  # the fast path
        return REPORTS[name], data
    for key, value in ((_NAME, name), (_VERSION, version)):
        if type(value) is not str:
            raise MalformedObject("a string", value, key)
    return _report_class(name, version), data
