# SPDX-License-Identifier: Apache-2.0
"""Lookups of volumes and ports in a service that is slow or down at times.

Lookups run in threads of their own, so that a decision can stop waiting for a lookup.
The answer is kept for a while, a failure for `RETRY_S`. While a service does not
answer, one lookup every `RETRY_S` is sent, and all others fail at once.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from cachetools import TTLCache

from ..errors import SchedulerError
from ..waiting import Event, Spawner, Waiter

#: The metadata by which an aggregate that is a place is close to storage or a network.
BACKEND_KEY: Final = "moorage:volume_backend"
SEGMENT_KEY: Final = "moorage:segment"
PHYSICAL_NETWORK_KEY: Final = "moorage:physical_network"
#: The key of a clue whose values are service hosts.
HOST_CLUE: Final = "host"


@dataclasses.dataclass(frozen=True, slots=True)
class Clue:
    """Something that an operator may have mapped to places.

    Attributes
    ----------
    key : str
        A key of the aggregates' metadata, or `HOST_CLUE`.
    values : frozenset of str
        The places of each value count.
    """

    key: str
    values: frozenset[str]


@dataclasses.dataclass(frozen=True, slots=True)
class Attachment:
    """A volume or a port.

    Attributes
    ----------
    project_id : str
        The project that owns it.
    clues : tuple of Clue
        The first one that leads to a place counts.
    """

    project_id: str
    clues: tuple[Clue, ...]


class LookupFailed(SchedulerError):
    """Raised when a volume or port cannot be looked up; names service and cause.

    Attributes
    ----------
    is_unknown : bool
        Whether the service has no object of that UUID.
    is_outage : bool
        Whether lookups of other objects would fail, too, perhaps after a timeout.
    """

    def __init__(
        self, message: str, *, is_unknown: bool = False, is_outage: bool = False
    ) -> None:
        super().__init__(message)
        self.is_unknown = is_unknown
        self.is_outage = is_outage


LOG = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds for which an answer about one volume or port is used again.
LOOKUP_MAX_AGE_S: Final = 30.0
#: Seconds for which a failure is remembered.
RETRY_S: Final = 10.0
#: The most answers, and the most failures, that are kept.
MAX_KEPT: Final = 10_000
#: The most lookups that run at a time: half of the threads that serve requests by
#: default.
MAX_RUNNING: Final = 32
#: The most lookups that wait for a running one to end, as long as the service answers a
#: lookup every `SLOW_S` seconds.
MAX_QUEUED: Final = 1000
SLOW_S: Final = 0.5
#: The share of a decision's time that a lookup must have had before its lateness shows
#: an outage: that of a boot volume begins once the database has named the volume.
_FAIR_SHARE: Final = 0.5


class Lookup(Generic[T]):
    """A lookup in a service, which several decisions may await.

    Attributes
    ----------
    outcome : T or LookupFailed or None
        None: there is no answer yet.
    began_at : float
        When the lookup began, by the waiter's clock.
    is_late : bool
        Whether a decision has stopped waiting for the lookup, and no decision has begun
        to wait for it since.
    """

    def __init__(
        self, done: Event, began_at: float, outcome: T | LookupFailed | None = None
    ) -> None:
        self.done = done
        self.began_at = began_at
        self.outcome = outcome
        self.is_late = False


class Lookups(Generic[T]):
    """Looks up objects of a service.

    Parameters
    ----------
    service : str
        The service's name in messages.
    read : callable
        Returns the object of a UUID, or raises LookupFailed.
    max_age_s : float
        Seconds for which an answer is kept.
    """

    def __init__(
        self,
        service: str,
        read: Callable[[str], T],
        *,
        max_age_s: float,
        waiter: Waiter,
        spawner: Spawner,
    ) -> None:
        self._service = service
        self._read = read
        self._spawner = spawner
        self._now = waiter.monotonic
        self._lock = spawner.lock()
        self._answers: TTLCache[str, T]
        self._answers = TTLCache(MAX_KEPT, max_age_s, timer=self._now)
        self._failures: TTLCache[str, LookupFailed]
        self._failures = TTLCache(MAX_KEPT, RETRY_S, timer=self._now)
        #: Lookups without an answer, and those that no thread runs yet.
        self._open: dict[str, Lookup[T]] = {}
        self._queue: deque[tuple[str, Lookup[T]]] = deque()
        self._n_running = 0
        self._answered_at = 0.0
        #: Until when the service is not queried, and why.
        self._outage: tuple[float, LookupFailed] | None = None

    def begin(self, uuid: str) -> Lookup[T]:
        """Start to look up an object, unless its answer is known or in progress."""
        with self._lock:
            known_lookup = self._known(uuid)
            if known_lookup is not None:
                return known_lookup
            lookup = Lookup[T](self._spawner.event(), self._now())
            self._open[uuid] = lookup
            if self._n_running >= MAX_RUNNING:
                self._queue.append((uuid, lookup))
                return lookup
            if not self._n_running:
                self._answered_at = self._now()
            self._n_running += 1
        try:
            self._spawner.spawn(
                lambda: self._run(uuid, lookup), name=f"moorage {self._service}"
            )
        except RuntimeError as e:  # the system has no thread left
            self._end(uuid, lookup, LookupFailed(f"{self._service}: {e}"))
            with self._lock:
                self._n_running -= 1
        return lookup

    def wait(
        self, lookup: Lookup[T], deadline: float, timeout_s: float
    ) -> T | LookupFailed:
        """Return the answer, or why there is none.

        Parameters
        ----------
        deadline : float
            When the decision stops waiting, by the waiter's clock.
        timeout_s : float
            How long the decision has waited by then, for messages.
        """
        if lookup.outcome is None:
            lookup.done.wait(max(0.0, deadline - self._now()))
        with self._lock:
            if lookup.outcome is not None:
                return lookup.outcome
            lookup.is_late = True
            available_s = max(0.0, deadline - lookup.began_at)
            if available_s < _FAIR_SHARE * timeout_s:  # others get all the time
                return LookupFailed(
                    f"{self._service} did not answer within the {available_s:.1g} s "
                    f"that were left of {timeout_s:g} s"
                )
            failure = LookupFailed(
                f"{self._service} did not answer within {timeout_s:g} s",
                is_outage=True,
            )
            self._begin_outage(failure)
            return failure

    def _known(self, uuid: str) -> Lookup[T] | None:
        """Return a lookup that is answered or in progress; None: send a new one."""
        outcome: T | LookupFailed | None = self._answers.get(uuid)
        if outcome is None:
            outcome = self._failures.get(uuid)
        if outcome is None and self._outage is not None:
            until, failure = self._outage
            if self._now() < until:
                outcome = failure
            else:  # this lookup shows whether the outage is over
                self._outage = self._now() + RETRY_S, failure
        if outcome is None and (lookup := self._open.get(uuid)) is not None:
            lookup.is_late = False
            return lookup
        if outcome is None and self._is_overloaded():
            outcome = LookupFailed(
                f"{len(self._open)} questions to {self._service} wait for an answer"
            )
        if outcome is None:
            return None
        return Lookup(self._spawner.event(), self._now(), outcome)

    def _is_overloaded(self) -> bool:
        """Return whether a decision would wait behind others for a slow service."""
        if self._n_running < MAX_RUNNING:
            return False
        is_slow = self._now() - self._answered_at > SLOW_S
        return is_slow or len(self._queue) >= MAX_QUEUED

    def _run(self, uuid: str, lookup: Lookup[T]) -> None:
        """Run one lookup, then those that are queued."""
        while True:
            self._end(uuid, lookup, self._read_object(uuid, lookup))
            with self._lock:
                if not self._queue:
                    self._n_running -= 1
                    return
                uuid, lookup = self._queue.popleft()

    def _read_object(self, uuid: str, lookup: Lookup[T]) -> T | LookupFailed:
        if lookup.is_late:  # it was queued, and no decision waits for it
            return LookupFailed(f"{self._service} was not asked in time")
        try:
            return self._read(uuid)
        except LookupFailed as e:
            return e
        except SchedulerError as e:  # of a source
            return LookupFailed(str(e), is_outage=True)
        except Exception as e:
            LOG.exception("Asking %s failed", self._service)
            return LookupFailed(f"Asking {self._service} failed: {e!r}")

    def _end(self, uuid: str, lookup: Lookup[T], outcome: T | LookupFailed) -> None:
        with self._lock:
            self._open.pop(uuid, None)
            self._answered_at = self._now()
            lookup.outcome = outcome
            if not isinstance(outcome, LookupFailed):
                self._answers[uuid] = outcome
            # If it is late, the decision that waited for it has noted the outage.
            if not lookup.is_late:
                self._note(uuid, outcome)
        lookup.done.set()

    def _note(self, uuid: str, outcome: T | LookupFailed) -> None:
        """Remember a failure, and whether the service answers."""
        if isinstance(outcome, LookupFailed):
            if outcome.is_outage:
                self._begin_outage(outcome)
                return
            self._failures[uuid] = outcome
        if self._outage is not None:
            LOG.info("%s answers again", self._service)
            self._outage = None

    def _begin_outage(self, failure: LookupFailed) -> None:
        if self._outage is None:
            LOG.warning(
                "%s; requests are decided without it, and it is asked again in %.0f s",
                failure,
                RETRY_S,
            )
        self._outage = self._now() + RETRY_S, failure
