# SPDX-License-Identifier: Apache-2.0
"""Whether Placement answers: a circuit breaker, readiness, and a poll while it is down.

    up ── several failures in a row ──▶ down ── its pause ends ──▶ one call probes
    ▲                                    ▲                             │    │
    │                                    └── failed: longer pause ─────┘    │
    └────────────────────────────── answered ──────────────────────────────┘

A call while Placement is down fails at once, so that no request waits for one timeout
after the other. Any answer ends an outage, even the answer to an earlier call.

Placement is ready while the last call was answered. A thread probes Placement after 5
seconds without an answer, and each second while it is not ready, if the pause permits:
so no request has to be the first to fail, or the first to succeed.
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
from ..periodic import Periodic
from ..waiting import Spawner, ThreadSpawner
from .allocations.limits import (
    CIRCUIT_FIRST_PAUSE_S,
    CIRCUIT_MAX_FAILURES,
    CIRCUIT_MAX_LOST_S,
    CIRCUIT_MAX_PAUSE_S,
    STOP_S,
)

LOG = logging.getLogger(__name__)

_MAX_DOUBLINGS: Final = 10  # far beyond the longest pause

#: Seconds without an answer after which Placement is probed.
PROBE_AFTER_S: Final = 5.0
#: Seconds between two probes of a Placement that is not ready, where its pause permits.
POLL_INTERVAL_S: Final = 1.0
#: Seconds between two checks whether an empty Placement has got a provider.
REGISTRATION_INTERVAL_S: Final = 10.0

#: Why there are no candidates if Placement has no provider; an end user may see it.
NO_PROVIDERS: Final = (
    "No compute service has registered with Placement yet: it has no resource provider."
)


class CallOutcome(enum.Enum):
    """What the end of a call says about Placement."""

    #: Placement is up, whatever it answered.
    ANSWERED = "answered"
    FAILED = "failed"
    #: It says nothing about Placement: for example, the call was killed.
    UNCLEAR = "unclear"


@dataclass(slots=True, eq=False)
class _Failures:
    """Failures in a row; times are on the health's clock.

    Attributes
    ----------
    answered_at, failed_at : float
        When the last answer arrived, and when the first failed call began.
    lost_s : float
        How long the failed calls took.
    until : float or None
        The end of the pause while Placement is down, else None.
    is_probed : bool
        Whether a call probes Placement now.
    """

    answered_at: float
    failed_at: float = 0.0
    n_failures: int = 0
    lost_s: float = 0.0
    why: str = ""
    until: float | None = None
    n_probes: int = 0
    is_probed: bool = False


class PlacementHealth:
    """Allow calls while Placement answers; report whether it is ready. Thread-safe.

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
        self._spawner = spawner or ThreadSpawner()
        self._lock = self._spawner.lock()
        self._failures = _Failures(clock())
        self._has_answered = False
        self._reason = "Placement has not been polled yet."
        self._probe: Callable[[], object] = lambda: None
        self._polling = Periodic(
            self._poll,
            self._next_poll_s,
            log=LOG,
            what="Polling Placement",
            name="placement-watch",
            spawner=self._spawner,
        )
        self._has_providers: bool | None = None  # None: unknown
        self._registration_check_at = clock()

    # -- state -------------------------------------------------------------------------

    @property
    def is_down(self) -> bool:
        """Whether calls are refused, except probes."""
        return self._failures.until is not None

    @property
    def is_ready(self) -> bool:
        """Whether Placement has answered a probe, and no call has failed since."""
        return self._has_answered and not self._failures.n_failures

    @property
    def pause_left_s(self) -> float:
        """The seconds until a call may probe Placement; 0 if it may now."""
        until = self._failures.until
        return 0.0 if until is None else max(0.0, until - self._clock())

    @property
    def outage(self) -> str:
        """Since when (UTC) and why calls fail or are refused; or an empty text."""
        failures = self._failures
        return self._describe(failures) if failures.n_failures else ""

    @property
    def note(self) -> str:
        """Why Placement is not ready, or what else an operator should know, or ""."""
        if not self._has_answered:
            return self._reason
        return self.outage or (NO_PROVIDERS if self.was_empty else "")

    # -- calls -------------------------------------------------------------------------

    @contextmanager
    def guarding(
        self, classify: Callable[[PlacementError], CallOutcome]
    ) -> Iterator[None]:
        """Run one call unless Placement is down, and count how it ends.

        `classify` returns the outcome of a call that raised an error.

        Raises
        ------
        PlacementUnavailable
            Placement is down: nothing may be sent.
        """
        began = self._clock()
        with self._lock:
            failures = self._failures
            probed = None if failures.until is None else failures
            if probed is not None:
                if probed.is_probed or began < (probed.until or 0.0):
                    raise PlacementUnavailable(self._describe(probed))
                probed.is_probed = True
        outcome, why = CallOutcome.UNCLEAR, ""
        try:
            yield
            outcome = CallOutcome.ANSWERED
        except PlacementError as e:
            outcome, why = classify(e), str(e)
            raise
        finally:
            with self._lock:
                if probed is not None:
                    probed.is_probed = False
                if outcome is CallOutcome.ANSWERED:
                    failures_before, now = self._failures, self._clock()
                    self._failures = _Failures(now)
                    if failures_before.until is not None:
                        outage_s = now - failures_before.failed_at
                        LOG.warning("Placement answers again, after %.1f s", outage_s)
                elif outcome is CallOutcome.FAILED:
                    self._failed(began, probed, why)

    def end_pause(self) -> None:
        """Let the next call probe Placement, whatever is left of the pause."""
        with self._lock:
            if self.is_down:
                self._failures.until = self._clock()

    def _failed(self, began: float, probed: _Failures | None, why: str) -> None:
        """Count a failure, unless it is outdated; the caller holds the lock."""
        failures, now = self._failures, self._clock()
        was_ready = self.is_ready
        if probed is not None and probed is failures:
            failures.n_probes += 1
            failures.n_failures += 1
            failures.why = why
            self._pause(failures)
            LOG.info("%s", self._describe(failures))
        # The failure of a call that began before the last answer is outdated.
        elif failures.until is None and began >= failures.answered_at:
            if not failures.n_failures:
                failures.failed_at = began
            failures.n_failures += 1
            failures.why = why
            failures.lost_s += now - began
            if (
                failures.n_failures >= CIRCUIT_MAX_FAILURES
                or failures.lost_s >= CIRCUIT_MAX_LOST_S
            ):
                self._pause(failures)
                LOG.error("%s", self._describe(failures))
        if was_ready and not self.is_ready:
            LOG.warning("Not ready until Placement answers: %s", why)
            self._polling.wake()

    def _pause(self, failures: _Failures) -> None:
        doublings = min(failures.n_probes, _MAX_DOUBLINGS)
        longest_s = min(CIRCUIT_FIRST_PAUSE_S * 2.0**doublings, CIRCUIT_MAX_PAUSE_S)
        failures.until = self._clock() + self._rng.uniform(0.5, 1.0) * longest_s

    def _describe(self, failures: _Failures) -> str:
        now = self._clock()
        since = datetime.now(UTC) - timedelta(seconds=now - failures.failed_at)
        failed = (
            f"since {since:%Y-%m-%dT%H:%M:%SZ} it has failed {failures.n_failures} "
            "time(s) in a row."
        )
        if failures.until is None:
            return f"Placement fails: {failed} Last failure: {failures.why}"
        retry = f"Next retry in {max(0.0, failures.until - now):.1f} s."
        if failures.is_probed:
            retry = "A retry is in progress."
        return (
            f"Calls to Placement are suspended: {failed} {retry} "
            f"Last failure: {failures.why}"
        )

    # -- polling -----------------------------------------------------------------------

    def start(self, probe: Callable[[], object]) -> None:
        """Probe Placement, warn if that fails, and start polling.

        Parameters
        ----------
        probe : callable
            Sends a guarded call; it may raise PlacementError.
        """
        self._probe = probe
        self._send_probe()
        if not self.is_ready:
            LOG.warning(
                "Placement does not answer yet; requests will fail: %s", self._reason
            )
        self._polling.start()

    def stop(self) -> None:
        """Stop polling; wait at most `STOP_S` for a poll in flight."""
        self._polling.stop(STOP_S)

    def _send_probe(self) -> None:
        try:
            self._probe()
        except PlacementError as e:
            self._reason = str(e)
        else:
            self._has_answered = True

    def _next_poll_s(self) -> float:
        left_s = PROBE_AFTER_S - self._silent_s if self.is_ready else 0.0
        return max(POLL_INTERVAL_S, left_s)

    def _poll(self) -> None:
        was_ready = self.is_ready
        if self.pause_left_s or (was_ready and self._silent_s < PROBE_AFTER_S):
            return
        self._send_probe()
        if self.is_ready and not was_ready:
            LOG.info("Placement answers")

    @property
    def _silent_s(self) -> float:
        return self._clock() - self._failures.answered_at

    # -- registration ------------------------------------------------------------------

    @property
    def was_empty(self) -> bool:
        """Whether Placement had no resource provider when that was last checked."""
        return self._has_providers is False

    def set_registered(self) -> None:
        """Note that there is a resource provider."""
        self._has_providers = True

    def is_empty(self, read: Callable[[], object]) -> bool:
        """Return whether Placement is known to have no resource provider at all.

        Placement lists providers without a limit: with 10,000 of them, the one GET that
        finds them costs as much as 10 claims. No further GET is sent.

        Parameters
        ----------
        read : callable
            Returns the decoded answer to GET /resource_providers; called once per
            `REGISTRATION_INTERVAL_S` until there is a provider.
        """
        with self._lock:
            now = self._clock()
            is_due = not self._has_providers and now >= self._registration_check_at
            if is_due:
                self._registration_check_at = now + REGISTRATION_INTERVAL_S
        if is_due:
            try:
                body = read()
            except PlacementError:
                return self.was_empty  # the caller reports the error that matters
            match body:
                case {"resource_providers": []}:
                    self._has_providers = False
                case {"resource_providers": [_, *_]}:
                    self._has_providers = True
        return self.was_empty
