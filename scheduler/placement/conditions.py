# SPDX-License-Identifier: Apache-2.0
"""Whether a cached allocation candidate still has its required traits and aggregates.

Placement checks them in a query for candidates, but not in a claim: a candidate of a
cached answer may have lost a required trait since, gained a forbidden one, or changed
aggregates.
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

#: Part of every query, and never read again: nova-compute sets the first permanently,
#: and the second follows its service, whose state the host table has.
_UNCHECKED_TRAITS: Final = frozenset(
    {os_traits.OWNER_NOVA, os_traits.COMPUTE_STATUS_DISABLED}
)

_GROUP_PARAM: Final = re.compile(r"(required|member_of)(.*)")
_NO_TRAITS: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class AggregateCondition:
    """Aggregates of which a provider must be in one, or in none."""

    uuids: frozenset[str]
    is_forbidden: bool


@dataclass(frozen=True, slots=True)
class Conditions:
    """A query's conditions on providers other than amounts.

    Attributes
    ----------
    traits : mapping
        Names by suffix of a query group, both required and forbidden ones.
    root_traits : frozenset of str
        The same for the root provider.
    aggregates : mapping
        By suffix.
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
            root_traits |= _names(value)
        elif (match := _GROUP_PARAM.fullmatch(name)) is None:
            continue
        elif match[1] == "member_of":
            uuids = value.removeprefix("!").removeprefix("in:").split(",")
            condition = AggregateCondition(frozenset(uuids), value.startswith("!"))
            aggregates[match[2]].append(condition)
        elif names := _names(value):
            traits[match[2]] |= names
    if not (traits or root_traits or aggregates):
        return None
    return Conditions(dict(traits), root_traits, dict(aggregates))


def _names(value: str) -> frozenset[str]:
    names = value.removeprefix("in:").split(",")
    return frozenset(name.removeprefix("!") for name in names) - _UNCHECKED_TRAITS


@dataclass(frozen=True, slots=True)
class ProviderReader:
    """Reads traits and aggregates of providers, each once."""

    client: PlacementClient
    global_request_id: str | None
    _read: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)

    def still_fits(self, offer: QueryOffer, number: int, root: str) -> bool:
        """Return whether a candidate still meets its query's conditions.

        If a provider gained or lost a trait that the query names, the candidate no
        longer fits, whatever other providers have.

        Parameters
        ----------
        root : str
            The candidate's compute node.

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
                before = names.intersection(offer.traits_of(provider))
                if names & self._values(provider, "traits") != before:
                    return False
            return all(
                self._is_member(_with_root(provider, offer, suffix), required)
                for suffix, required in conditions.aggregates.items()
                for provider in mappings.get(suffix, ())
            )
        except PlacementRejected:
            return False  # the provider was deleted

    def _is_member(
        self, providers: Iterable[str], conditions: Sequence[AggregateCondition]
    ) -> bool:
        """Return whether one provider is in all required aggregates, none in others.

        Several are a provider and its root, whose aggregates apply to the whole tree.
        """
        members = [self._values(provider, "aggregates") for provider in providers]
        required = [c.uuids for c in conditions if not c.is_forbidden]
        forbidden = [c.uuids for c in conditions if c.is_forbidden]
        is_in = any(all(uuids & wanted for wanted in required) for uuids in members)
        return is_in and not any(
            uuids & unwanted for uuids in members for unwanted in forbidden
        )

    def _values(self, provider: str, kind: str) -> frozenset[str]:
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
    """Yield a provider and, for the group that a whole tree serves, its root."""
    yield provider
    root = offer.root_of(provider) or provider
    if not suffix and root != provider:
        yield root
