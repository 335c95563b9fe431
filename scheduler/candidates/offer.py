# SPDX-License-Identifier: Apache-2.0
"""What a decision may choose from: the candidates for each of its queries.

    CandidatesSource ── get(query) ─▶ QueryOffer ─┐
                     ── get(query) ─▶ QueryOffer ─┴▶ Offer ─▶ hosts, filters, claims

The offer of a query never changes, though it may compute the candidates of a host only
once they are read. An `Offer` belongs to one attempt to decide, and has in addition
what that attempt has reserved, and what Placement has refused it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from .answer import AllocationRequest, CandidatesQuery, resources_of
from .rows import CandidateRows, Codes, HostCandidates, HostLayout, ProviderCoder, Rows

#: The numbers of the second offer's candidates begin here, above all of the first's.
_STRIDE: Final = 1 << 40


class QueryOffer(ABC):
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
    def has_more_than(self, earlier: QueryOffer) -> bool:
        """Return whether it has a candidate that `earlier` did not offer.

        False if it has none.
        """


class Offer:
    """The candidates of all queries of a request; which of them are still available.

    For a host that is in two offers, the candidates of the first one come first.
    Candidates compete: what one instance of the request reserves of a provider is not
    available to the later ones.

    Parameters
    ----------
    offers : sequence of QueryOffer
        One a query, without what was claimed or refused before the query.

    Attributes
    ----------
    began : int
        The tick at which the first of them began.
    is_complete, is_truncated : bool
        Whether all are complete, and any is truncated; see `QueryOffer`.
    n_open, n_roots : int
        See `QueryOffer`.
    """

    def __init__(self, offers: Sequence[QueryOffer]) -> None:
        self.offers = tuple(offers)
        self.began = min(offer.began for offer in offers)
        self.is_complete = all(offer.is_complete for offer in offers)
        self.is_truncated = any(offer.is_truncated for offer in offers)
        self.n_open = sum(offer.n_open for offer in offers)
        self.n_roots = offers[0].n_roots if len(offers) == 1 else len(self.roots)
        self._refused: set[int] = set()
        self._reserved: Counter[tuple[str, str]] = Counter()

    def renewed(self) -> Offer:
        """Return the same candidates for another attempt: nothing is reserved."""
        return Offer(self.offers)

    @property
    def roots(self) -> Collection[str]:
        """The UUIDs of all root providers that have candidates."""
        if len(self.offers) == 1:
            return self.offers[0].roots
        return dict.fromkeys(root for offer in self.offers for root in offer.roots)

    def on_hosts(self, layout: HostLayout) -> HostCandidates:
        """Return the open candidates of the hosts that have a row."""
        hosts = [offer.on_hosts(layout) for offer in self.offers]
        return hosts[0] if len(hosts) == 1 else _HostsOfOffers(self, hosts)

    def numbers_of(self, root: str) -> Sequence[int]:
        """Return all candidates of a host, including those no longer available."""
        return [
            number + i * _STRIDE
            for i, offer in enumerate(self.offers)
            for number in offer.numbers_of(root)
        ]

    def locate(self, number: int) -> tuple[QueryOffer, int]:
        """Return the offer that a candidate belongs to, and its number there."""
        which, own = divmod(number, _STRIDE)
        if not 0 <= which < len(self.offers):
            raise IndexError(f"candidate {number} was not offered")
        return self.offers[which], own

    def is_open(self, number: int) -> bool:
        """Return whether a candidate was offered, and neither claimed nor refused."""
        if number in self._refused:
            return False
        offer, own = self.locate(number)
        return offer.may_claim(own)

    def next_candidate(
        self, node_uuid: str, among: Sequence[int] | None = None
    ) -> int | None:
        """Return the first open candidate of a host that what is reserved leaves.

        Parameters
        ----------
        among : sequence of int, optional
            The host's candidates that passed the filters; None: all of them.
        """
        for number in self.numbers_of(node_uuid) if among is None else among:
            if not self.is_open(number):
                continue
            # Without a reservation, what is open fits.
            if not self._reserved or all(
                self.free(provider, name) >= amount
                for provider, resources in resources_of(self.request(number)).items()
                for name, amount in resources.items()
            ):
                return number
        return None

    def reserve(self, number: int, sign: int = 1) -> None:
        """Reserve a candidate's resources, or with `sign` -1 release them."""
        for provider, resources in resources_of(self.request(number)).items():
            for name, amount in resources.items():
                self._reserved[provider, name] += sign * amount

    def release(self, number: int) -> None:
        """Release a candidate's resources."""
        self.reserve(number, -1)

    def mark_refused(self, number: int) -> None:
        """Exclude a candidate from now on: Placement refused it."""
        self._refused.add(number)

    def refuse_all(self, node_uuid: str) -> None:
        """Exclude all candidates of a host from now on."""
        self._refused.update(self.numbers_of(node_uuid))

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
            is_of_offer = which == i
            codes[is_of_offer] = offer.provider_codes(group, own[is_of_offer], coder)
        return codes

    def root_of(self, provider_uuid: str) -> str | None:
        """Return a provider's root; None: it has no part in these candidates."""
        roots = (offer.root_of(provider_uuid) for offer in self.offers)
        return next((root for root in roots if root is not None), None)

    def free(self, provider_uuid: str, resource_class: str) -> int:
        """Return capacity - used - claimed since - reserved; 0 without an inventory."""
        # For a provider in both, usage is that of the newer one.
        for offer in reversed(self.offers):
            if offer.root_of(provider_uuid) is not None:
                free = offer.free(provider_uuid, resource_class)
                return free - self._reserved[provider_uuid, resource_class]
        return 0

    def has_more_than(self, earlier: Offer) -> bool:
        """Return whether it has a candidate that `earlier` did not offer."""
        pairs = zip(self.offers, earlier.offers, strict=True)
        return any(offer.has_more_than(before) for offer, before in pairs)


class _HostsOfOffers:
    """The candidates of several offers on the rows of a host table."""

    def __init__(self, offer: Offer, parts: Sequence[HostCandidates]) -> None:
        self._offer = offer
        self._parts = parts

    @property
    def rows(self) -> Rows:
        return np.concatenate([part.rows for part in self._parts])

    def groups(self) -> Collection[str]:
        return self._offer.groups()

    def within(self, rows: Rows) -> CandidateRows:
        parts = [part.within(rows) for part in self._parts]
        numbers = [part.numbers + i * _STRIDE for i, part in enumerate(parts)]
        return CandidateRows(
            np.concatenate([part.rows for part in parts]),
            np.concatenate(numbers),
            self._offer,
        )
