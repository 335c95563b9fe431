# SPDX-License-Identifier: Apache-2.0
"""A query for allocation candidates, parsed from the parameters of its GET."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, urlsplit

_GROUP_PARAM: Final = re.compile(
    r"(resources|required|member_of|in_tree)([A-Za-z0-9_-]{1,64})?"
)
_RESOURCE: Final = re.compile(r"([A-Z0-9_]+):([0-9]{1,10})")
_MAX_AMOUNT: Final = 0x7FFFFFFF  # Placement's; a database refuses more


class QueryNotCovered(Exception):
    """Raised for a query that only Placement itself can answer, or refuse.

    The query is malformed, has a parameter that is not known here, or names a trait or
    a resource class that the table does not know.
    """


@dataclass(slots=True)
class ProviderGroup:
    """What a request group requires of a provider or, for the suffix "", of a tree.

    Attributes
    ----------
    amounts : dict
        {resource class: amount}; empty: a provider is found by traits or aggregates.
    required : list of frozenset of str
        One trait of each set is required.
    member_of : list of frozenset of str
        Aggregate UUIDs: membership in one of each set is required.
    in_tree : str or None
        UUID of a provider in the tree that must provide `amounts`.
    """

    suffix: str
    amounts: dict[str, int] = field(default_factory=dict)
    required: list[frozenset[str]] = field(default_factory=list)
    forbidden: frozenset[str] = frozenset()
    member_of: list[frozenset[str]] = field(default_factory=list)
    forbidden_aggregates: frozenset[str] = frozenset()
    in_tree: str | None = None

    def add(self, name: str, value: str) -> None:
        """Add one parameter, given without its suffix."""
        match name:
            case "resources":
                self.amounts = _amounts(value)
            case "required":
                self._add_traits(value)
            case "member_of":
                self._add_aggregates(value)
            case _:
                self.in_tree = _uuid(value.strip())

    def _add_traits(self, value: str) -> None:
        if value.startswith("in:"):
            self.required.append(frozenset(_names(value[3:])))
            return
        required, forbidden = _traits(value)
        self.required += [frozenset([name]) for name in required]
        self.forbidden |= forbidden

    def _add_aggregates(self, value: str) -> None:
        without_prefix = value.removeprefix("!").removeprefix("in:")
        is_list = without_prefix != value.removeprefix("!")
        uuids = frozenset(
            map(_uuid, without_prefix.split(",") if is_list else [without_prefix])
        )
        if value.startswith("!"):
            self.forbidden_aggregates |= uuids
        else:
            self.member_of.append(uuids)


@dataclass(frozen=True, slots=True)
class ProviderQuery:
    """A query as Placement reads it; `parse` makes one.

    The limit is not a part of the query: candidates are created one tree at a time, so
    that their number costs nothing.

    Attributes
    ----------
    groups : tuple of ProviderGroup
    is_isolated : bool
        Whether each group with a suffix needs a provider of its own.
    root_required, root_forbidden : frozenset of str
        Traits of the tree's root provider.
    same_subtrees : tuple of frozenset of str
        Sets of suffixes: of the groups' providers, one is an ancestor of all others.
    """

    groups: tuple[ProviderGroup, ...]
    is_isolated: bool = False
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    same_subtrees: tuple[frozenset[str], ...] = ()

    @classmethod
    def parse(cls, params: Iterable[tuple[str, str]]) -> ProviderQuery:
        """Return the query of (name, value) parameters, in any order.

        Raises
        ------
        QueryNotCovered
            Placement would refuse the query, or it has an unknown parameter.
        """
        wide: dict[str, list[str]] = {}
        groups: dict[str, ProviderGroup] = {}
        for name, value in _effective(list(params)):
            if match := _GROUP_PARAM.fullmatch(name):
                suffix = match[2] or ""
                group = groups.setdefault(suffix, ProviderGroup(suffix))
                group.add(match[1], value)
            else:
                wide.setdefault(name, []).append(value)
        query = _with_wide(tuple(groups.values()), wide)
        _validate(query, wide)
        return query

    @classmethod
    def from_url(cls, url: str) -> ProviderQuery:
        """Return the query of a URL, which may be relative."""
        params = parse_qsl(urlsplit(url).query, keep_blank_values=True)
        return cls.parse(params)


def _effective(params: list[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    """Drop the parameters that Placement ignores.

    Before microversion 1.39, which only a query with any-of traits uses, the last
    `required` of a group replaces the others.
    """
    required_params = [
        (name, value) for name, value in params if name.startswith("required")
    ]
    if any(value.startswith("in:") for _, value in required_params):
        return params
    latest = dict(required_params)
    return [(n, v) for n, v in params if n not in latest] + list(latest.items())


def _with_wide(
    groups: tuple[ProviderGroup, ...], wide: Mapping[str, list[str]]
) -> ProviderQuery:
    """Return the query of groups and of the parameters that apply to it as a whole."""
    required, forbidden = frozenset[str](), frozenset[str]()
    for value in wide.get("root_required", ()):
        required, forbidden = _traits(value)
    return ProviderQuery(
        groups,
        wide.get("group_policy", [""])[0] == "isolate",
        required,
        forbidden,
        tuple(
            frozenset(suffix.strip() for suffix in value.split(","))
            for value in wide.get("same_subtree", ())
        ),
    )


def _validate(query: ProviderQuery, wide: Mapping[str, list[str]]) -> None:
    unknown = wide.keys() - {"limit", "group_policy", "root_required", "same_subtree"}
    _require(not unknown, f"unknown parameters {sorted(unknown)}")
    _require(len(wide.get("root_required", ())) < 2, "root_required is repeated")
    for policy in wide.get("group_policy", ()):
        _require(policy in ("none", "isolate"), f"group_policy={policy}")
    for limit in wide.get("limit", ()):
        _require(re.fullmatch("[1-9][0-9]*", limit), f"limit={limit}")
    n_suffixed = sum(bool(group.suffix) for group in query.groups)
    _require(n_suffixed < 2 or "group_policy" in wide, "no group_policy")
    conflict = query.root_required & query.root_forbidden
    _require(not conflict, f"{sorted(conflict)} both required and forbidden")
    _validate_groups(query)


def _validate_groups(query: ProviderQuery) -> None:
    suffixes = {group.suffix for group in query.groups}
    related = frozenset[str]().union(*query.same_subtrees)
    _require(related <= suffixes - {""}, "same_subtree with unknown suffixes")
    _require(any(group.amounts for group in query.groups), "no resources")
    for group in query.groups:
        _require(
            group.amounts or group.suffix in related,
            f"group {group.suffix!r} has no resources and is in no same_subtree",
        )
        is_possible = all(any_of - group.forbidden for any_of in group.required)
        _require(is_possible, "traits both required and forbidden")


def _require(condition: object, reason: str) -> None:
    if not condition:
        raise QueryNotCovered(reason)


def _amounts(value: str) -> dict[str, int]:
    amounts = {}
    for part in value.split(","):
        match = _RESOURCE.fullmatch(part)
        _require(match and 0 < int(match[2]) <= _MAX_AMOUNT, f"resources={value}")
        if match:
            amounts[match[1]] = int(match[2])
    return amounts


def _names(value: str) -> list[str]:
    names = [name.strip() for name in value.split(",")]
    _require(all(names), f"an empty name in {value!r}")
    _require(not any("!" in name for name in names), f"an unexpected ! in {value!r}")
    return names


def _traits(value: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the required and the forbidden traits of ``A,!B``."""
    traits = [name.strip() for name in value.split(",")]
    forbidden = [name[1:] for name in traits if name.startswith("!")]
    required = [name for name in traits if not name.startswith("!")]
    _names(",".join(required + forbidden))
    return frozenset(required), frozenset(forbidden)


def _uuid(value: str) -> str:
    """Return a UUID; raise QueryNotCovered unless it has the canonical form.

    Databases differ in how they compare UUIDs of other forms.
    """
    try:
        is_canonical = str(uuid.UUID(value)) == value
    except ValueError:
        is_canonical = False
    _require(is_canonical, f"{value!r} is no canonical UUID")
    return value
