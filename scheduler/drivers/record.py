# SPDX-License-Identifier: Apache-2.0
"""The record of a decision, which explains it."""

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
        Why Placement answered no candidates, where that is known.
    is_truncated : bool
        Whether the limit may have truncated an answer.
    n_hosts : int
        Hosts of the candidates that have a row.
    n_without_row : int
        Root providers of candidates without a row: sharing providers, and hosts that
        the source does not know.
    view_revision : int or None
        The revision of the host table that was read.
    view_age_s : float or None
        Seconds since the oldest part of it was read from the source; None: the source
        vouches for it.
    steps : list of FilterStep
        The request's restrictions and the filters, in order; those of later instances
        follow. See `runs`.
    times_ms : dict
        Milliseconds by step; "total" is the whole decision.
    reason : str
        Why the decision did not select, for operators: it may have host names.
    user_message : str
        The message of the error that the caller got, which may reach an end user.
    n_known_hosts : int
        All hosts that the scheduler knew.
    note : str
        How the driver chose, if it says so.
    replay : ReplayKey or None
        None: no view is stored of the decision.
    attachments : list of AttachmentRecord
        The volumes and ports that were looked up, each with its places or the reason
        why it did not count.
    request : RequestSpec or None
        As the caller sent it, apart from the providers that a claim has set, and with
        the members of other server groups that its hints name. It is there for
        subscribers of a `DecisionLog`, and then removed: a thousand of them would need
        tens of megabytes.
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
    # The last ones, so that stored records stay as well compressed as they were.
    replay: ReplayKey | None = None
    attachments: list[AttachmentRecord] = dataclasses.field(default_factory=list)
    note: str = ""

    def timed(self, step: str) -> _Timed:
        """Add the duration of a block to a step's time."""
        return _Timed(self.times_ms, step)

    def elapsed_ms(self, now: float) -> float:
        """Return the milliseconds from `started_at` to `now`."""
        return round(max(0.0, now - self.started_at) * 1000, 1)

    def restart(self) -> None:
        """Remove hosts and filters: the decision is repeated with newer candidates.

        Queries, claims and times stay: they describe the whole call.
        """
        self.steps.clear()
        self.instances.clear()
        self.note = ""

    def position_of(self, instance_uuid: str, default: int) -> int:
        """Return the position of an instance in the request.

        Parameters
        ----------
        default : int
            Where it is if all are placed in order, and if the request names none.
        """
        uuids = self.instance_uuids
        if uuids[default : default + 1] == (instance_uuid,):
            return default
        return uuids.index(instance_uuid) if instance_uuid in uuids else default

    def runs(self) -> list[list[FilterStep]]:
        """Return the steps of each run of the filters, in order.

        Filters run for one instance after another, and again for an instance whose
        host was not granted. The first run also has the request's restrictions.
        """
        runs: list[list[FilterStep]] = []
        names: set[str] = set()
        for step in self.steps:
            is_other = runs and runs[-1][-1].instance not in (None, step.instance)
            if not runs or is_other or step.name in names:
                runs.append([])
                names.clear()
            runs[-1].append(step)
            names.add(step.name)
        return runs

    def to_dict(self) -> dict[str, Any]:
        """Return the record, without the request, as plain data that JSON can hold."""
        data = dataclasses.asdict(dataclasses.replace(self, request=None))
        del data["request"]
        return data

    def __str__(self) -> str:
        return self.summary()

    def summary(self) -> str:
        """Return the record in one line, for operators: it has host names."""
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
        query = (
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
        return f"{query}, {self.n_hosts} host(s){age}{funnel}"

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
    """Adds the duration of a block to a step's time.

    Not a generator with `contextmanager`, which costs twice as much: a decision times a
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
    """A record as text."""

    def __init__(self, record: DecisionRecord) -> None:
        self._record = record

    def __repr__(self) -> str:
        return self._record.summary()


class _Data:
    """A record as plain data; oslo.log's JSON takes what has items for a mapping."""

    def __init__(self, record: DecisionRecord) -> None:
        self._record = record

    def items(self) -> Iterable[tuple[str, Any]]:
        """Return the pairs of the record's `to_dict`, which no other format needs."""
        return self._record.to_dict().items()


class DecisionLog:
    """The newest records; logs one line for each.

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

        It is called in the thread that decided, whose caller waits for it. Its errors
        are logged, and fail no decision.
        """
        with self._lock:
            self._subscribers = (*self._subscribers, subscriber)

    def unsubscribe(self, subscriber: Callable[[DecisionRecord], None]) -> None:
        """Stop calling a function."""
        with self._lock:
            self._subscribers = tuple(s for s in self._subscribers if s != subscriber)

    def add(self, record: DecisionRecord) -> None:
        """Store a complete record, publish it, and log it at INFO."""
        with self._lock:
            self._ring.append(record)
        for subscriber in self._subscribers:
            try:
                subscriber(record)
            except Exception:  # the decision is made, and its answer is due
                LOG.exception("Publishing a decision to %r failed", subscriber)
        record.request = None
        level = logging.WARNING if record.outcome is Outcome.FAILED else logging.INFO
        if LOG.isEnabledFor(level):
            # Logging formats it, and swallows any error of that.
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
