# SPDX-License-Identifier: Apache-2.0
"""What a decision may choose from: the candidates for each of its queries.

    CandidatesQuery ─▶ AllocationCandidates ─▶ QueryOffer ─┐
    CandidatesQuery ─▶ AllocationCandidates ─▶ QueryOffer ─┴▶ Offer ─▶ filters, claims
                       (Placement's answer)

The offer of a query never changes, though it may compute the candidates of a host only
once they are read. An `Offer` belongs to one attempt to decide, and has in addition
what that attempt has reserved, and which candidates Placement has refused.
"""

from __future__ import annotations

import functools
import re
import threading
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import numpy as np
from cachetools import LRUCache

from .rows import (
    AllocationRequest,
    CandidateRows,
    Codes,
    HostCandidates,
    HostLayout,
    ProviderCoder,
    Rows,
)

#: The microversion of nova 34. Since 1.38 a claim must name a consumer type.
MICROVERSION: Final = "1.36"
#: The first microversion with any-of traits; older ones refuse ``in:``.
ANY_OF_MICROVERSION: Final = "1.39"

#: A parameter of a port's or device's group, whose suffix has a UUID of the request.
_UNIQUE_PARAM: Final = re.compile(
    r"(resources|required|member_of|in_tree)"
    r"([\w-]*[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}[\w-]*)"
)
#: The suffix of such a group in a canonical query, as long as a UUID or longer.
_CANONICAL_SUFFIX: Final = "00000000-0000-0000-0000-{:012d}"


@dataclass(frozen=True, slots=True)
class CandidatesQuery:
    """One GET /allocation_candidates; equal queries share a cached answer.

    Attributes
    ----------
    params : tuple of (name, value)
        Sorted; a name can occur more than once.
    limit : int or None
        Most candidates in the answer, also among `params`; None: all.
    """

    params: tuple[tuple[str, str], ...]
    limit: int | None = None

    @property
    def microversion(self) -> str:
        """The microversion of this GET; candidates are claimed with `MICROVERSION`."""
        is_newer = any(
            name.startswith("required") and value.startswith("in:")
            for name, value in self.params
        )
        return ANY_OF_MICROVERSION if is_newer else MICROVERSION

    @property
    def path(self) -> str:
        """The path and query to GET, below Placement's endpoint."""
        return _path(self.params)

    def canonical(self) -> tuple[CandidatesQuery, Mapping[str, str]]:
        """Return the same query with stable suffixes, and {its suffix: suffix here}.

        The suffix of a port or device is new in each request; without it, requests of
        one flavor share an answer. The suffixes are numbered in the order of the
        groups' contents, for equal contents in the order of the suffixes here.
        """
        groups: dict[str, list[tuple[str, str]]] = {}
        for name, value in self.params:
            if match := _UNIQUE_PARAM.fullmatch(name):
                groups.setdefault(match[2], []).append((match[1], value))
        if not groups:
            return self, {}
        ordered_suffixes = sorted(groups, key=lambda suffix: (groups[suffix], suffix))
        new_suffixes = {
            s: _CANONICAL_SUFFIX.format(n) for n, s in enumerate(ordered_suffixes)
        }
        params = [
            (kind + new_suffixes[suffix], value)
            for suffix, group in groups.items()
            for kind, value in group
        ]
        for name, value in self.params:
            if name == "same_subtree":
                suffixes = [new_suffixes.get(s, s) for s in value.split(",")]
                params.append((name, ",".join(sorted(suffixes))))
            elif not _UNIQUE_PARAM.fullmatch(name):
                params.append((name, value))
        query = CandidatesQuery(tuple(sorted(params)), self.limit)
        return query, {new: old for old, new in new_suffixes.items()}

    def unlimited(self) -> CandidatesQuery:
        """Return the same query without a limit."""
        return CandidatesQuery(
            tuple(param for param in self.params if param[0] != "limit")
        )


# Encoding takes longer than all else that a cached answer needs.
@functools.lru_cache(maxsize=1024)
def _path(params: tuple[tuple[str, str], ...]) -> str:
    return f"/allocation_candidates?{urlencode(params)}"


_T = TypeVar("_T")

#: The most entries of a `DerivedData`: rows, mappings and codes, for the present state
#: of the hosts and for the previous one.
_MAX_DERIVED: Final = 6


class DerivedData:
    """A small cache of data that readers derive from candidates."""

    def __init__(self) -> None:
        self._data: LRUCache[Hashable, Any] = LRUCache(_MAX_DERIVED)
        self._lock = threading.RLock()  # `make` may itself derive something

    def get(self, token: Hashable, make: Callable[[], _T]) -> _T:
        """Return the data for `token`; call `make` once if it is not cached."""
        with self._lock:
            if token not in self._data:
                self._data[token] = make()
            data: _T = self._data[token]
            return data


#: {(provider UUID, resource class): amount}
Amounts = Mapping[tuple[str, str], int]


def resources_of(request: AllocationRequest) -> dict[str, Mapping[str, int]]:
    """Return {provider UUID: {resource class: amount}} of an allocation request."""
    allocations = request["allocations"]
    return {uuid: part["resources"] for uuid, part in allocations.items()}


def amounts_by_class(request: AllocationRequest) -> dict[str, dict[str, int]]:
    """Return {resource class: {provider UUID: amount}} of an allocation request."""
    amounts = defaultdict[str, dict[str, int]](dict)
    for provider, resources in resources_of(request).items():
        for name, amount in resources.items():
            amounts[name][provider] = amount
    return amounts


@dataclass(frozen=True, slots=True, eq=False)
class AllocationCandidates:
    """The candidates of one answer of Placement.

    Attributes
    ----------
    allocation_requests : sequence of mapping, length n_requests
        In Placement's order, as they were parsed from the answer.
    provider_summaries : mapping
        Provider UUID to Placement's summary, for every provider of each tree involved.
    by_host : mapping
        Root provider UUID to the indices of its requests, in Placement's order. A
        sharing provider is a root too: only the caller knows which roots are hosts.
    derived : DerivedData
        What readers derived from the candidates, by tokens such as "the rows of table
        layout 7".
    """

    allocation_requests: Sequence[AllocationRequest]
    provider_summaries: Mapping[str, Mapping[str, Any]]
    by_host: Mapping[str, Sequence[int]]
    derived: DerivedData = field(default_factory=DerivedData, repr=False)

    @property
    def n_requests(self) -> int:
        """The number of allocation requests."""
        return len(self.allocation_requests)

    def free(self, provider_uuid: str, resource_class: str) -> int:
        """Return capacity - used in the class's unit; 0 where there is no inventory."""
        summary = self.provider_summaries.get(provider_uuid, {})
        resource = summary.get("resources", {}).get(resource_class)
        return int(resource["capacity"] - resource["used"]) if resource else 0


@dataclass(frozen=True, slots=True, eq=False)
class CandidatesAnswer:
    """The answer to one query, and when its GET began.

    Attributes
    ----------
    began : int
        When its GET began, by the cache's logical clock.
    began_at : float
        The same in seconds, by the cache's clock.
    is_truncated : bool
        Whether Placement may have more candidates than the query's limit.
    """

    query: CandidatesQuery
    candidates: AllocationCandidates
    began: int
    began_at: float
    is_truncated: bool = field(init=False)

    def __post_init__(self) -> None:
        limit = self.query.limit
        is_truncated = limit is not None and self.candidates.n_requests >= limit
        object.__setattr__(self, "is_truncated", is_truncated)


#: An `Offer` numbers candidate i of its k-th `QueryOffer` k * _STRIDE + i.
_STRIDE: Final = 1 << 40


class QueryOffer(ABC):
    """The candidates that one query offers, by their numbers: a snapshot.

    Attributes
    ----------
    query : CandidatesQuery
    began : int
        A time before the candidates were read, by the source's logical clock.
    began_at : float
        The same in seconds, by the source's clock.
    is_complete : bool
        False: a claim that the candidates may already include is counted once more, so
        that fewer candidates may be open than fit.
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
        """Whether a limit may have hidden candidates."""

    @property
    @abstractmethod
    def n_open(self) -> int:
        """The number of candidates that may be claimed, or an upper bound of it.

        0: there are none.
        """

    @property
    @abstractmethod
    def roots(self) -> Collection[str]:
        """The UUIDs of root providers with candidates: hosts, and sharing providers."""

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
        """Return whether a candidate was not claimed by another request, nor refused.

        False for a number that was never offered.
        """

    @abstractmethod
    def request(self, number: int) -> AllocationRequest:
        """Return one candidate as Placement returns it.

        Raises
        ------
        IndexError
            The candidate was not offered.
        """

    @abstractmethod
    def groups(self) -> Collection[str]:
        """Return the request groups for which candidates have providers."""

    @abstractmethod
    def provider_codes(self, group: str, numbers: Rows, coder: ProviderCoder) -> Codes:
        """Return the code of each candidate's provider for a request group."""

    @abstractmethod
    def root_of(self, provider_uuid: str) -> str | None:
        """Return a provider's root; None: it has no part in these candidates."""

    @abstractmethod
    def traits_of(self, provider_uuid: str) -> Collection[str]:
        """Return a provider's traits; none if it has no part in these candidates."""

    @abstractmethod
    def free(self, provider_uuid: str, resource_class: str) -> int:
        """Return capacity - used - claimed since; 0 where there is no inventory."""

    @abstractmethod
    def has_more_than(self, earlier: QueryOffer) -> bool:
        """Return whether this offer has a candidate that `earlier` did not offer.

        False if this offer has no open candidate.
        """


class Offer:
    """The candidates of all queries of a request; which of them are still available.

    For a host that is in two offers, the candidates of the first one come first.
    Candidates compete: what one instance of the request reserves of a provider is not
    available to the later ones.

    Parameters
    ----------
    offers : sequence of QueryOffer
        One for each query, without candidates claimed or refused before the query.

    Attributes
    ----------
    began : int
        When the first of the offers began, by the logical clock.
    is_complete, is_truncated : bool
        Whether all offers are complete, and whether any is truncated; see `QueryOffer`.
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
        index, number_in_offer = divmod(number, _STRIDE)
        if not 0 <= index < len(self.offers):
            raise IndexError(f"candidate {number} was not offered")
        return self.offers[index], number_in_offer

    def is_open(self, number: int) -> bool:
        """Return whether a candidate was offered, and neither claimed nor refused."""
        if number in self._refused:
            return False
        offer, number_in_offer = self.locate(number)
        return offer.may_claim(number_in_offer)

    def next_candidate(
        self, node_uuid: str, among: Sequence[int] | None = None
    ) -> int | None:
        """Return a host's first open candidate that fits beside all reservations.

        Parameters
        ----------
        among : sequence of int, optional
            The host's candidates that passed the filters; None: all of them.
        """
        for number in self.numbers_of(node_uuid) if among is None else among:
            if not self.is_open(number):
                continue
            # Without a reservation, every open candidate fits.
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
        offer, number_in_offer = self.locate(number)
        return offer.request(number_in_offer)

    def groups(self) -> Collection[str]:
        """Return the request groups for which candidates have providers."""
        return dict.fromkeys(name for offer in self.offers for name in offer.groups())

    def provider_codes(self, group: str, numbers: Rows, coder: ProviderCoder) -> Codes:
        """Return the code of each candidate's provider for a request group."""
        if len(self.offers) == 1:
            return self.offers[0].provider_codes(group, numbers, coder)
        codes = np.empty(len(numbers), np.int32)
        indices, numbers_in_offer = np.divmod(numbers, _STRIDE)
        for i, offer in enumerate(self.offers):
            is_of_offer = indices == i
            codes[is_of_offer] = offer.provider_codes(
                group, numbers_in_offer[is_of_offer], coder
            )
        return codes

    def root_of(self, provider_uuid: str) -> str | None:
        """Return a provider's root; None: it has no part in these candidates."""
        roots = (offer.root_of(provider_uuid) for offer in self.offers)
        return next((root for root in roots if root is not None), None)

    def free(self, provider_uuid: str, resource_class: str) -> int:
        """Return capacity - used - claimed since - reserved; 0 without an inventory."""
        # If several offers have the provider, the newest one knows its usage best.
        for offer in reversed(self.offers):
            if offer.root_of(provider_uuid) is not None:
                free = offer.free(provider_uuid, resource_class)
                return free - self._reserved[provider_uuid, resource_class]
        return 0

    def has_more_than(self, earlier: Offer) -> bool:
        """Return whether this offer has a candidate that `earlier` did not offer."""
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
