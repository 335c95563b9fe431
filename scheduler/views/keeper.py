# SPDX-License-Identifier: Apache-2.0
"""Capture the views of failed decisions, and of a share of the other decisions.

A view is the state of the scheduler that a decision read; see `CapturedView`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ..candidates import QueryOffer
from ..drivers.parts import DecisionInput, Parts
from ..placement.cache import CachedOffer
from ..placement.memory import TableOffer
from ..placement.providers import ProviderView
from ..waiting import Spawner, ThreadSpawner
from .view import CapturedView

LOG = logging.getLogger(__name__)

#: Seconds between two views of failed decisions; doubled after each view.
_MIN_INTERVAL_S: Final = 1.0
_MAX_INTERVAL_S: Final = 60.0
#: Seconds in which at least one decision gets a view, whatever its outcome and the
#: share.
_SAMPLE_S: Final = 60.0
#: After a view was encoded, the next one waits for this many times the seconds that the
#: encoding took: views use at most 5 % of a core, however large the cloud is.
_REST: Final = 20

#: Queues a function that encodes a view, to be stored; returns the id of the view.
AddView = Callable[[Callable[[], bytes]], str]


@dataclass(frozen=True, slots=True)
class _Kept:
    """The last captured view without its hosts, which need megabytes."""

    id: str
    read: _Read
    #: The monotonic time of the capture. Later decisions do not share an old view, as
    #: the store may have lost or removed it.
    at: float


@dataclass(frozen=True, slots=True)
class _Read:
    """What a view contains, to compare it with what a decision has read."""

    revision: int
    conf: object
    providers: ProviderView | None
    offers: Sequence[CachedOffer]

    @classmethod
    def of(cls, captured: CapturedView) -> _Read:
        return cls(
            captured.image.revision,
            captured.conf,
            captured.providers,
            captured.offers,
        )

    def is_view_of(self, parts: Parts, read: DecisionInput) -> bool:
        """Return whether the view contains exactly what a decision has read."""
        if self.revision != read.revision or self.conf is not parts.conf:
            return False
        if read.offer is not None:
            return all(map(self._has, read.offer.offers))
        if self.providers is None:
            empty_queries = {offer.query for offer in self.offers if not offer.n_open}
            return empty_queries.issuperset(read.queries)
        current_providers = parts.candidates.provider_view()
        return (
            current_providers is not None
            and current_providers.state is self.providers.state
        )

    def _has(self, offer: QueryOffer) -> bool:
        if isinstance(offer, TableOffer):
            return self.providers is not None and self.providers.state is offer.state
        return isinstance(offer, CachedOffer) and any(
            view_offer.query == offer.query
            and view_offer.answer is offer.answer
            and view_offer.claimed == offer.claimed
            and np.array_equal(view_offer.is_open, offer.is_open)
            for view_offer in self.offers
        )


class ViewKeeper:
    """Captures the views of decisions; thread-safe.

    Parameters
    ----------
    add : callable
        See `AddView`; another thread calls the function that `add` gets.
    clock : callable
        Returns monotonic seconds.
    share : float
        The share of all decisions of which a view is captured, from 0 to 1.
    """

    def __init__(
        self,
        add: AddView,
        *,
        clock: Callable[[], float],
        share: float = 0.0,
        spawner: Spawner | None = None,
    ) -> None:
        self._add = add
        self._clock = clock
        self._share = share
        #: `share` times the number of decisions since the last sampled one, at most 1.
        self._n_due = 0.0
        self._lock = (spawner or ThreadSpawner()).lock()
        self._next_at = self._next_sample_at = self._rest_until = clock()
        self._interval_s = _MIN_INTERVAL_S
        self._last: _Kept | None = None
        #: The newest captured view, until it is encoded.
        self._unencoded: CapturedView | None = None

    def capture(self, parts: Parts, read: DecisionInput, *, is_due: bool) -> str | None:
        """Return the id of the view of a decision that has read its hosts.

        A decision that has read the same as an earlier one shares its view. Otherwise a
        view is captured if the decision is sampled, or if `is_due`. None: no view was
        captured.

        Parameters
        ----------
        is_due : bool
            Whether the decision must have a view: an earlier attempt has one, which is
            outdated.
        """
        with _log_errors():
            if view := self._find(parts, read):
                return view
            if self._is_sampled() or is_due:
                return self._capture(parts, read)
        return None

    def capture_failed(self, parts: Parts, read: DecisionInput) -> str | None:
        """Return the id of the view of a decision that found no host, or None."""
        view = None
        with _log_errors():
            revision = parts.table.revision
            if read.revision is None:  # no host was read, as there was no candidate
                read = replace(read, revision=revision)
            view = self._find(parts, read)
            if view is None and read.revision == revision and self._is_due():
                view = self._capture(parts, read)
        return view

    def _find(self, parts: Parts, read: DecisionInput) -> str | None:
        """Return the id of the last view if it is also the view of this decision."""
        last_view = self._last
        if last_view is None or self._clock() - last_view.at > _SAMPLE_S:
            return None
        return last_view.id if last_view.read.is_view_of(parts, read) else None

    def _capture(self, parts: Parts, read: DecisionInput) -> str | None:
        """Capture a view; None: the state has changed since the decision read it."""
        unanswered = () if read.offer is not None else read.queries
        captured = CapturedView.of(parts, offer=read.offer, unanswered=unanswered)
        content = _Read.of(captured)
        if not content.is_view_of(parts, read):
            return None
        self._unencoded = captured
        view = self._add(lambda: self._encode(captured))
        self._last = _Kept(view, content, self._clock())
        return view

    def _is_sampled(self) -> bool:
        """Return whether a decision is in the share, or is the first in a minute."""
        with self._lock:
            now = self._clock()
            self._n_due = min(self._n_due + self._share, 1.0)
            is_idle = self._unencoded is None and now >= self._rest_until
            is_of_share = self._n_due >= 1 and is_idle
            if not is_of_share and now < self._next_sample_at:
                return False
            self._n_due -= is_of_share
            self._next_sample_at = now + _SAMPLE_S
            return True

    def _is_due(self) -> bool:
        """Return whether a failure may be captured now; double the wait for the next.

        The views of the first failures of an incident are the most useful ones: the
        views of later failures must not push them out of the store.
        """
        with self._lock:
            now = self._clock()
            if now < self._next_at:
                return False
            if now - self._next_at > _MAX_INTERVAL_S:
                self._interval_s = _MIN_INTERVAL_S
            self._next_at = now + self._interval_s
            self._interval_s = min(2 * self._interval_s, _MAX_INTERVAL_S)
            return True

    def _encode(self, captured: CapturedView) -> bytes:
        began = self._clock()
        try:
            return captured.encode()
        finally:
            ended = self._clock()
            with self._lock:
                self._rest_until = ended + _REST * (ended - began)
                self._next_at = max(self._next_at, self._rest_until)
                if self._unencoded is captured:
                    self._unencoded = None


@contextmanager
def _log_errors() -> Iterator[None]:
    """Log an error and continue: a decision does not depend on its view."""
    try:
        yield
    except Exception:
        LOG.exception("The view of a decision was not captured")
