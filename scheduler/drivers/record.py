# SPDX-License-Identifier: Apache-2.0
"""The records of decisions, which explain them to operators, and their log."""

from __future__ import annotations

import collections
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from ...objects import RequestSpec
from .record_entries import (
    COLLIDED,
    DEVICES_CLAIMED_FIRST,
    FAILED,
    MEMBER_CLAIMED_FIRST,
    OTHER_CLAIMED_FIRST,
    OUTDATED,
    RELEASED,
    TOP_HOSTS,
    TOP_INSTANCES,
    AttachmentRecord,
    ClaimAttempt,
    FilterStep,
    InstanceRecord,
    Outcome,
    ReplayKey,
    WeighedHost,
    WeigherPart,
    runs_of,
)

LOG = logging.getLogger(__name__)

__all__ = [
    "COLLIDED",
    "DEVICES_CLAIMED_FIRST",
    "FAILED",
    "MEMBER_CLAIMED_FIRST",
    "OTHER_CLAIMED_FIRST",
    "OUTDATED",
    "RELEASED",
    "TOP_HOSTS",
    "TOP_INSTANCES",
    "AttachmentRecord",
    "ClaimAttempt",
    "DecisionLog",
    "DecisionRecord",
    "FilterStep",
    "InstanceRecord",
    "Outcome",
    "ReplayKey",
    "WeighedHost",
    "WeigherPart",
    "runs_of",
]


@dataclasses.dataclass(slots=True)
class DecisionRecord:
    """One call of select_destinations, step by step.

    Attributes
    ----------
    started_at : float
        Seconds since the epoch.
    queries : list of str
        The queries that were sent to Placement.
    n_candidates : int or None
        Allocation candidates in all answers; None: there was no answer.
    no_answer : str
        Why there was no answer, if that is known.
    is_truncated : bool
        Whether the limit may have truncated an answer.
    n_hosts : int
        Hosts of the candidates that have a row in the host table.
    n_without_row : int
        Root providers of candidates without a row in the host table: sharing providers,
        and hosts that the source does not know.
    view_revision : int or None
        The revision of the host table that was read.
    view_age_s : float or None
        Seconds since the oldest part of the host table was read from the source; None:
        the source guarantees that the table is current.
    steps : list of FilterStep
        The request's restrictions and the filters that ran, in order: first those for
        the first instance, then those for later instances. See `runs_of`.
    times_ms : dict
        Milliseconds by step; "total" is the whole decision.
    reason : str
        Why no hosts were selected, for operators: it may contain host names.
    user_message : str
        The message of the error that the caller got, which may reach an end user.
    n_known_hosts : int
        All hosts that the scheduler knew.
    note : str
        How the driver chose the hosts, if the driver has noted it.
    origins : dict
        By weigher, where its multiplier comes from if not from its option, and which
        version of flavors it used; weighers without either are not in it.
    replay : ReplayKey or None
        The values with which the decision can be replayed; None: no view is stored of
        the decision.
    attachments : list of AttachmentRecord
        The volumes and ports that were looked up, each with its places or the reason
        why it did not count.
    request : RequestSpec or None
        The request as the caller sent it, apart from the providers that a claim has
        set, and with the members of other server groups that its hints name. A
        `DecisionLog` removes it once all subscribers have read it: the requests of a
        thousand records would need tens of megabytes.
    """

    request_id: str | None
    instance_uuids: tuple[str, ...]
    n_instances: int
    started_at: float
    queries: list[str] = dataclasses.field(default_factory=list)
    n_candidates: int | None = None
    no_answer: str = ""
    is_truncated: bool = False
    n_hosts: int = 0
    n_without_row: int = 0
    view_revision: int | None = None
    view_age_s: float | None = None
    steps: list[FilterStep] = dataclasses.field(default_factory=list)
    instances: list[InstanceRecord] = dataclasses.field(default_factory=list)
    claims: list[ClaimAttempt] = dataclasses.field(default_factory=list)
    times_ms: dict[str, float] = dataclasses.field(default_factory=dict)
    outcome: Outcome | None = None
    reason: str = ""
    user_message: str = ""
    project_id: str | None = None
    n_known_hosts: int = 0
    request: RequestSpec | None = dataclasses.field(
        default=None, repr=False, compare=False
    )
    # New fields come last, so that stored records are compressed as well as before.
    replay: ReplayKey | None = None
    attachments: list[AttachmentRecord] = dataclasses.field(default_factory=list)
    note: str = ""
    origins: dict[str, str] = dataclasses.field(default_factory=dict)

    def timed(self, step: str) -> _Timed:
        """Return a context manager that adds its duration to the time of a step."""
        return _Timed(self.times_ms, step)

    def elapsed_ms(self, now: float) -> float:
        """Return the milliseconds from `started_at` to `now`."""
        return round(max(0.0, now - self.started_at) * 1000, 1)

    def restart(self) -> None:
        """Remove filter steps, instances and note, before hosts are selected again.

        Called when a decision is repeated with newer candidates. Queries, claims and
        times stay: they describe the whole call.
        """
        self.steps.clear()
        self.instances.clear()
        self.note = ""

    def position_of(self, instance_uuid: str, default: int) -> int:
        """Return the position of an instance in the request.

        Parameters
        ----------
        default : int
            The position if all instances are placed in order; returned if the request
            does not name the instance.
        """
        uuids = self.instance_uuids
        if uuids[default : default + 1] == (instance_uuid,):
            return default
        return uuids.index(instance_uuid) if instance_uuid in uuids else default

    def to_dict(self) -> dict[str, Any]:
        """Return the record without the request, as plain data for JSON."""
        data = dataclasses.asdict(dataclasses.replace(self, request=None))
        del data["request"]
        return data

    def __str__(self) -> str:
        return self.summary()

    def summary(self) -> str:
        """Return the record as one line, for operators: it contains host names."""
        why = f" ({self.reason.strip()})" if self.reason.strip() else ""
        dropped = "".join(f"; {a}" for a in self.attachments if a.problem)
        note = f"{self.note}; " if self.note else ""
        n_attempts = sum(claim.n_attempts for claim in self.claims)
        claimed = f"{n_attempts} claim attempt(s)" if self.claims else "nothing claimed"
        times = ", ".join(f"{step} {ms:.1f} ms" for step, ms in self.times_ms.items())
        hint = ""
        if self.outcome is not Outcome.SELECTED and self.request_id:
            hint = f'; see "moorage explain {self.request_id}"'
        return (
            f"{self.request_id or '-'}: {self.n_instances} instance(s) "
            f"{self.outcome or 'open'}{why}; {self._funnel()}{self._chosen()}"
            f"{dropped}; {note}{claimed}; {times}{hint}"
        )

    def _funnel(self) -> str:
        truncated = " (truncated)" if self.is_truncated else ""
        answer = (
            self.no_answer or "Placement not queried"
            if self.n_candidates is None
            else f"{self.n_candidates} candidate(s){truncated}"
        )
        # A step that is repeated for later instances is written once.
        n_hosts: dict[str, list[str]] = {}
        for step in self.steps:
            counts = n_hosts.setdefault(step.name, [])
            if counts[-1:] != [str(step.n_out)]:
                counts.append(str(step.n_out))
        funnel = "".join(f" > {name} {'/'.join(n)}" for name, n in n_hosts.items())
        age = "" if self.view_age_s is None else f" {self.view_age_s:.1f} s old"
        return f"{answer}, {self.n_hosts} host(s){age}{funnel}"

    def _chosen(self) -> str:
        chosen = "".join(
            f"; {i.instance_uuid} on {i.host_and_node} ({i.weight:.3f}), "
            f"alternates [{', '.join(i.alternates)}]"
            for i in self.instances[:TOP_INSTANCES]
        )
        n_unnamed = len(self.instances) - TOP_INSTANCES
        return f"{chosen}; and {n_unnamed} more" if n_unnamed > 0 else chosen


@dataclasses.dataclass(slots=True)
class _Timed:
    """A context manager that adds its duration to the time of a step.

    A generator with `contextmanager` would take twice as long, and a decision times a
    dozen blocks.
    """

    times_ms: dict[str, float]
    step: str
    started: float = 0.0

    def __enter__(self) -> None:
        self.started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        elapsed_ms = (time.perf_counter() - self.started) * 1000
        self.times_ms[self.step] = self.times_ms.get(self.step, 0.0) + elapsed_ms


class _Line:
    """Formats a record as text, only once a log handler needs the text."""

    def __init__(self, record: DecisionRecord) -> None:
        self._record = record

    def __repr__(self) -> str:
        return self._record.summary()


class _Data:
    """Converts a record to plain data, only if oslo.log's JSON formatter needs it.

    That formatter handles any object with the method ``items`` as a mapping.
    """

    def __init__(self, record: DecisionRecord) -> None:
        self._record = record

    def items(self) -> Iterable[tuple[str, Any]]:
        """Return the pairs of the record's `to_dict`."""
        return self._record.to_dict().items()


class DecisionLog:
    """Stores the newest records, and logs one line for each.

    Parameters
    ----------
    size : int
        The maximum number of records.
    """

    def __init__(self, size: int) -> None:
        self._ring: collections.deque[DecisionRecord] = collections.deque(maxlen=size)
        self._lock = threading.Lock()
        self._subscribers: tuple[Callable[[DecisionRecord], None], ...] = ()

    def __len__(self) -> int:
        return len(self._ring)

    def subscribe(self, subscriber: Callable[[DecisionRecord], None]) -> None:
        """Call a function with every complete record, which still has its request.

        The function is called in the thread that made the decision, while the caller of
        the scheduler waits. Errors of the function are logged, and fail no decision.
        """
        with self._lock:
            self._subscribers = (*self._subscribers, subscriber)

    def unsubscribe(self, subscriber: Callable[[DecisionRecord], None]) -> None:
        """Stop calling a function."""
        with self._lock:
            self._subscribers = tuple(s for s in self._subscribers if s != subscriber)

    def add(self, record: DecisionRecord) -> None:
        """Store a complete record, publish it to subscribers, and log it.

        The level is WARNING if the decision failed, else INFO.
        """
        with self._lock:
            self._ring.append(record)
        for subscriber in self._subscribers:
            try:
                subscriber(record)
            except Exception:  # the caller must get the decision nevertheless
                LOG.exception("Publishing a decision to %r failed", subscriber)
        record.request = None
        level = logging.WARNING if record.outcome is Outcome.FAILED else logging.INFO
        if LOG.isEnabledFor(level):
            # The logging module formats the record, and catches any error meanwhile.
            as_data = {"decision": _Data(record)}
            LOG.log(level, "Decision %s", _Line(record), extra={"extra": as_data})

    def newest(self, n: int | None = None) -> list[DecisionRecord]:
        """Return up to `n` records, all by default, the newest first."""
        with self._lock:
            records = list(self._ring)
        records.reverse()
        return records[:n]

    def find(self, instance_uuid: str) -> DecisionRecord | None:
        """Return the newest record of an instance."""
        records = (r for r in self.newest() if instance_uuid in r.instance_uuids)
        return next(records, None)
