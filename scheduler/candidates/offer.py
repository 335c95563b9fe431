# SPDX-License-Identifier: Apache-2.0
"""What a decision may choose from: the candidates for each of its queries.

    CandidatesSource ── get(query) ─▶ Offer ─┐
                     ── get(query) ─▶ Offer ─┴▶ DecisionOffer ─▶ hosts, ledger, filters

An offer never changes, though it may compute the candidates of a host only once they
are read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from .answer import AllocationRequest
from .query import CandidatesQuery
from .rows import CandidateRows, Codes, HostCandidates, HostLayout, ProviderCoder, Rows

#: The numbers of the second offer's candidates begin here, above all of the first's.
_STRIDE: Final = 1 << 40


class Offer(ABC):
    """The candidates that one query offers, by their numbers: a snapshot.

    Attributes
    ----------
    query : CandidatesQuery
    began : int
        A tick of the source's logical clock, before the candidates were read.
    began_at : float
        The same in seconds, on the source's clock.
    is_complete : bool
        False: a claim that they may already include is counted here as well, so that
        fewer candidates may be open than fit.
    is_truncated : bool
        Whether a limit may have hidden candidates.
    """

    query: CandidatesQuery
    began: int
    began_at: float
    is_complete: bool

    @property
    @abstractmethod
    def is_truncated(self) -> bool:
        """See above."""

    @property
    @abstractmethod
    def n_open(self) -> int:
        """The number of candidates that may be claimed, or more if it is not known.

        0: there are none.
        """

    @property
    @abstractmethod
    def roots(self) -> Collection[str]:
        """The UUIDs of root providers that have candidates: hosts, perhaps others."""

    @property
    @abstractmethod
    def n_roots(self) -> int:
        """The number of `roots`, which may be slow to list."""

    @abstractmethod
    def on_hosts(self, layout: HostLayout) -> HostCandidates:
        """Return the open candidates of the hosts that have a row."""

    @abstractmethod
    def numbers_of(self, root: str) -> Sequence[int]:
        """Return all candidates of a host, including those no longer available."""

    @abstractmethod
    def may_claim(self, number: int) -> bool:
        """Return whether no other request has claimed it since, and none was refused.

        False for a number that was never offered.
        """

    @abstractmethod
    def request(self, number: int) -> AllocationRequest:
        """Return one candidate as Placement returns it.

        Raises
        ------
        IndexError
            It was not offered.
        """

    @abstractmethod
    def groups(self) -> Collection[str]:
        """Return the request groups for which candidates have providers."""

    @abstractmethod
    def provider_codes(self, group: str, numbers: Rows, coder: ProviderCoder) -> Codes:
        """Return the code of the provider that each assigns to a request group."""

    @abstractmethod
    def root_of(self, provider_uuid: str) -> str | None:
        """Return a provider's root; None: it has no part in these candidates."""

    @abstractmethod
    def traits_of(self, provider_uuid: str) -> Collection[str]:
        """Return a provider's traits; none for one of another tree."""

    @abstractmethod
    def free(self, provider_uuid: str, resource_class: str) -> int:
        """Return capacity - used - claimed since; 0 where there is no inventory."""

    @abstractmethod
    def has_more_than(self, earlier: Offer) -> bool:
        """Return whether it has a candidate that `earlier` did not offer.

        False if it has none.
        """


class DecisionOffer:
    """The candidates of all queries of a request.

    For a host that is in two offers, the candidates of the first one come first.
    """

    def __init__(self, offers: Sequence[Offer]) -> None:
        self.offers = tuple(offers)

    @property
    def began(self) -> int:
        """The tick at which the first of them began."""
        return min(offer.began for offer in self.offers)

    @property
    def is_complete(self) -> bool:
        """Whether all are complete; see `Offer`."""
        return all(offer.is_complete for offer in self.offers)

    @property
    def is_truncated(self) -> bool:
        """Whether a limit may have hidden candidates."""
        return any(offer.is_truncated for offer in self.offers)

    @property
    def n_open(self) -> int:
        """The number of candidates that may be claimed; see `Offer`."""
        return sum(offer.n_open for offer in self.offers)

    @property
    def roots(self) -> Collection[str]:
        """The UUIDs of all root providers that have candidates."""
        if len(self.offers) == 1:
            return self.offers[0].roots
        return dict.fromkeys(root for offer in self.offers for root in offer.roots)

    @property
    def n_roots(self) -> int:
        """The number of `roots`."""
        return self.offers[0].n_roots if len(self.offers) == 1 else len(self.roots)

    def on_hosts(self, layout: HostLayout) -> HostCandidates:
        """Return the open candidates of the hosts that have a row."""
        return _HostsOfOffers(self, [offer.on_hosts(layout) for offer in self.offers])

    def numbers_of(self, root: str) -> Sequence[int]:
        """Return all candidates of a host, including those no longer available."""
        return [
            number + first
            for first, offer in self._numbered()
            for number in offer.numbers_of(root)
        ]

    def _numbered(self) -> list[tuple[int, Offer]]:
        return [(i * _STRIDE, offer) for i, offer in enumerate(self.offers)]

    def locate(self, number: int) -> tuple[Offer, int]:
        """Return the offer that a candidate belongs to, and its number there."""
        which, own = divmod(number, _STRIDE)
        if not 0 <= which < len(self.offers):
            raise IndexError(f"candidate {number} was not offered")
        return self.offers[which], own

    def may_claim(self, number: int) -> bool:
        """Return whether a candidate is still available; see `Offer`."""
        offer, own = self.locate(number)
        return offer.may_claim(own)

    def request(self, number: int) -> AllocationRequest:
        """Return one candidate as Placement returns it."""
        offer, own = self.locate(number)
        return offer.request(own)

    def groups(self) -> Collection[str]:
        """Return the request groups for which candidates have providers."""
        return dict.fromkeys(name for offer in self.offers for name in offer.groups())

    def provider_codes(self, group: str, numbers: Rows, coder: ProviderCoder) -> Codes:
        """Return the code of the provider that each assigns to a request group."""
        if len(self.offers) == 1:
            return self.offers[0].provider_codes(group, numbers, coder)
        codes = np.empty(len(numbers), np.int32)
        which, own = np.divmod(numbers, _STRIDE)
        for i, offer in enumerate(self.offers):
            mine = which == i
            codes[mine] = offer.provider_codes(group, own[mine], coder)
        return codes

    def root_of(self, provider_uuid: str) -> str | None:
        """Return a provider's root; None: it has no part in these candidates."""
        roots = (offer.root_of(provider_uuid) for offer in self.offers)
        return next((root for root in roots if root is not None), None)

    def free(self, provider_uuid: str, resource_class: str) -> int:
        """Return capacity - used - claimed since; 0 where there is no inventory."""
        # For a provider in both, usage is that of the newer one.
        for offer in reversed(self.offers):
            if offer.root_of(provider_uuid) is not None:
                return offer.free(provider_uuid, resource_class)
        return 0

    def has_more_than(self, earlier: DecisionOffer) -> bool:
        """Return whether it has a candidate that `earlier` did not offer."""
        pairs = zip(self.offers, earlier.offers, strict=True)
        return any(mine.has_more_than(before) for mine, before in pairs)


class _HostsOfOffers:
    """The candidates of several offers on the rows of a host table."""

    def __init__(self, offer: DecisionOffer, parts: Sequence[HostCandidates]) -> None:
        self._offer = offer
        self._parts = parts

    @property
    def rows(self) -> Rows:
        return np.concatenate([part.rows for part in self._parts])

    def groups(self) -> Collection[str]:
        return self._offer.groups()

    def within(self, rows: Rows) -> CandidateRows:
        found = [part.within(rows) for part in self._parts]
        numbers = [each.numbers + i * _STRIDE for i, each in enumerate(found)]
        return CandidateRows(
            np.concatenate([each.rows for each in found]),
            np.concatenate(numbers),
            self._offer,
        )
