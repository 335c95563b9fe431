# SPDX-License-Identifier: Apache-2.0
"""Whether a cached allocation candidate still has its required traits and aggregates.

Placement checks them in a query for candidates, but not in a claim: since the answer
was cached, a candidate's provider may have lost a required trait, gained a forbidden
one, or changed its aggregates.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import os_traits

from ..candidates import CandidatesQuery, QueryOffer
from ..errors import PlacementRejected, PlacementUnavailable
from .client import PlacementClient

#: Traits that every query names, and that need no check: nova-compute sets OWNER_NOVA
#: permanently, and COMPUTE_STATUS_DISABLED follows the state of the service, which the
#: host table has.
_UNCHECKED_TRAITS: Final = frozenset(
    {os_traits.OWNER_NOVA, os_traits.COMPUTE_STATUS_DISABLED}
)

_GROUP_PARAM: Final = re.compile(r"(?P<kind>required|member_of)(?P<suffix>.*)")
_NO_TRAITS: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class AggregateCondition:
    """Aggregates: a provider must be in one of them or, if forbidden, in none."""

    uuids: frozenset[str]
    is_forbidden: bool


@dataclass(frozen=True, slots=True)
class Conditions:
    """A query's conditions on providers other than amounts.

    Attributes
    ----------
    traits : mapping
        The names of required and of forbidden traits, by the query group's suffix.
    root_traits : frozenset of str
        The names of traits that the query requires or forbids of the root provider.
    aggregates : mapping
        The conditions on aggregates, by the query group's suffix.
    """

    traits: Mapping[str, frozenset[str]]
    root_traits: frozenset[str]
    aggregates: Mapping[str, Sequence[AggregateCondition]]


@functools.lru_cache(maxsize=256)
def conditions_of(query: CandidatesQuery) -> Conditions | None:
    """Return a query's conditions other than amounts; None: it has none."""
    traits: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
    aggregates: defaultdict[str, list[AggregateCondition]] = defaultdict(list)
    root_traits = _NO_TRAITS
    for name, value in query.params:
        if name == "root_required":
            root_traits |= _trait_names(value)
        elif (match := _GROUP_PARAM.fullmatch(name)) is None:
            continue
        elif match["kind"] == "member_of":
            uuids = value.removeprefix("!").removeprefix("in:").split(",")
            condition = AggregateCondition(frozenset(uuids), value.startswith("!"))
            aggregates[match["suffix"]].append(condition)
        elif names := _trait_names(value):
            traits[match["suffix"]] |= names
    if not (traits or root_traits or aggregates):
        return None
    return Conditions(dict(traits), root_traits, dict(aggregates))


def _trait_names(value: str) -> frozenset[str]:
    """Return the names in a parameter's value, without `_UNCHECKED_TRAITS`."""
    names = value.removeprefix("in:").split(",")
    return frozenset(name.removeprefix("!") for name in names) - _UNCHECKED_TRAITS


@dataclass(frozen=True, slots=True)
class ProviderReader:
    """Reads traits and aggregates from Placement, once for each provider."""

    client: PlacementClient
    global_request_id: str | None
    _read: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)

    def still_fits(self, offer: QueryOffer, number: int, root: str) -> bool:
        """Return whether a candidate still meets its query's conditions.

        The candidate no longer fits if any of its providers gained or lost a trait that
        the query names, even if another of its providers has the required traits.

        Parameters
        ----------
        number : int
            The candidate's number in the offer.
        root : str
            The UUID of the candidate's compute node.

        Raises
        ------
        PlacementError
            Placement could not be queried.
        """
        conditions = conditions_of(offer.query)
        if conditions is None:
            return True
        mappings = offer.request(number)["mappings"]
        try:
            for provider, names in _named_traits(conditions, mappings, root).items():
                traits_before = names.intersection(offer.traits_of(provider))
                if names & self._values(provider, "traits") != traits_before:
                    return False
            return all(
                self._is_member(_with_root(provider, offer, suffix), suffix_conditions)
                for suffix, suffix_conditions in conditions.aggregates.items()
                for provider in mappings.get(suffix, ())
            )
        except PlacementRejected:
            return False  # the provider was deleted

    def _is_member(
        self, providers: Iterable[str], conditions: Sequence[AggregateCondition]
    ) -> bool:
        """Return whether a provider's aggregates meet these conditions.

        Parameters
        ----------
        providers : iterable of str
            The UUID of the provider or, if the aggregates of the root apply to it too,
            of the provider and the root. One of them must meet all conditions that
            require aggregates, and none may be in a forbidden aggregate.
        """
        aggregates = [self._values(provider, "aggregates") for provider in providers]
        required = [c.uuids for c in conditions if not c.is_forbidden]
        forbidden = [c.uuids for c in conditions if c.is_forbidden]
        is_in_required = any(
            all(uuids & one_of for one_of in required) for uuids in aggregates
        )
        return is_in_required and not any(
            uuids & none_of for uuids in aggregates for none_of in forbidden
        )

    def _values(self, provider: str, kind: str) -> frozenset[str]:
        """Return a provider's "traits" or "aggregates", as `kind` says."""
        if (provider, kind) not in self._read:
            url = f"/resource_providers/{provider}/{kind}"
            body: Any = self.client.read(url, global_request_id=self.global_request_id)
            try:
                self._read[provider, kind] = frozenset(body[kind])
            except (KeyError, TypeError) as e:
                raise PlacementUnavailable(f"GET {url} returned no {kind}") from e
        return self._read[provider, kind]


def _named_traits(
    conditions: Conditions, mappings: Mapping[str, Sequence[str]], root: str
) -> Mapping[str, frozenset[str]]:
    """Return which traits the query names for each provider of a candidate."""
    named: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
    if conditions.root_traits:
        named[root] |= conditions.root_traits
    for suffix, names in conditions.traits.items():
        for provider in mappings.get(suffix, ()):
            named[provider] |= names
    return named


def _with_root(provider: str, offer: QueryOffer, suffix: str) -> Iterator[str]:
    """Yield a provider and, for the group without a suffix, the root of its tree.

    A whole tree serves that group, so the root's aggregates apply to all its providers.
    """
    yield provider
    root = offer.root_of(provider) or provider
    if not suffix and root != provider:
        yield root
