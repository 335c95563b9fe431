# SPDX-License-Identifier: Apache-2.0
"""Tell schedulers of hosts: all of each at first, then what has changed."""

from __future__ import annotations

import dataclasses
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from oslo_versionedobjects.fields import UnspecifiedDefault

from ..objects import HostDelta, HostReport, ReportObject
from ..scheduler.hosts import HostRecord
from ..scheduler.sources.push.columns import (
    COLUMNS,
    RefusedReport,
    columns_of,
    told_name,
)
from .written import written

#: Casts reports in their wire form to all schedulers.
Send = Callable[[list[dict[str, Any]]], object]

#: Columns that make a host another one: they are told by a whole report.
_IDENTITY: Final = ("host", "nodename", "cell_uuid")
_MOST_AT_A_TIME: Final = 500


@dataclasses.dataclass(frozen=True, slots=True)
class Reply:
    """Where the agent listens for `report_wanted`."""

    topic: str
    server: str


@dataclasses.dataclass(slots=True)
class _Node:
    """A node as it was told last; `given` is what `values` were made of."""

    given: Mapping[str, Any]
    values: dict[str, Any]
    instances: frozenset[str]
    revision: int = 0
    is_told: bool = False


class Reporter:
    """Number what is reported, and send what has changed; thread-safe.

    A message that is lost is noticed by the schedulers at the next one, at the latest
    at the next sign of life, so `report` is to be called every few seconds even where
    nothing has changed: well below the schedulers' ``service_down_time``.

    Parameters
    ----------
    send : callable
        Casts a list of reports in their wire form to all schedulers, as `Bus.cast`
        does. What it raises is handed on; the hosts are told whole the next time.
    reply : Reply, optional
        Where schedulers ask for a whole report. Without it, one that missed a message
        waits until somebody calls `tell_whole`.
    incarnation : str, optional
        A UUID, new at each start of the agent; made by default.
    """

    def __init__(
        self,
        send: Send,
        *,
        reply: Reply | None = None,
        incarnation: str | None = None,
    ) -> None:
        self._send = send
        self._reply = reply
        self.incarnation = incarnation or str(uuid.uuid4())
        self._nodes: dict[str, _Node] = {}
        #: The highest revision of a node that was forgotten; it may be reported again.
        self._forgotten_at = 0
        self._lock = threading.Lock()

    def report(
        self, host: HostRecord | Mapping[str, Any], instances: Collection[str] = ()
    ) -> None:
        """Tell the state of a compute node: whole at first, then what has changed.

        Parameters
        ----------
        host : HostRecord or mapping
            Columns under the names of HostReport's fields; a mapping may leave out
            those that have a default. `last_seen_up` is not told: a scheduler takes
            the time at which it hears.
        instances : collection of str
            UUIDs of all instances that the node has.

        Raises
        ------
        ValueError
            A value cannot be used, or a column without a default is missing; the
            message names host and column, and nothing is sent.
        """
        self.report_many([(host, instances)])

    def report_many(
        self,
        hosts: Iterable[tuple[HostRecord | Mapping[str, Any], Collection[str]]],
    ) -> None:
        """Tell the states of several compute nodes, (host, instances) each.

        What an agent that gathers for others uses: a cast has up to 500 of them.
        """
        with self._lock:
            read = [(*self._read(host), frozenset(its)) for host, its in hosts]
            self._cast([self._news(*each) for each in read])

    def tell_whole(self, node_uuid: str) -> bool:
        """Tell all of a node as it was reported last; return whether it is known."""
        with self._lock:
            node = self._nodes.get(node_uuid)
            if node is None:
                return False
            self._cast([self._whole(node)])
            return True

    def forget(self, node_uuid: str) -> None:
        """Report a node no more; schedulers take it as down, and forget it later."""
        with self._lock:
            node = self._nodes.pop(node_uuid, None)
            if node is not None:
                self._forgotten_at = max(self._forgotten_at, node.revision)

    def _read(
        self, host: HostRecord | Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], dict[str, Any]]:
        """Return what was given, as a copy, and the values to send."""
        given = written(host) if isinstance(host, HostRecord) else dict(host)
        before = self._nodes.get(given.get("uuid", ""))
        if before is not None and before.given == given:
            return given, before.values
        return given, _values(given, before)

    def _news(
        self,
        given: Mapping[str, Any],
        values: dict[str, Any],
        instances: frozenset[str],
    ) -> ReportObject:
        before = self._nodes.get(values["uuid"])
        if before is None or not before.is_told or _is_renamed(before.values, values):
            after = self._forgotten_at if before is None else before.revision
            node = self._nodes[values["uuid"]] = _Node(
                given, values, instances, after + 1
            )
            return self._whole(node)
        changes = {
            name: value
            for name, value in values.items()
            if before.values.get(name) != value
        }
        since = before.revision
        if changes or instances != before.instances:
            before.revision += 1
        delta = HostDelta(
            **self._address(before),
            since=since,
            changes=changes,
            instances_added=sorted(instances - before.instances),
            instances_removed=sorted(before.instances - instances),
        )
        before.given, before.values, before.instances = given, values, instances
        return delta

    def _whole(self, node: _Node) -> HostReport:
        return HostReport(
            **{**node.values, **self._address(node)}, instances=sorted(node.instances)
        )

    def _address(self, node: _Node) -> dict[str, Any]:
        address = {
            "uuid": node.values["uuid"],
            "incarnation": self.incarnation,
            "revision": node.revision,
        }
        if self._reply is not None:
            address["reply_topic"] = self._reply.topic
            address["reply_server"] = self._reply.server
        return address

    def _cast(self, reports: Sequence[ReportObject]) -> None:
        nodes = [self._nodes[report.uuid] for report in reports]
        for node in nodes:
            node.is_told = False  # until it is sent
        for first in range(0, len(reports), _MOST_AT_A_TIME):
            some = slice(first, first + _MOST_AT_A_TIME)
            self._send([report.obj_to_primitive() for report in reports[some]])
            for node in nodes[some]:
                node.is_told = True


def _is_renamed(before: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    return any(before[name] != values[name] for name in _IDENTITY)


#: What HostReport has where nothing is told.
_DEFAULTS: Final[Mapping[str, Any]] = {
    "stats": {},
    "supported_instances": [],
    **{
        name: field.default
        for name, field in HostReport.fields.items()
        if name in COLUMNS and field.default is not UnspecifiedDefault
    },
}


def _values(given: Mapping[str, Any], before: _Node | None) -> dict[str, Any]:
    """Return the columns as they are sent, or raise ValueError."""
    whole = {**_DEFAULTS, **given}
    whole.pop("last_seen_up", None)
    name = told_name(whole)
    strange = whole.keys() - COLUMNS.keys()
    missing = COLUMNS.keys() - whole.keys()
    if strange or missing:
        wrong = [f"{each}: there is no such column" for each in sorted(strange)]
        wrong += [f"{each}: not given" for each in sorted(missing)]
        raise RefusedReport(name, ", ".join(wrong))
    known = {} if before is None else before.values
    columns_of({n: v for n, v in whole.items() if known.get(n, known) != v}, name)
    whole["uuid"] = whole["uuid"].lower()
    return whole
