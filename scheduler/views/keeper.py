# SPDX-License-Identifier: Apache-2.0
"""Which views are stored: of failures, and of a sample of the other decisions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..candidates import QueryOffer
from ..drivers.parts import Parts
from ..drivers.record import DecisionRecord, Outcome
from ..drivers.seen import Seen
from ..placement.cache import CachedOffer
from ..placement.memory import TableOffer
from ..placement.providers import ProviderView
from ..waiting import Spawner, ThreadSpawner
from .view import CapturedView

LOG = logging.getLogger(__name__)

#: Seconds between two views of failures: after each, the next one is twice as far.
_MIN_INTERVAL_S: Final = 1.0
_MAX_INTERVAL_S: Final = 60.0
#: Seconds between two views of decisions, whether or not they fail.
_SAMPLE_S: Final = 60.0
#: A failure's view follows after this many times the seconds that encoding the last one
#: took: at most 5 % of a core are spent on it, however large the cloud is.
_REST: Final = 20

#: Queues what encodes a view, to be stored; returns the id that the view will have.
AddView = Callable[[Callable[[], bytes]], str]


@dataclass(frozen=True, slots=True)
class _Kept:
    """The view that was captured last, without the hosts, which need megabytes."""

    id: str
    read: _Read
    #: When, in monotonic seconds; later, the store may have lost or removed it.
    at: float


@dataclass(frozen=True, slots=True)
class _Read:
    """What a view was made of."""

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

    def is_view_of(self, parts: Parts, seen: Seen) -> bool:
        """Return whether a view is exactly what a decision has read."""
        if self.revision != seen.revision or self.conf is not parts.conf:
            return False
        if seen.offer is not None:
            return all(map(self._has, seen.offer.offers))
        if self.providers is None:
            known = {offer.query for offer in self.offers if not offer.n_open}
            return known.issuperset(seen.queries)
        now = parts.candidates.provider_view()
        return now is not None and now.state is self.providers.state

    def _has(self, offer: QueryOffer) -> bool:
        if isinstance(offer, TableOffer):
            return self.providers is not None and self.providers.state is offer.state
        return isinstance(offer, CachedOffer) and any(
            offer.query == each.query
            and offer.answer is each.answer
            and offer.claimed == each.claimed
            and np.array_equal(offer.is_open, each.is_open)
            for each in self.offers
        )


class ViewKeeper:
    """Captures the views of decisions; thread-safe.

    Parameters
    ----------
    add : callable
        See `AddView`; what it is given is called in another thread.
    clock : callable
        Returns monotonic seconds.
    """

    def __init__(
        self,
        add: AddView,
        *,
        clock: Callable[[], float],
        spawner: Spawner | None = None,
    ) -> None:
        self._add = add
        self._clock = clock
        self._lock = (spawner or ThreadSpawner()).lock()
        self._next_at = self._next_sample_at = clock()
        self._interval_s = _MIN_INTERVAL_S
        self._last: _Kept | None = None

    def begin(self, parts: Parts, seen: Seen) -> None:
        """Capture the view of a decision that has read its hosts, if one is due."""
        with _logged():
            now = self._clock()
            if now < self._next_sample_at and not seen.is_again:
                return
            self._next_sample_at = now + _SAMPLE_S
            if not self._find(parts, seen):
                self._capture(parts, seen)

    def end(self, parts: Parts, seen: Seen, record: DecisionRecord) -> None:
        """Set `DecisionRecord.replay` if the view is stored, or is captured now."""
        with _logged():
            if seen.view is None and record.outcome is Outcome.NO_VALID_HOST:
                self._keep_failed(parts, seen)
            if seen.view is not None:
                record.replay = seen.key(seen.view)

    def _keep_failed(self, parts: Parts, seen: Seen) -> None:
        if seen.revision is None:  # no host was read, as there was no candidate
            seen.revision = parts.table.revision
        is_current = seen.revision == parts.table.revision
        if not self._find(parts, seen) and is_current and self._is_due():
            self._capture(parts, seen)

    def _find(self, parts: Parts, seen: Seen) -> bool:
        """Return whether the last view is that of a decision, too."""
        last = self._last
        if last is None or self._clock() - last.at > _SAMPLE_S:
            return False
        if not last.read.is_view_of(parts, seen):
            return False
        seen.view = last.id
        return True

    def _capture(self, parts: Parts, seen: Seen) -> None:
        """Capture a view, unless something has changed since it was read."""
        unanswered = () if seen.offer is not None else seen.queries
        captured = CapturedView.of(parts, offer=seen.offer, unanswered=unanswered)
        read = _Read.of(captured)
        if read.is_view_of(parts, seen):
            seen.view = self._add(lambda: self._encode(captured))
            self._last = _Kept(seen.view, read, self._clock())

    def _is_due(self) -> bool:
        """Return whether a failure may be captured; the next one has to wait longer.

        The first failures of an incident say most, and must not be pushed out of the
        store by the later ones.
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
        data = captured.encode()
        ended = self._clock()
        with self._lock:
            self._next_at = max(self._next_at, ended + _REST * (ended - began))
        return data


@contextmanager
def _logged() -> Iterator[None]:
    """Log what fails: a decision does not depend on its view."""
    try:
        yield
    except Exception:
        LOG.exception("The view of a decision was not captured")
