# SPDX-License-Identifier: Apache-2.0
"""The notifications of one call of select_destinations: when, and with what payload."""

from __future__ import annotations

import contextlib
import copy
import datetime
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ...objects import (
    Destination,
    InstanceNUMACell,
    InstanceNUMATopology,
    RequestSpec,
    Selection,
    WireObject,
)
from ...objects.notifications import InstancePCIRequestPayload, RequestSpecPayload
from ..hosts import Consumption, HostBatch, HostTable
from ..hosts.numa import FittedCell
from ..placement.query import Requirements
from .outbox import Notification, Outbox
from .publishers import MessagingNotifier, Publishers, RedactedContext

#: How nova's serializer writes a time.
_TIME: Final = "%Y-%m-%dT%H:%M:%S.%f"

#: Objects of the payload that have nova's dict compatibility.
_DICT_COMPATIBLE: Final = frozenset(
    {"Flavor", "InstanceNUMATopology", "InstanceNUMACell"}
)

_OF_INSTANCE: Final = (
    "numa_topology",
    "pci_requests",
    "project_id",
    "user_id",
    "availability_zone",
)
_OF_FLAVOR: Final = ("root_gb", "ephemeral_gb", "memory_mb", "vcpus")


def legacy_payload(spec_obj: RequestSpec) -> dict[str, Any]:
    """Return the payload of a request as plain data that JSON can hold."""
    image = _value(spec_obj, "image")
    flavor = _value(spec_obj, "flavor")
    request_spec = {
        "num_instances": spec_obj.num_instances,
        "image": _fields(image) if image else {},
        "instance_properties": _instance(spec_obj, flavor),
        "instance_type": _plain(flavor) if flavor is not None else {},
    }
    return {"request_spec": request_spec}


def _value(source: WireObject, name: str) -> Any:  # noqa: ANN401 - of its field's type
    return getattr(source, name) if name in source else None


def _instance(spec_obj: RequestSpec, flavor: object) -> dict[str, Any]:
    values = {
        name: _plain(getattr(spec_obj, name))
        for name in _OF_INSTANCE
        if name in spec_obj
    }
    if "instance_uuid" in spec_obj:
        values["uuid"] = spec_obj.instance_uuid
    if flavor is not None:
        values |= {name: getattr(flavor, name) for name in _OF_FLAVOR}
    return values


def _plain(value: object) -> Any:  # noqa: ANN401 - what JSON takes
    if isinstance(value, WireObject):
        return (
            _fields(value)
            if value.obj_name() in _DICT_COMPATIBLE
            else _attributes(value)
        )
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.strftime(_TIME) if isinstance(value, datetime.datetime) else value


def _fields(source: WireObject) -> dict[str, Any]:
    """Return the fields that are set, including the fields of image properties."""
    values = {}
    for name in source.fields:
        if name in source:
            value = getattr(source, name)
            is_properties = isinstance(value, WireObject) and name == "properties"
            values[name] = _fields(value) if is_properties else _plain(value)
    return values


def _attributes(source: WireObject) -> dict[str, Any]:
    """Return the ``__dict__`` of a nova object received over RPC.

    nova includes its request context, with the token; here, the context is omitted.
    """
    return {
        "VERSION": source.VERSION,
        "_context": None,
        "_changed_fields": sorted(source.obj_what_changed()),
        **{
            f"_obj_{name}": _plain(getattr(source, name))
            for name in source.fields
            if name in source
        },
    }


def placed_numa_topology(
    requested: InstanceNUMATopology | None,
    hosts: HostBatch,
    index: int,
    consumption: Consumption,
) -> InstanceNUMATopology | None:
    """Return what nova's ``HostState.consume_from_request`` leaves in the request.

    Parameters
    ----------
    requested : InstanceNUMATopology or None
        The requested cells; they are written to.
    hosts : HostBatch
        The hosts before the instance was placed.
    consumption : Consumption
        What the instance consumes of the host at `index`.

    Returns
    -------
    InstanceNUMATopology or None
        `requested` if the host reports no cells. None if no topology is requested, or
        if the cells do not fit, which happens if the host was forced or
        NUMATopologyFilter is not enabled.
    """
    topology = hosts.value("numa_topology", index)
    if not requested or topology is None or not topology.cells:
        return requested
    usage = consumption.take(topology, hosts.value("pci_stats", index))
    if usage is None or usage.guest is None:
        return None
    for cell, fitted in zip(requested.cells, usage.guest.cells, strict=True):
        _write(cell, fitted)
    policy = requested.emulator_threads_policy
    return InstanceNUMATopology(cells=requested.cells, emulator_threads_policy=policy)


def _write(cell: InstanceNUMACell, fitted: FittedCell) -> None:
    cell.id = fitted.host_cell_id
    if fitted.page_size is not None:
        cell.pagesize = fitted.page_size
    if fitted.guest.is_pinned:
        cell.pin_vcpus(*fitted.pins)
        cell.cpuset_reserved = set(fitted.reserved) or None


EVENT: Final = "scheduler.select_destinations"

#: Fields of a request whose payload carries the UUID of the instance.
_WITH_INSTANCE_UUID: Final = ("numa_topology", "pci_requests")


class CallNotifications:
    """The notifications of one call; created by `Notifier.for_call`."""

    def __init__(
        self, notifier: Notifier, context: object, spec_obj: RequestSpec
    ) -> None:
        self._notifier = notifier
        self._context = context
        self._spec = spec_obj
        self._published: RequestSpec | None = None

    def start(self, requirements: Requirements | None) -> None:
        """Publish that the search for hosts starts.

        Parameters
        ----------
        requirements : Requirements or None
            What prefilters added to the query; None: Placement is not asked.
        """
        with self._notifier.guarded():
            self._published = copy.deepcopy(self._spec)
            if requirements is not None:
                self._notifier.add_requirements(self._published, requirements)
            self._notifier.publish(self._context, "start", self._published)

    def end(
        self,
        instance_uuids: Sequence[str] | None,
        selections: Sequence[Sequence[Selection]],
        placement: tuple[HostBatch, int, Consumption] | None = None,
    ) -> None:
        """Publish that each instance has its host.

        The published request is as nova leaves it: it is that of the last instance, its
        server group has the selected hosts, and its NUMA cells are placed on those of
        the host.

        Parameters
        ----------
        placement : (hosts, index, consumption), optional
            The hosts before the last instance was placed, the index of its host, and
            what it consumes there.
        """
        request = self._published
        if request is None:
            return
        with self._notifier.guarded():
            if instance_uuids:
                request.instance_uuid = instance_uuids[-1]
            group = request.instance_group if "instance_group" in request else None
            if group is not None:
                earlier_hosts = group.hosts if "hosts" in group else None
                selected_hosts = (
                    instance_selections[0].service_host
                    for instance_selections in selections
                )
                group.hosts = [*(earlier_hosts or ()), *selected_hosts]
            if placement is not None and "numa_topology" in request:
                request.numa_topology = placed_numa_topology(
                    request.numa_topology, *placement
                )
            self._notifier.publish(self._context, "end", request)


class Notifier:
    """Publishes notifications of calls; a failure is logged and fails no decision.

    Parameters
    ----------
    publishers : Publishers
    table : HostTable
        Resolves a compute node's UUID to its host.
    routes_networks : callable
        Returns whether requests are restricted to the segments of their networks; nova
        then has a destination in every request.
    """

    def __init__(
        self,
        publishers: Publishers,
        table: HostTable,
        routes_networks: Callable[[], bool],
    ) -> None:
        self._publishers = publishers
        self._table = table
        self._routes_networks = routes_networks
        self._outbox = Outbox()

    def for_call(self, context: object, spec_obj: RequestSpec) -> CallNotifications:
        """Return the notifications of a call."""
        return CallNotifications(self, context, spec_obj)

    def stop(self) -> None:
        """Send the queued notifications, if the bus accepts them soon."""
        if self._outbox.stop():
            self._publishers.close()

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Log exceptions: a request that cannot be published can still be decided."""
        try:
            yield
        except Exception as e:
            self._outbox.failed("%s: %s", type(e).__name__, e)

    def publish(self, context: object, phase: str, request: RequestSpec) -> None:
        """Publish a phase, "start" or "end", with the request in its current state."""
        event_type = f"{EVENT}.{phase}"
        redacted = RedactedContext.of(context)
        if self._publishers.legacy is not None:
            with self.guarded():
                payload = legacy_payload(request)
                self._put(self._publishers.legacy, redacted, event_type, payload)
        if self._publishers.versioned is not None:
            with self.guarded():
                _fill_in(request)
                payload = RequestSpecPayload.of(request).obj_to_primitive()
                self._put(self._publishers.versioned, redacted, event_type, payload)

    def _put(
        self,
        publisher: MessagingNotifier,
        context: RedactedContext,
        event_type: str,
        payload: dict[str, Any],
    ) -> None:
        self._outbox.put(Notification(publisher, context, event_type, payload))

    def add_requirements(
        self, request: RequestSpec, requirements: Requirements
    ) -> None:
        """Write into the request what nova's prefilters write into it."""
        aggregates = requirements.member_of or requirements.forbidden_aggregates
        destination = request.requested_destination
        if destination is None:
            if not aggregates and not self._routes_networks():
                return
            destination = request.requested_destination = Destination()
            destination.obj_set_defaults()
        if requirements.member_of:
            joined = [",".join(sorted(uuids)) for uuids in requirements.member_of]
            destination.aggregates = [*(destination.aggregates or ()), *joined]
        if requirements.in_tree is not None:
            hosts = self._table.batch()
            for index in hosts.matches("uuid", [requirements.in_tree]).nonzero()[0]:
                destination.host = hosts.value("host", int(index))
                destination.node = hosts.value("nodename", int(index))


def _fill_in(request: RequestSpec) -> None:
    """Set the fields that nova sets when it creates the versioned payload.

    The legacy payload of the end is created from the same request afterwards, so that
    it has these fields, too.
    """
    for name in _WITH_INSTANCE_UUID:
        value = getattr(request, name) if name in request else None
        if value is not None and "instance_uuid" not in value:
            value.instance_uuid = request.instance_uuid
    pci_requests = request.pci_requests if "pci_requests" in request else None
    for pci_request in pci_requests.requests if pci_requests is not None else ():
        for name in InstancePCIRequestPayload.fields:
            if name not in pci_request:
                setattr(pci_request, name, None)
