# SPDX-License-Identifier: Apache-2.0
"""An agent's reports of a compute node: its whole state, or the latest changes.

Reports have the wire form of a versioned object, in a separate namespace, so that a
serializer passes them through unread: a malformed report does not affect other reports
in the same cast. The columns of reports are those of the host table, declared in
`scheduler.hosts`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final

from .envelope import version_tuple
from .errors import MalformedObject, UnsupportedObject, UnsupportedReportVersion

NAMESPACE: Final = "moorage"

_NAME: Final = "moorage_object.name"
_NAMESPACE: Final = "moorage_object.namespace"
_VERSION: Final = "moorage_object.version"
_DATA: Final = "moorage_object.data"

#: The version of both kinds of report. An optional column does not change it: readers
#: ignore unknown columns, and use the default of a missing one. 1.1 has
#: `image_properties`, 1.2 `instances_deleted`.
VERSION: Final = "1.2"
_MAJOR: Final = 1


class ReportKind(enum.Enum):
    """The kinds of report, by the names of their objects.

    Both have these fields:

    uuid : str
        The compute node's UUID, which is also that of its root resource provider.
    incarnation : str
        A UUID that the agent generates when it starts.
    revision : int
        The number of this state of the node; it only increases within an incarnation.
    reply_topic, reply_server : str, optional
        Topic of the message bus and server on it, where a whole report can be
        requested. None or missing: the agent accepts no requests.
    seen_at : float, optional
        When the host was last seen up, seconds since the epoch; 0: never. Only
        ``moorage-relay``, which also removes deleted hosts, sends this field. Missing:
        the host was last seen up when the report was received.
    image_properties : list of dict, optional
        The image properties of instances, as far as they are known, once for all
        instances with equal properties: texts by name in `properties`, and UUIDs in
        `instances`. The known properties of other instances remain valid; if the field
        is missing, those of all instances do.
    instances_deleted : list of str, optional
        UUIDs of instances that were deleted for good since an earlier report: they are
        on no host, and no request for them is under way.
    """

    #: The reported columns as further fields, and in `instances` the UUIDs of all
    #: instances on the node, whose claims the free amounts include.
    WHOLE = "HostReport"
    #: The changes since the revision `since`, which equals `revision` if there are
    #: none: values by column in `changes`, UUIDs in `instances_added` and
    #: `instances_removed`.
    DELTA = "HostDelta"


#: The fields of reports that are not columns, except `uuid`, which is one.
REPORT_KEYS: Final = frozenset(
    {
        "incarnation",
        "revision",
        "reply_topic",
        "reply_server",
        "seen_at",
        "instances",
        "image_properties",
        "instances_deleted",
        "since",
        "changes",
        "instances_added",
        "instances_removed",
    }
)
_KINDS: Final = {kind.value: kind for kind in ReportKind}


def report_primitive(kind: ReportKind, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the wire form of a report with these fields."""
    return {
        _NAME: kind.value,
        _NAMESPACE: NAMESPACE,
        _VERSION: VERSION,
        _DATA: dict(data),
    }


def report_data(primitive: object) -> tuple[ReportKind, dict[str, Any]]:
    """Return the kind and the fields of a report; the fields are not validated.

    Of a newer minor version, the known fields are used.

    Raises
    ------
    MalformedObject
        `primitive` is not a report.
    UnsupportedObject
        There is no such kind of report.
    UnsupportedReportVersion
        The report has another major version.
    """
    if type(primitive) is not dict:
        raise MalformedObject("a HostReport or HostDelta", primitive)
    try:
        name, version = primitive[_NAME], primitive[_VERSION]
        namespace, data = primitive[_NAMESPACE], primitive[_DATA]
    except KeyError as e:
        raise MalformedObject(f"an object with {e}", primitive) from None
    if namespace != NAMESPACE:
        raise MalformedObject(f"namespace '{NAMESPACE}'", namespace, _NAMESPACE)
    if type(data) is not dict:
        raise MalformedObject("a dict", data, _DATA)
    for key, value in ((_NAME, name), (_VERSION, version)):
        if type(value) is not str:
            raise MalformedObject("a string", value, key)
    if name not in _KINDS:
        raise UnsupportedObject(name)
    if version != VERSION and version_tuple(version)[0] != _MAJOR:
        raise UnsupportedReportVersion(
            f"version {_MAJOR}.x of {name}", version, _VERSION
        )
    return _KINDS[name], data
