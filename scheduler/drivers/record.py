# SPDX-License-Identifier: Apache-2.0
"""What a decision leaves behind, so that it can be explained."""

from __future__ import annotations

import collections
import dataclasses
import enum
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

LOG = logging.getLogger(__name__)

#: How many of the best hosts a record tells of.
TOP_HOSTS: Final = 5

#: Stands beside the results of claims: the request, or its first try, failed.
RELEASED: Final = "released"


class Outcome(enum.StrEnum):
    """How a decision ended."""

    SELECTED = "selected"
    NO_VALID_HOST = "no valid host"
    FAILED = "failed"


@dataclasses.dataclass(frozen=True, slots=True)
class FilterStep:
    """Hosts in and out of one filter, and why it rejects."""

    name: str
    n_in: int
    n_out: int
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class WeigherPart:
    """One weigher's share in a host's weight."""

    name: str
    raw: float
    normalized: float
    weighted: float


@dataclasses.dataclass(frozen=True, slots=True)
class WeighedHost:
    """One of the best hosts, with the parts that its weight is the sum of."""

    host: str
    node: str
    weight: float
    parts: tuple[WeigherPart, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ClaimAttempt:
    """One answer of Placement to a claim, or that claims were released after all.

    Attributes
    ----------
    result : str
        Of `ClaimResult`, or `RELEASED`.
    """

    instance_uuids: tuple[str, ...]
    hosts: tuple[str, ...]
    result: str
    n_attempts: int
    detail: str


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceRecord:
    """What was decided for one instance."""

    instance_uuid: str | None
    host: str
    weight: float
    top_hosts: tuple[WeighedHost, ...]
    alternates: tuple[str, ...] = ()


@dataclasses.dataclass(slots=True)
class DecisionRecord:
    """One call of select_destinations, step by step.

    Attributes
    ----------
    started_at : float
        Seconds since the epoch.
    queries : list of str
        What Placement was asked for.
    n_candidates : int or None
        Allocation candidates in all answers; None: Placement was not asked.
    is_cut : bool
        Whether the limit may have hidden some.
    n_hosts : int
        Hosts of the candidates that have a row.
    n_without_row : int
        Root providers of candidates without one: sharing providers, and hosts that
        the source does not know.
    view_revision : int or None
        The host table's revision that was read.
    view_age_s : float or None
        Since the oldest part of it was read from the source; None: the source vouches
        for it.
    steps : list of FilterStep
        Restrictions of the request and filters, in order; those of later instances
        follow.
    times_ms : dict
        Step to milliseconds; "total" is all of it.
    """

    request_id: str | None
    instance_uuids: tuple[str, ...]
    n_instances: int
    started_at: float
    queries: list[str] = dataclasses.field(default_factory=list)
    n_candidates: int | None = None
    is_cut: bool = False
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

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Add the time of a block to a step's."""
        started = time.perf_counter()
        try:
            yield
        finally:
            elapsed_ms = (time.perf_counter() - started) * 1000
            self.times_ms[step] = self.times_ms.get(step, 0.0) + elapsed_ms

    def begin_again(self) -> None:
        """Forget hosts and filters: what was decided on had been kept for too long.

        Questions, claims and times stay: they are of the whole call.
        """
        self.steps.clear()
        self.instances.clear()

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain data that JSON can hold."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        return self.summary()

    def summary(self) -> str:
        """Return the record in one line, for operators: it has host names."""
        return (
            f"{self.request_id or '-'}: {self.n_instances} instance(s) "
            f"{self.outcome or 'open'}{self._why()}; {self._funnel()}"
            f"{self._chosen()}; {self._claimed()}; {self._times()}"
        )

    def _why(self) -> str:
        return f" ({self.reason.strip()})" if self.reason.strip() else ""

    def _funnel(self) -> str:
        asked = (
            "Placement not asked"
            if self.n_candidates is None
            else f"{self.n_candidates} candidate(s){' (cut)' if self.is_cut else ''}"
        )
        # A step that is repeated for later instances is written once.
        left: dict[str, list[str]] = {}
        for step in self.steps:
            counts = left.setdefault(step.name, [])
            if counts[-1:] != [str(step.n_out)]:
                counts.append(str(step.n_out))
        funnel = "".join(f" > {name} {'/'.join(n)}" for name, n in left.items())
        age = "" if self.view_age_s is None else f" {self.view_age_s:.1f} s old"
        return f"{asked}, {self.n_hosts} host(s){age}{funnel}"

    def _chosen(self) -> str:
        return "".join(
            f"; {i.instance_uuid} on {i.host} ({i.weight:.3f}), "
            f"alternates [{', '.join(i.alternates)}]"
            for i in self.instances
        )

    def _claimed(self) -> str:
        if not self.claims:
            return "nothing claimed"
        return f"{sum(c.n_attempts for c in self.claims)} claim attempt(s)"

    def _times(self) -> str:
        return ", ".join(f"{step} {ms:.1f} ms" for step, ms in self.times_ms.items())


class DecisionLog:
    """The newest records, and a line of each in the log.

    Parameters
    ----------
    size : int
        How many records are kept.
    """

    def __init__(self, size: int) -> None:
        self._ring: collections.deque[DecisionRecord] = collections.deque(maxlen=size)
        self._lock = threading.Lock()
        self._tellers: tuple[Callable[[DecisionRecord], None], ...] = ()

    def __len__(self) -> int:
        return len(self._ring)

    def subscribe(self, tell: Callable[[DecisionRecord], None]) -> None:
        """Have every record that is complete told to somebody, too.

        It is told in the thread that decided, whose caller waits for it. What it
        raises is logged, and fails no decision.
        """
        with self._lock:
            self._tellers = (*self._tellers, tell)

    def unsubscribe(self, tell: Callable[[DecisionRecord], None]) -> None:
        """Tell somebody no more."""
        with self._lock:
            self._tellers = tuple(t for t in self._tellers if t != tell)

    def add(self, record: DecisionRecord) -> None:
        """Keep a record that is complete, tell of it, and log it at INFO."""
        with self._lock:
            self._ring.append(record)
        for tell in self._tellers:
            try:
                tell(record)
            except Exception:  # the decision is made, and its answer is due
                LOG.exception("A decision is not told of to %r", tell)
        if LOG.isEnabledFor(logging.INFO):
            # Logging calls str(), and swallows what that may raise.
            LOG.info("Decision %s", record)

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
