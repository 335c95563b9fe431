# SPDX-License-Identifier: Apache-2.0
"""What one pass of a decision read, by which it can be repeated later."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ..candidates import CandidatesQuery, Offer
from .claims.contention import Contention
from .record import DecisionRecord, ReplayKey

if TYPE_CHECKING:
    from .parts import Parts


@dataclasses.dataclass(slots=True, eq=False)
class Seen:
    """What a pass of a decision read, apart from the options.

    Attributes
    ----------
    at : float
        When it began, seconds since the epoch.
    return_alternates : bool
    contention : Contention
        Changed by the claims of the pass, and by no other decision.
    share : float
        Its share of refused claims at the beginning.
    n_claims : int
        Claim attempts of earlier passes.
    queries : sequence of CandidatesQuery
    offer : Offer or None
        None: a rebuild, or there was no candidate.
    revision : int or None
        Of the host table; None: no host was read.
    random_seed : int or None
        None: nothing was chosen at random.
    view : str or None
        The id of the view that is stored; None: none is.
    is_again : bool
        Whether a view of the pass before is stored, which is of no use then.
    """

    at: float
    return_alternates: bool
    contention: Contention
    share: float
    n_claims: int = 0
    queries: Sequence[CandidatesQuery] = ()
    offer: Offer | None = None
    revision: int | None = None
    random_seed: int | None = None
    view: str | None = None
    is_again: bool = False
    _rng: np.random.Generator | None = None

    @classmethod
    def begin(
        cls,
        parts: Parts,
        record: DecisionRecord,
        *,
        return_alternates: bool,
        repeated: ReplayKey | None = None,
    ) -> Seen:
        """Return what a pass that begins now has seen: nothing yet.

        Parameters
        ----------
        repeated : ReplayKey, optional
            That of the decision that is repeated.
        """
        if repeated is None:
            share, seed = parts.contention.share, None
        else:
            share, seed = repeated.contention, repeated.random_seed
        return cls(
            parts.clock(),
            return_alternates,
            Contention(share),
            share,
            n_claims=len(record.claims),
            random_seed=seed,
        )

    def rng(self, parent: np.random.Generator) -> np.random.Generator:
        """Return a generator of this pass alone; its seed is kept."""
        if self.random_seed is None:
            self.random_seed = int(parent.integers(2**62))
        if self._rng is None:
            self._rng = np.random.default_rng(self.random_seed)
        return self._rng

    def key(self, view: str) -> ReplayKey:
        """Return by what the pass can be repeated on a stored view."""
        return ReplayKey(
            view=view,
            at=self.at,
            return_alternates=self.return_alternates,
            random_seed=self.random_seed,
            contention=self.share,
            n_claims=self.n_claims,
        )


class KeepsViews(Protocol):
    """Stores the views on which some decisions are made."""

    def begin(self, parts: Parts, seen: Seen) -> None:
        """Capture the view of a decision that has read its hosts, if one is due."""

    def end(self, parts: Parts, seen: Seen, record: DecisionRecord) -> None:
        """Set `DecisionRecord.replay` if the view is stored, or is captured now."""


class KeepsNoViews:
    """Stores no views."""

    def begin(self, parts: Parts, seen: Seen) -> None:
        """Do nothing."""

    def end(self, parts: Parts, seen: Seen, record: DecisionRecord) -> None:
        """Do nothing."""
