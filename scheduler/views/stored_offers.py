# SPDX-License-Identifier: Apache-2.0
"""Answers of Placement that a decision read, as frames, and from frames."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from ..candidates import CandidatesAnswer, CandidatesQuery
from ..errors import PlacementError
from ..placement.answers import read_candidates
from ..placement.cache import CachedOffer
from .frames import Frame, UnreadableView, array_data, checked, read_array

OFFER: Final = "offer"
REQUESTS: Final = "requests"
SUMMARIES: Final = "summaries"
#: Candidates of one frame.
_CHUNK: Final = 500


def frames_of_offers(offers: Sequence[CachedOffer]) -> Iterator[Frame]:
    """Yield the frames of answers, with what was claimed and refused since."""
    for number, offer in enumerate(offers):
        name, answer = str(number), offer.answer
        claimed = [[*key, amount] for key, amount in offer.claimed.items()]
        data = [
            [offer.query.params, offer.query.limit],
            [answer.query.params, answer.query.limit],
            array_data(offer.is_open),
            claimed,
            dict(offer.suffixes),
        ]
        yield Frame(OFFER, name, data)
        requests = iter(answer.candidates.allocation_requests)
        while some := list(itertools.islice(requests, _CHUNK)):
            yield Frame(REQUESTS, name, some)
        summaries = iter(answer.candidates.provider_summaries.items())
        while found := dict(itertools.islice(summaries, _CHUNK)):
            yield Frame(SUMMARIES, name, found)


def empty_offer(query: CandidatesQuery) -> CachedOffer:
    """Return the offer of an answer without candidates."""
    nothing = read_candidates({"allocation_requests": [], "provider_summaries": {}})
    answer = CandidatesAnswer(query, nothing, began=0, began_at=0.0)
    return CachedOffer(answer, query, np.zeros(0, np.bool_), claimed={})


class OffersReader:
    """Collects the frames of answers."""

    def __init__(self) -> None:
        self._offers: dict[str, Any] = {}
        self._requests: dict[str, list[Any]] = {}
        self._summaries: dict[str, dict[str, Any]] = {}

    def add(self, frame: Frame) -> bool:
        """Take a frame; return whether it is one of an answer."""
        if frame.kind == OFFER:
            self._offers[frame.name] = frame.data
        elif frame.kind == REQUESTS:
            checked(self._requests.setdefault(frame.name, []).extend, frame.data)
        elif frame.kind == SUMMARIES:
            checked(self._summaries.setdefault(frame.name, {}).update, frame.data)
        else:
            return False
        return True

    def offers(self) -> list[CachedOffer]:
        """Return what each answer offers.

        Raises
        ------
        UnreadableView
        """
        return [checked(self._offer, name) for name in self._offers]

    def _offer(self, name: str) -> CachedOffer:
        query, answered, is_open, claimed, suffixes = self._offers[name]
        body = {
            "allocation_requests": self._requests.get(name, []),
            "provider_summaries": self._summaries.get(name, {}),
        }
        try:
            candidates = read_candidates(body)
        except PlacementError as e:
            raise UnreadableView(f"it is damaged: {e}") from e
        answer = CandidatesAnswer(_query(*answered), candidates, began=0, began_at=0.0)
        return CachedOffer(
            answer,
            _query(*query),
            read_array(is_open, np.bool_, candidates.n_requests),
            {(str(uuid), str(of)): int(amount) for uuid, of, amount in claimed},
            suffixes={str(there): str(here) for there, here in suffixes.items()},
        )


def _query(params: Sequence[Sequence[str]], limit: int | None) -> CandidatesQuery:
    pairs = tuple((str(name), str(value)) for name, value in params)
    return CandidatesQuery(pairs, None if limit is None else int(limit))
