# SPDX-License-Identifier: Apache-2.0
"""The record of a decision, which explains it."""

from __future__ import annotations

import collections
import dataclasses
import enum
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from ...objects import RequestSpec

LOG = logging.getLogger(__name__)

#: The number of best hosts that a record describes.
TOP_HOSTS: Final = 5
#: Instances of one request of which it does, and which the log line names.
TOP_INSTANCES: Final = 20

#: A further result of claims: released, as the request or its first attempt failed.
RELEASED: Final = "released"
#: The details of releases because of a server group's policy, and of a rule about
#: places, which follows.
MEMBER_CLAIMED_FIRST: Final = "a member of its server group claimed first"
OTHER_CLAIMED_FIRST: Final = "another instance claimed first: "
#: The same: the chosen host had changed since it was read, and was not claimed.
OUTDATED: Final = "outdated"
#: The same: Placement gave no answer that could be used; the details are the error.
FAILED: Final = "failed"
#: The same: released, as another instance got its CPUs or devices before.
COLLIDED: Final = "collided"
#: The detail of both where a guest's CPUs or devices were claimed before.
DEVICES_CLAIMED_FIRST: Final = "another instance got its CPUs or PCI devices first"


class Outcome(enum.StrEnum):
    """The outcome of a decision."""

    SELECTED = "selected"
    NO_VALID_HOST = "no valid host"
    FAILED = "failed"


@dataclasses.dataclass(frozen=True, slots=True)
class FilterStep:
    """The numbers of hosts before and after one filter, and its reason to reject.

    Attributes
    ----------
    instance : int or None
        The position in the request of the instance for which the filter ran; None: the
        step restricts the whole request, or an earlier release recorded it.
    """

    name: str
    n_in: int
    n_out: int
    reason: str
    instance: int | None = None


# Not frozen: a decision creates some 60, and a frozen one takes three times as long.
@dataclasses.dataclass(slots=True)
class WeigherPart:
    """One weigher's part of a host's weight."""

    name: str
    raw: float
    normalized: float
    weighted: float


@dataclasses.dataclass(frozen=True, slots=True)
class WeighedHost:
    """One of the best hosts, with the parts that add up to its weight."""

    host: str
    node: str
    weight: float
    parts: tuple[WeigherPart, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ClaimAttempt:
    """Placement's answer to a claim, or why claims were released or not sent.

    Attributes
    ----------
    result : str
        A value of `ClaimResult`, or `FAILED`, `RELEASED`, `OUTDATED` or `COLLIDED`.
    at_ms : float or None
        Milliseconds from the start of the decision to the answer; None: unknown.
    """

    instance_uuids: tuple[str, ...]
    hosts: tuple[str, ...]
    result: str
    n_attempts: int
    detail: str
    at_ms: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceRecord:
    """The decision for one instance.

    Attributes
    ----------
    top_hosts : tuple of WeighedHost
        The best hosts; none for instances beyond the first `TOP_INSTANCES`.
    node : str
        The compute node; empty if it has the name of its host.
    """

    instance_uuid: str | None
    host: str
    weight: float
    top_hosts: tuple[WeighedHost, ...]
    alternates: tuple[str, ...] = ()
    node: str = ""

    @property
    def place(self) -> str:
        """The host, with its node unless that is the host's name with a domain."""
        is_own = not self.node or self.node.startswith(f"{self.host}.")
        return self.host if is_own else f"{self.host}/{self.node}"

    def is_on(self, host: WeighedHost) -> bool:
        """Return whether one of the best hosts was chosen."""
        return (host.host, host.node) == (self.host, self.node or self.host)


@dataclasses.dataclass(frozen=True, slots=True)
class AttachmentRecord:
    """A volume or a port to which a request was to be near.

    Attributes
    ----------
    hint : str
        Such as near_volume; boot_volume and ports are automatic.
    uuid : str
        Of the volume or port; of the instance if its volume could not be read.
    level : str
        The level at which its place was required; empty: it was preferred.
    places : tuple of (level, place)
        Where it is; the level of service hosts is "host".
    problem : str
        Why it did not count, for end users; empty: it did.
    detail : str
        The same for operators.
    """

    hint: str
    uuid: str
    level: str
    places: tuple[tuple[str, str], ...] = ()
    problem: str = ""
    detail: str = ""

    def __str__(self) -> str:
        named = f"{self.hint} {self.uuid}"
        if self.problem:
            return f"{named} {'failed' if self.level else 'dropped'}: {self.detail}"
        return f"{named}: {', '.join(' '.join(place) for place in self.places)}"


@dataclasses.dataclass(frozen=True, slots=True)
class ReplayKey:
    """By what a decision can be repeated on the view that is stored of it.

    Attributes
    ----------
    view : str
        The id of the view.
    at : float
        When the last pass of the decision began, seconds since the epoch.
    return_alternates : bool
    random_seed : int or None
        Of all that was chosen at random; None: nothing was.
    contention : float
        The share of refused claims, which widens the choice of hosts.
    n_claims : int
        Claim attempts of earlier passes.
    """

    view: str
    at: float
    return_alternates: bool
    random_seed: int | None
    contention: float
    n_claims: int


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
        return (
            f"{self.request_id or '-'}: {self.n_instances} instance(s) "
            f"{self.outcome or 'open'}{self._why()}; {self._funnel()}"
            f"{self._chosen()}{self._dropped()}; {self._noted()}{self._claimed()}; "
            f"{self._times()}"
            f"{self._hint()}"
        )

    def _hint(self) -> str:
        if self.outcome is Outcome.SELECTED or not self.request_id:
            return ""
        return f'; see "moorage explain {self.request_id}"'

    def _why(self) -> str:
        return f" ({self.reason.strip()})" if self.reason.strip() else ""

    def _funnel(self) -> str:
        truncated = " (truncated)" if self.is_truncated else ""
        query = (
            self.no_answer or "Placement not queried"
            if self.n_candidates is None
            else f"{self.n_candidates} candidate(s){truncated}"
        )
        # A step that is repeated for later instances is written once.
        left: dict[str, list[str]] = {}
        for step in self.steps:
            counts = left.setdefault(step.name, [])
            if counts[-1:] != [str(step.n_out)]:
                counts.append(str(step.n_out))
        funnel = "".join(f" > {name} {'/'.join(n)}" for name, n in left.items())
        age = "" if self.view_age_s is None else f" {self.view_age_s:.1f} s old"
        return f"{query}, {self.n_hosts} host(s){age}{funnel}"

    def _chosen(self) -> str:
        chosen = "".join(
            f"; {i.instance_uuid} on {i.place} ({i.weight:.3f}), "
            f"alternates [{', '.join(i.alternates)}]"
            for i in self.instances[:TOP_INSTANCES]
        )
        n_more = len(self.instances) - TOP_INSTANCES
        return f"{chosen}; and {n_more} more" if n_more > 0 else chosen

    def _dropped(self) -> str:
        return "".join(f"; {each}" for each in self.attachments if each.problem)

    def _noted(self) -> str:
        return f"{self.note}; " if self.note else ""

    def _claimed(self) -> str:
        if not self.claims:
            return "nothing claimed"
        return f"{sum(c.n_attempts for c in self.claims)} claim attempt(s)"

    def _times(self) -> str:
        return ", ".join(f"{step} {ms:.1f} ms" for step, ms in self.times_ms.items())


class _Timed:
    """Adds the duration of a block to a step's time.

    Not a generator with `contextmanager`, which costs twice as much: a decision times a
    dozen blocks.
    """

    __slots__ = ("_started", "_step", "_times_ms")

    def __init__(self, times_ms: dict[str, float], step: str) -> None:
        self._times_ms = times_ms
        self._step = step

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        elapsed_ms = (time.perf_counter() - self._started) * 1000
        self._times_ms[self._step] = self._times_ms.get(self._step, 0.0) + elapsed_ms


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
            self._subscribers = tuple(t for t in self._subscribers if t != subscriber)

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
        found = (r for r in self.newest() if instance_uuid in r.instance_uuids)
        return next(found, None)
