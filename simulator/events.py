# SPDX-License-Identifier: Apache-2.0
"""Hosts that fail, are emptied or are added while a trace runs: a file of events."""

from __future__ import annotations

import dataclasses
import enum
import math
import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from ..objects import RequestSpec
from ..scheduler.decoding import load_yaml
from ..scheduler.display import safe
from ..scheduler.drivers.record import DecisionRecord, Outcome
from .cloud import Shape, SimulatedCloud, equal_hosts
from .traces import Units

_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd])", re.ASCII)


class EventsError(ValueError):
    """Raised when events cannot be read, or cannot happen; the message says which."""


class Kind(enum.StrEnum):
    """What happens to hosts.

    FAIL
        A host is down. Its instances are requested again, one after another, as by
        ``nova evacuate``.
    DRAIN
        A host gets no new instances. Its own ones are moved, one after another; those
        that fit on no other host stay.
    ADD
        Empty hosts are added; or a host that failed or was drained is back.
    """

    FAIL = "fail"
    DRAIN = "drain"
    ADD = "add"


@dataclasses.dataclass(frozen=True, slots=True)
class HostEvent:
    """One event of a file.

    Attributes
    ----------
    at_s : float
        Seconds since the beginning of the trace.
    host : str
        The service host; empty: `number` of them.
    number : int
        How many hosts: those that fail or are drained are chosen at random.
    shape : Shape
        What each of the hosts that are added has.
    """

    at_s: float
    kind: Kind
    host: str
    number: int
    shape: Shape

    def __str__(self) -> str:
        hosts = self.host or f"{self.number} host(s)"
        return f"{self.kind} of {hosts} after {self.at_s / 3600:,.1f} h"


@dataclasses.dataclass(frozen=True, slots=True)
class Happened:
    """What became of an event.

    Attributes
    ----------
    hosts : sequence of str
    n_instances : int
        Instances of the trace on these hosts.
    n_unknown : int
        Further instances, which were there at the start. Their requests are unknown:
        with their host they are down, or stay.
    unplaced : sequence of (DecisionRecord, RequestSpec)
        The decisions on instances that found no other host.
    """

    event: HostEvent
    hosts: Sequence[str]
    n_instances: int = 0
    n_unknown: int = 0
    unplaced: Sequence[tuple[DecisionRecord, RequestSpec]] = ()

    @property
    def refused(self) -> Sequence[tuple[DecisionRecord, RequestSpec]]:
        """The decisions on instances that have no host now; after a drain they stay."""
        return self.unplaced if self.event.kind is Kind.FAIL else ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "at_s": self.event.at_s,
            "kind": str(self.event.kind),
            "hosts": list(self.hosts),
            "instances": self.n_instances,
            "without_another_host": len(self.unplaced),
            "unknown": self.n_unknown,
        }


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    at: float | str
    kind: Kind
    host: Annotated[str, msgspec.Meta(min_length=1)] = ""
    number: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 0
    shape: str = ""


def read_events(path: Path, shape: Shape) -> list[HostEvent]:
    """Return the events of a YAML or JSON file, in the order of their times.

    It has a list of entries such as ``{at: 36h, kind: fail, host: host07}`` or
    ``{at: 7d, kind: add, number: 10, shape: "96:562"}``. A number is in seconds.

    Parameters
    ----------
    shape : Shape
        Of hosts that are added without a shape.

    Raises
    ------
    EventsError
        The file cannot be read, or has something else.
    """
    try:
        entries = msgspec.convert(load_yaml(path.read_bytes()), list[_Entry])
        events = [_event(entry, shape) for entry in entries]
    except OSError as e:
        raise EventsError(f"{path}: cannot be read: {e.strerror}") from e
    except (ValueError, msgspec.ValidationError, RecursionError) as e:
        raise EventsError(f"{path}: {safe(str(e), 300)}") from e
    return sorted(events, key=lambda event: event.at_s)


def _event(entry: _Entry, shape: Shape) -> HostEvent:
    at_s = entry.at
    if isinstance(at_s, str):
        match = _TIME.fullmatch(at_s)
        at_s = float(match[1]) * _UNITS[match[2]] if match else math.nan
    if not 0 <= at_s < math.inf:
        raise ValueError(
            f"{entry.at!r} is no time after the trace's beginning such as 3600, 90m, "
            "36h or 7d"
        )
    if bool(entry.host) is bool(entry.number):
        raise ValueError(
            f"{entry.kind} at {entry.at}: write either host: NAME or number: N"
        )
    if entry.shape:
        shape = Shape.parse(entry.shape)
    return HostEvent(at_s, entry.kind, entry.host, entry.number, shape)


class HostEvents:
    """The events of hosts of one run.

    Raises
    ------
    EventsError
        An event names a host that does not exist.
    """

    def __init__(
        self,
        cloud: SimulatedCloud,
        units: Units,
        events: Sequence[HostEvent],
        seed: int,
    ) -> None:
        self._cloud = cloud
        self._units = units
        self._next = deque(events)
        self._rng = np.random.default_rng(seed)
        self._n_added = 0
        for event in events:
            if event.host and not cloud.table.nodes_of(event.host):
                raise EventsError(f"{event}: there is no such host")

    @property
    def next_s(self) -> float:
        """When the next event is due; infinite: there is none."""
        return self._next[0].at_s if self._next else math.inf

    def happen(self) -> Happened:
        """Let the next event happen.

        Raises
        ------
        SchedulerError
            A plugin failed.
        """
        event = self._next.popleft()
        if event.kind is Kind.ADD:
            return Happened(event, self._add(event))
        cloud, is_failed = self._cloud, event.kind is Kind.FAIL
        hosts = [event.host] if event.host else self._chosen(event.number)
        for host in hosts:
            cloud.set_service(host, is_down=is_failed, is_disabled=not is_failed)
        uuids = [uuid for host in hosts for uuid in cloud.instances_on(host)]
        nodes = [node for host in hosts for node in cloud.table.nodes_of(host)]
        n_all = int(cloud.table.batch(nodes).num_instances.sum())
        specs = {uuid: cloud.spec_of(uuid) for uuid in uuids}
        records = (
            cloud.place_again(uuids)
            if is_failed
            else [cloud.move(uuid) for uuid in uuids]
        )
        unplaced = [
            (record, specs[uuid])
            for uuid, record in zip(uuids, records, strict=True)
            if record.outcome is not Outcome.SELECTED
        ]
        n_unknown = n_all - len(uuids)
        return Happened(event, hosts, len(uuids), n_unknown, unplaced)

    def _add(self, event: HostEvent) -> Sequence[str]:
        if event.host:
            self._cloud.set_service(event.host, is_down=False, is_disabled=False)
            return [event.host]
        self._n_added += 1
        prefix = f"added{self._n_added}-"
        hosts = equal_hosts(event.number, event.shape, self._units, prefix)
        self._cloud.add_hosts(hosts)
        return [host.record.host for host in hosts.hosts]

    def _chosen(self, number: int) -> list[str]:
        """Return hosts in service, chosen at random; all, if there are fewer."""
        hosts = sorted(set(self._cloud.hosts_in_service().host.tolist()))
        order = self._rng.permutation(len(hosts))[:number]
        return [hosts[i] for i in order]
