# SPDX-License-Identifier: Apache-2.0
"""A circuit breaker: while Placement is down, only an occasional call is let through.

    closed ── several failures in a row ──▶ open ── its pause ends ──▶ one call probes
      ▲                                      ▲                               │    │
      │                                      └── failed: the pause doubles ──┘    │
      └───────────────────────────── answered ────────────────────────────────────┘

A call while it is open fails at once, so that no request waits for one timeout after
the other. Any answer closes it, also the answer to a call that began before it opened.
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
    """What the end of a call says about Placement."""

    #: It is up, whatever it answered.
    ANSWERED = "answered"
    FAILED = "failed"
    #: Nothing: for example, the call was killed.
    UNCLEAR = "unclear"


@dataclass(slots=True, eq=False)
class _Outage:
    """One period of being open; `since` and `until` are on the circuit's clock."""

    since: float
    until: float
    why: str
    n_failures: int
    n_probes: int = 0
    is_probed: bool = False


@dataclass(slots=True, eq=False)
class _FailureStreak:
    """Failures since the last answer."""

    answered_at: float
    failed_at: float = 0.0
    n_failures: int = 0
    lost_s: float = 0.0


class Circuit:
    """Let calls through while Placement answers. Thread-safe.

    Parameters
    ----------
    clock : callable, optional
        Returns monotonic seconds.
    rng : random.Random, optional
        Jitters the pauses, so that many schedulers do not retry at once.
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
        self._streak = _FailureStreak(clock())
        self._outage: _Outage | None = None
        self._on_opening: Callable[[], object] | None = None

    @property
    def is_open(self) -> bool:
        """Whether calls are refused, except probes."""
        return self._outage is not None

    @property
    def pause_left_s(self) -> float:
        """The seconds until a call may probe Placement; 0 if it may now."""
        outage = self._outage
        return 0.0 if outage is None else max(0.0, outage.until - self._clock())

    @property
    def reason(self) -> str:
        """Since when (UTC), why and how long calls are refused; empty while closed."""
        outage = self._outage
        return "" if outage is None else self._describe(outage)

    def on_open(self, callback: Callable[[], object]) -> None:
        """Register what is called, in the last failure's thread, when it opens."""
        self._on_opening = callback

    def end_pause(self) -> None:
        """Let the next call probe Placement, whatever is left of the pause."""
        with self._lock:
            if self._outage is not None:
                self._outage.until = self._clock()

    @contextmanager
    def guarding(
        self, classify: Callable[[PlacementError], CallOutcome]
    ) -> Iterator[None]:
        """Guard one call; `classify` returns what an error of it means.

        Raises
        ------
        PlacementUnavailable
            It is open: nothing may be sent.
        """
        began, outage = self._enter()
        try:
            yield
        except PlacementError as e:
            self._end(began, outage, classify(e), str(e))
            raise
        except BaseException:
            self._end(began, outage, CallOutcome.UNCLEAR, "")
            raise
        self._end(began, outage, CallOutcome.ANSWERED, "")

    def _enter(self) -> tuple[float, _Outage | None]:
        """Return the time, and the outage that the call probes, if there is one."""
        now = self._clock()
        if self._outage is None:
            return now, None
        with self._lock:
            outage = self._outage
            if outage is not None:
                if outage.is_probed or now < outage.until:
                    raise PlacementUnavailable(self._describe(outage))
                outage.is_probed = True
            return now, outage

    def _end(
        self, began: float, probed: _Outage | None, outcome: CallOutcome, why: str
    ) -> None:
        with self._lock:
            was_open = self.is_open
            if probed is not None:
                probed.is_probed = False
            if outcome is CallOutcome.ANSWERED:
                self._answered()
            elif outcome is CallOutcome.FAILED:
                self._failed(began, probed, why)
            has_opened = self.is_open and not was_open
        if has_opened and self._on_opening is not None:
            self._on_opening()

    def _answered(self) -> None:
        now = self._clock()
        self._streak = _FailureStreak(now)
        if self._outage is not None:
            away_s = now - self._outage.since
            LOG.warning("Placement answers again, after %.1f s", away_s)
            self._outage = None

    def _failed(self, began: float, probed: _Outage | None, why: str) -> None:
        if probed is not None and probed is self._outage:
            self._pause(probed, why)
        # The failure of a call that began before the last answer is outdated.
        elif self._outage is None and began >= self._streak.answered_at:
            self._count(began, why)

    def _count(self, began: float, why: str) -> None:
        streak, now = self._streak, self._clock()
        if not streak.n_failures:
            streak.failed_at = began
        streak.n_failures += 1
        streak.lost_s += now - began
        if (
            streak.n_failures >= CIRCUIT_MAX_FAILURES
            or streak.lost_s >= CIRCUIT_MAX_LOST_S
        ):
            self._outage = _Outage(streak.failed_at, now, why, streak.n_failures)
            self._outage.until = now + self._pause_s(0)
            LOG.error("%s", self._describe(self._outage))

    def _pause(self, outage: _Outage, why: str) -> None:
        outage.n_probes += 1
        outage.n_failures += 1
        outage.why = why
        outage.until = self._clock() + self._pause_s(outage.n_probes)
        LOG.info("%s", self._describe(outage))

    def _pause_s(self, n_probes: int) -> float:
        longest_s = CIRCUIT_FIRST_PAUSE_S * 2.0 ** min(n_probes, _MAX_DOUBLINGS)
        return self._rng.uniform(0.5, 1.0) * min(longest_s, CIRCUIT_MAX_PAUSE_S)

    def _describe(self, outage: _Outage) -> str:
        now = self._clock()
        since = datetime.now(UTC) - timedelta(seconds=now - outage.since)
        retry = f"Next retry in {max(0.0, outage.until - now):.1f} s."
        if outage.is_probed:
            retry = "A retry is in progress."
        return (
            "Calls to Placement are suspended: since "
            f"{since:%Y-%m-%dT%H:%M:%SZ} it has failed "
            f"{outage.n_failures} time(s) in a row. {retry} Last failure: {outage.why}"
        )
