# SPDX-License-Identifier: Apache-2.0
"""A view: captured without copies, encoded as bytes, and decoded again.

A view has the host table, the providers, and Placement's answers that a decision read.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Self

import numpy as np
from oslo_config import cfg

from ... import __version__
from ..candidates import CandidatesAnswer, CandidatesQuery, Offer
from ..drivers.parts import Parts
from ..errors import PlacementError
from ..hosts import Columns, HostTable, TableImage
from ..placement.answers import read_candidates
from ..placement.cache import CachedOffer
from ..placement.memory import TableOffer
from ..placement.providers import ProviderView
from ..sources.report_columns import load_columns
from .frames import (
    Frame,
    UnreadableView,
    array_data,
    checked,
    read_array,
    read_frames,
    write_frames,
)
from .options import OptionValues, set_options
from .stored_hosts import HostsReader, frames_of_hosts
from .stored_providers import ProvidersReader, frames_of_providers

OFFER: Final = "offer"
REQUESTS: Final = "requests"
SUMMARIES: Final = "summaries"
#: The maximum number of candidates in one frame.
_CHUNK: Final = 500


def frames_of_offers(offers: Sequence[CachedOffer]) -> Iterator[Frame]:
    """Yield the frames of Placement's answers, and of later claims and refusals."""
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
        while chunk := list(itertools.islice(requests, _CHUNK)):
            yield Frame(REQUESTS, name, chunk)
        summaries = iter(answer.candidates.provider_summaries.items())
        while part := dict(itertools.islice(summaries, _CHUNK)):
            yield Frame(SUMMARIES, name, part)


def empty_offer(query: CandidatesQuery) -> CachedOffer:
    """Return the offer of an answer without candidates."""
    no_candidates = read_candidates(
        {"allocation_requests": [], "provider_summaries": {}}
    )
    answer = CandidatesAnswer(query, no_candidates, began=0, began_at=0.0)
    return CachedOffer(answer, query, np.zeros(0, np.bool_), claimed={})


class OffersReader:
    """Collects the frames of Placement's answers."""

    def __init__(self) -> None:
        self._offers: dict[str, Any] = {}
        self._requests: dict[str, list[Any]] = {}
        self._summaries: dict[str, dict[str, Any]] = {}

    def add(self, frame: Frame) -> bool:
        """Take a frame; return whether it belongs to an answer."""
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
        """Return the offer of each answer.

        Raises
        ------
        UnreadableView
            The frames are damaged.
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
            {
                (str(uuid), str(resource_class)): int(amount)
                for uuid, resource_class, amount in claimed
            },
            suffixes={
                str(canonical_suffix): str(query_suffix)
                for canonical_suffix, query_suffix in suffixes.items()
            },
        )


def _query(params: Sequence[Sequence[str]], limit: int | None) -> CandidatesQuery:
    pairs = tuple((str(name), str(value)) for name, value in params)
    return CandidatesQuery(pairs, None if limit is None else int(limit))


_HEADER: Final = "view"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class CapturedView:
    """The state of a scheduler at one revision; it does not change.

    Attributes
    ----------
    at : float
        The time of the capture, seconds since the epoch.
    tie_seed : int
        The seed of the order of hosts of equal weight.
    providers : ProviderView or None
        None: the providers are not in memory; only `offers` have data of Placement.
    are_zones_checked : bool
        Whether the sender of requests has checked that their availability zone exists.
    unknowns : sequence of str
        What the source of hosts could not report at that time, such as aggregates.
    offers : sequence of CachedOffer
        The answers that one decision read.
    is_reporting, has_aggregates : bool
        As of the source of hosts.
    """

    image: TableImage
    columns: Columns
    at: float
    tie_seed: int
    conf: cfg.ConfigOpts
    are_zones_checked: bool
    unknowns: Sequence[str]
    providers: ProviderView | None
    offers: Sequence[CachedOffer] = ()
    is_reporting: bool = True
    has_aggregates: bool = True

    @classmethod
    def of(
        cls,
        parts: Parts,
        *,
        offer: Offer | None = None,
        unanswered: Sequence[CandidatesQuery] = (),
    ) -> Self:
        """Return the view of the current state, with the candidates of a decision.

        Parameters
        ----------
        offer : Offer, optional
            The candidates. None: the decision read none; the providers are captured in
            their current state.
        unanswered : sequence of CandidatesQuery
            The queries that Placement answered with no candidate.
        """
        read_offers = () if offer is None else offer.offers
        cached = [offer for offer in read_offers if isinstance(offer, CachedOffer)]
        providers = parts.candidates.provider_view()
        states = [offer.state for offer in read_offers if isinstance(offer, TableOffer)]
        if providers is not None and states:
            providers = dataclasses.replace(providers, state=states[-1])
        if providers is None:
            cached += [empty_offer(query) for query in unanswered]
        return cls(
            parts.table.image(),
            parts.table.columns,
            parts.clock(),
            parts.tie_seed,
            parts.conf,
            parts.source.are_zones_checked,
            tuple(parts.source.unknowns()),
            providers,
            cached,
            parts.source.is_reporting,
            parts.source.has_aggregates,
        )

    def encode(self) -> bytes:
        """Return the view as bytes; this takes some 100 ms for 10,000 hosts."""
        return write_frames(self._frames())

    def _frames(self) -> Iterator[Frame]:
        header = {
            "at": self.at,
            "tie_seed": self.tie_seed,
            "options": set_options(self.conf),
            "are_zones_checked": self.are_zones_checked,
            "unknowns": list(self.unknowns),
            "is_reporting": self.is_reporting,
            "has_aggregates": self.has_aggregates,
            "moorage": __version__,
        }
        yield Frame(_HEADER, "", header)
        yield from frames_of_hosts(self.image, self.columns)
        if self.providers is not None:
            yield from frames_of_providers(self.providers)
        yield from frames_of_offers(self.offers)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class StoredView:
    """A view that was read from bytes.

    Attributes
    ----------
    options : mapping
        Values by group and option, for `apply_options`.
    tie_seed, are_zones_checked, unknowns, is_reporting, has_aggregates
    providers, offers
        As in the `CapturedView`.
    """

    at: float
    tie_seed: int
    options: OptionValues
    are_zones_checked: bool
    unknowns: Sequence[str]
    is_reporting: bool
    has_aggregates: bool
    providers: ProviderView | None
    offers: Sequence[CachedOffer]
    _hosts: HostsReader

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the bytes of a view, which are not trusted.

        Raises
        ------
        UnreadableView
            The message is one line, to be appended to "… cannot be read: ".
        """
        header: Any = None
        hosts = HostsReader(load_columns())
        providers, offers = ProvidersReader(), OffersReader()
        for frame in read_frames(data):
            if frame.kind == _HEADER:
                header = frame.data
            elif not (
                hosts.add(frame) or providers.add(frame) or offers.add(frame)
            ):  # fmt: skip
                raise UnreadableView("it has parts that this Moorage does not know")
        if header is None:
            raise UnreadableView("it is truncated")
        return cls(
            *checked(_read_header, header), providers.view(), offers.offers(), hosts
        )

    def table(self, clock: Callable[[], float]) -> HostTable:
        """Return a new host table with the hosts of the view.

        Raises
        ------
        UnreadableView
            The view is damaged.
        """
        return self._hosts.table(clock)


def _read_header(
    header: Any,  # noqa: ANN401 - untrusted
) -> tuple[float, int, OptionValues, bool, Sequence[str], bool, bool]:
    options = {str(group): dict(values) for group, values in header["options"].items()}
    return (
        float(header["at"]),
        int(header["tie_seed"]),
        options,
        bool(header["are_zones_checked"]),
        [str(text) for text in header["unknowns"]],
        # Views of earlier builds lack them.
        bool(header.get("is_reporting", True)),
        bool(header.get("has_aggregates", True)),
    )
