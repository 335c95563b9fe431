# SPDX-License-Identifier: Apache-2.0
"""When who is told what of a call of select_destinations."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from ...objects import Destination, RequestSpec, Selection
from ...objects.notifications import InstancePCIRequestPayload, RequestSpecPayload
from ..hosts import Consumption, HostBatch, HostTable
from ..placement.query import Requirements
from .fitted import fitted
from .legacy import legacy_payload
from .notifiers import Notifier, Notifiers, Told
from .outbox import Letter, Outbox

EVENT: Final = "scheduler.select_destinations"

#: Parts of a request that are told with the UUID of the instance they are of.
_OF_INSTANCE: Final = ("numa_topology", "pci_requests")


class Call:
    """One call, as it is told of.

    Parameters
    ----------
    write : callable
        Tells of a request of which a phase, "start" or "end", is reached.
    aim : callable
        Writes what the prefilters require into the request that is told of.
    guard : callable
        Returns a context manager that lets nothing out which goes wrong.
    """

    def __init__(
        self,
        spec_obj: RequestSpec,
        write: Callable[[str, RequestSpec], None],
        aim: Callable[[RequestSpec, Requirements], None],
        guard: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._spec = spec_obj
        self._write = write
        self._aim = aim
        self._guard = guard
        self._told: RequestSpec | None = None
        self._placed: tuple[HostBatch, int, Consumption] | None = None

    def start(self, requirements: Requirements | None) -> None:
        """Tell that hosts are looked for.

        Parameters
        ----------
        requirements : Requirements or None
            What prefilters added to the question for Placement; None: it is not asked.
        """
        with self._guard():
            self._told = copy.deepcopy(self._spec)
            if requirements is not None:
                self._aim(self._told, requirements)
            self._write("start", self._told)

    def place(self, hosts: HostBatch, index: int, consumption: Consumption) -> None:
        """Take where the last instance is; see `Caller`."""
        self._placed = hosts, index, consumption

    def end(
        self,
        instance_uuids: Sequence[str] | None,
        selections: Sequence[Sequence[Selection]],
    ) -> None:
        """Tell that each instance has its host.

        The request is then as nova leaves it: that of the last instance, whose server
        group has the hosts, and whose NUMA cells are on those of its host.
        """
        told = self._told
        if told is None:
            return
        with self._guard():
            if instance_uuids:
                told.instance_uuid = instance_uuids[-1]
            group = told.instance_group if "instance_group" in told else None
            if group is not None:
                earlier = group.hosts if "hosts" in group else None
                chosen = (mine[0].service_host for mine in selections)
                group.hosts = [*(earlier or ()), *chosen]
            if self._placed is not None and "numa_topology" in told:
                told.numa_topology = fitted(told.numa_topology, *self._placed)
            self._write("end", told)


class Announcer:
    """Tell of calls. What goes wrong with that is logged, and fails no decision.

    Parameters
    ----------
    notifiers : Notifiers
    table : HostTable
        Names the host of the compute node that a request is for.
    routes_networks : callable
        Returns whether the networks of requests are asked for their hosts; nova then
        has a destination in every request.
    """

    def __init__(
        self,
        notifiers: Notifiers,
        table: HostTable,
        routes_networks: Callable[[], bool],
    ) -> None:
        self._notifiers = notifiers
        self._table = table
        self._routes_networks = routes_networks
        self._outbox = Outbox()

    def call(self, context: object, spec_obj: RequestSpec) -> Call | None:
        """Return how to tell of a call; None where nobody is told anything."""
        if not self._notifiers:
            return None

        def write(phase: str, told: RequestSpec) -> None:
            self._write(context, f"{EVENT}.{phase}", told)

        return Call(spec_obj, write, self._aim, self._guarded)

    def stop(self) -> None:
        """Tell what is not told yet, if the bus takes it soon."""
        if self._outbox.stop():
            self._notifiers.close()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Log what goes wrong: what cannot be told of can still be decided."""
        try:
            yield
        except Exception as e:
            self._outbox.failed("%s: %s", type(e).__name__, e)

    def _write(self, context: object, event_type: str, told: RequestSpec) -> None:
        heard = Told.of(context)
        if self._notifiers.legacy is not None:
            with self._guarded():
                payload = legacy_payload(told)
                self._put(self._notifiers.legacy, heard, event_type, payload)
        if self._notifiers.versioned is not None:
            with self._guarded():
                _fill_in(told)
                payload = RequestSpecPayload.of(told).obj_to_primitive()
                self._put(self._notifiers.versioned, heard, event_type, payload)

    def _put(
        self, notifier: Notifier, heard: Told, event_type: str, payload: dict[str, Any]
    ) -> None:
        self._outbox.put(Letter(notifier, heard, event_type, payload))

    def _aim(self, told: RequestSpec, requirements: Requirements) -> None:
        """Write into the request what nova's prefilters have written by then."""
        asked = requirements.member_of or requirements.forbidden_aggregates
        destination = told.requested_destination
        if destination is None:
            if not asked and not self._routes_networks():
                return
            destination = told.requested_destination = Destination()
            destination.obj_set_defaults()
        if requirements.member_of:
            joined = [",".join(sorted(uuids)) for uuids in requirements.member_of]
            destination.aggregates = [*(destination.aggregates or ()), *joined]
        if requirements.in_tree is not None:
            hosts = self._table.batch()
            for index in hosts.matches("uuid", [requirements.in_tree]).nonzero()[0]:
                destination.host = hosts.value("host", int(index))
                destination.node = hosts.value("nodename", int(index))


def _fill_in(told: RequestSpec) -> None:
    """Set what nova sets when it makes the versioned payload.

    The legacy payload of the end, which is made of the same request, then has it, too.
    """
    for name in _OF_INSTANCE:
        part = getattr(told, name) if name in told else None
        if part is not None and "instance_uuid" not in part:
            part.instance_uuid = told.instance_uuid
    asked = told.pci_requests if "pci_requests" in told else None
    for each in asked.requests if asked is not None else ():
        for name in InstancePCIRequestPayload.COPIED:
            if name not in each:
                setattr(each, name, None)
