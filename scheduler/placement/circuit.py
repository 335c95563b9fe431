# SPDX-License-Identifier: Apache-2.0
"""Ask a Placement that is away no more, but for one call now and then.

    closed ── several failures in a row ──▶ open ── its pause is over ──▶ one call tries
      ▲                                      ▲                               │    │
      │                                      └── failed: the pause doubles ──┘    │
      └───────────────────────────── answered ────────────────────────────────────┘

Whoever calls while it is open has an error at once, so that no request waits for one
time-out after the other. Any answer closes it, also one to a call from before.
"""

from __future__ import annotations

import enum
import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from ..errors import PlacementError, PlacementUnavailable
from ..waiting import Spawner, ThreadSpawner
from .allocations.limits import (
    CIRCUIT_FIRST_PAUSE_S,
    CIRCUIT_MAX_FAILURES,
    CIRCUIT_MAX_LOST_S,
    CIRCUIT_MAX_PAUSE_S,
)

LOG = logging.getLogger(__name__)

_MAX_DOUBLINGS: Final = 10  # far beyond the longest pause


class CallOutcome(enum.Enum):
    """What the end of a call tells of Placement."""

    #: It is there, whatever it said.
    ANSWERED = "answered"
    FAILED = "failed"
    #: Nothing: the call was killed, say.
    UNCLEAR = "unclear"


@dataclass(slots=True, eq=False)
class _Outage:
    """One time of being open; `since` and `until` are the clock's."""

    since: float
    until: float
    why: str
    n_failures: int
    n_tries: int = 0
    is_tried: bool = False


@dataclass(slots=True, eq=False)
class _Row:
    """Failures since the last answer."""

    answered_at: float
    failed_at: float = 0.0
    n_failures: int = 0
    lost_s: float = 0.0


class Circuit:
    """Let calls through while Placement answers. It is safe for threads.

    Parameters
    ----------
    clock : callable, optional
        Returns seconds that only grow.
    rng : random.Random, optional
        Spreads the pauses, so that many schedulers do not come back at once.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
        spawner: Spawner | None = None,
    ) -> None:
        self._clock = clock
        self._rng = rng or random.Random()
        self._lock = (spawner or ThreadSpawner()).lock()
        self._row = _Row(clock())
        self._outage: _Outage | None = None
        self._on_opening: Callable[[], object] | None = None

    @property
    def is_open(self) -> bool:
        """Tell whether calls are refused, but for those that try."""
        return self._outage is not None

    @property
    def pause_left_s(self) -> float:
        """Return the seconds until a call may try; 0 where one may now."""
        outage = self._outage
        return 0.0 if outage is None else max(0.0, outage.until - self._clock())

    @property
    def reason(self) -> str:
        """Return since when, why and how long calls are refused; empty: they are not.

        Times are UTC.
        """
        outage = self._outage
        return "" if outage is None else self._told(outage)

    def on_open(self, tell: Callable[[], object]) -> None:
        """Have `tell` called, in the thread of the last failure, when it opens."""
        self._on_opening = tell

    def end_pause(self) -> None:
        """Let the next call try, whatever is left of the pause."""
        with self._lock:
            if self._outage is not None:
                self._outage.until = self._clock()

    @contextmanager
    def guarding(
        self, judge: Callable[[PlacementError], CallOutcome]
    ) -> Iterator[None]:
        """Guard one call; `judge` says what an error of it means.

        Raises
        ------
        PlacementUnavailable
            It is open: nothing may be sent now.
        """
        began, outage = self._enter()
        try:
            yield
        except PlacementError as e:
            self._end(began, outage, judge(e), str(e))
            raise
        except BaseException:
            self._end(began, outage, CallOutcome.UNCLEAR, "")
            raise
        self._end(began, outage, CallOutcome.ANSWERED, "")

    def _enter(self) -> tuple[float, _Outage | None]:
        """Return now, and the outage that the call tries to end, if there is one."""
        now = self._clock()
        if self._outage is None:
            return now, None
        with self._lock:
            outage = self._outage
            if outage is not None:
                if outage.is_tried or now < outage.until:
                    raise PlacementUnavailable(self._told(outage))
                outage.is_tried = True
            return now, outage

    def _end(
        self, began: float, tried: _Outage | None, verdict: CallOutcome, why: str
    ) -> None:
        with self._lock:
            was_open = self.is_open
            if tried is not None:
                tried.is_tried = False
            if verdict is CallOutcome.ANSWERED:
                self._answered()
            elif verdict is CallOutcome.FAILED:
                self._failed(began, tried, why)
            has_opened = self.is_open and not was_open
        if has_opened and self._on_opening is not None:
            self._on_opening()

    def _answered(self) -> None:
        now = self._clock()
        self._row = _Row(now)
        if self._outage is not None:
            away_s = now - self._outage.since
            LOG.warning("Placement answers again, after %.1f s", away_s)
            self._outage = None

    def _failed(self, began: float, tried: _Outage | None, why: str) -> None:
        if tried is not None and tried is self._outage:
            self._pause(tried, why)
        # One that began before the last answer tells of an older time.
        elif self._outage is None and began >= self._row.answered_at:
            self._count(began, why)

    def _count(self, began: float, why: str) -> None:
        row, now = self._row, self._clock()
        if not row.n_failures:
            row.failed_at = began
        row.n_failures += 1
        row.lost_s += now - began
        if row.n_failures >= CIRCUIT_MAX_FAILURES or row.lost_s >= CIRCUIT_MAX_LOST_S:
            self._outage = _Outage(row.failed_at, now, why, row.n_failures)
            self._outage.until = now + self._pause_s(0)
            LOG.error("%s", self._told(self._outage))

    def _pause(self, outage: _Outage, why: str) -> None:
        outage.n_tries += 1
        outage.n_failures += 1
        outage.why = why
        outage.until = self._clock() + self._pause_s(outage.n_tries)
        LOG.info("%s", self._told(outage))

    def _pause_s(self, n_tries: int) -> float:
        longest_s = CIRCUIT_FIRST_PAUSE_S * 2.0 ** min(n_tries, _MAX_DOUBLINGS)
        return self._rng.uniform(0.5, 1.0) * min(longest_s, CIRCUIT_MAX_PAUSE_S)

    def _told(self, outage: _Outage) -> str:
        now = self._clock()
        since = datetime.now(UTC) - timedelta(seconds=now - outage.since)
        again = f"It is tried again in {max(0.0, outage.until - now):.1f} s."
        if outage.is_tried:
            again = "It is being tried just now."
        return (
            f"Placement is not asked: since {since:%Y-%m-%dT%H:%M:%SZ} it has failed "
            f"{outage.n_failures} time(s) in a row. {again} Last failure: {outage.why}"
        )
