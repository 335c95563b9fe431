# SPDX-License-Identifier: Apache-2.0
"""The constraints of a query, and the GETs for the hosts that each one alone leaves.

A list of providers is cheaper than allocation candidates. It covers all constraints
except those on the relation of several providers of a tree.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

import os_resource_classes as orc

from ..candidates import CandidatesQuery

Params = Sequence[tuple[str, str]]

#: Most candidates that are read for one constraint on several groups.
MAX_CANDIDATES: Final = 1000

_GROUP_PARAM = re.compile(r"(resources|required|member_of|in_tree)(.*)")
_NOT_SHARED = frozenset({orc.VCPU, orc.PCPU, orc.MEMORY_MB})
_TREE_DESCRIPTION = "the compute node that the request names"


class ConstraintKind(enum.StrEnum):
    """The subject of a constraint."""

    RESOURCE = "resource"
    TRAIT = "trait"
    AGGREGATE = "aggregate"
    TREE = "tree"
    GROUP = "group"
    SUBTREE = "subtree"
    POLICY = "policy"


@dataclass(frozen=True, slots=True)
class Constraint:
    """One part of a query.

    Attributes
    ----------
    description : str
        As text; an in_tree's value is omitted, as it identifies a host.
    params : sequence of (name, value)
        The query parameters of it alone.
    needs_candidates : bool
        Whether they are for allocation candidates, not resource providers.
    must_match_root : bool
        Whether the compute node's own provider must be in the answer.
    is_shareable : bool
        Whether a sharing provider can meet it for a host.
    """

    kind: ConstraintKind
    description: str
    params: Params
    needs_candidates: bool = False
    must_match_root: bool = False
    is_shareable: bool = False

    @property
    def path(self) -> str:
        """The path and query to GET, unless it `needs_candidates`."""
        return f"/resource_providers?{urlencode(self.params)}"

    @property
    def query(self) -> CandidatesQuery:
        """The query, if it `needs_candidates`."""
        limit = ("limit", str(MAX_CANDIDATES))
        return CandidatesQuery((limit, *self.params), MAX_CANDIDATES)


@dataclass(slots=True)
class _ParsedParams:
    """Parameters, those of groups by suffix."""

    groups: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    whole: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def of(cls, params: Params) -> _ParsedParams:
        parsed = cls()
        for name, value in params:
            if match := _GROUP_PARAM.fullmatch(name):
                mine = parsed.groups.setdefault(match[2], [])
                mine.append((match[1], value))
            else:
                parsed.whole.append((name, value))
        return parsed

    def values(self, name: str) -> list[str]:
        return [value for each, value in self.whole if each == name]

    def suffixed(self, suffixes: Iterable[str]) -> list[tuple[str, str]]:
        return [(f"{n}{s}", v) for s in suffixes for n, v in self.groups.get(s, ())]

    def with_resources(self, suffixes: Iterable[str]) -> list[str]:
        return [s for s in suffixes if "resources" in dict(self.groups.get(s, ()))]


def constraints(params: Params) -> list[Constraint]:
    """Return the constraints of a query.

    Each resource class, trait, set of aggregates and tree of the group without a suffix
    is one, and so is each trait of the root, each other group as a whole, each
    ``same_subtree``, and ``group_policy=isolate``.
    """
    parsed = _ParsedParams.of(params)
    found = list(_unsuffixed(parsed.groups.get("", [])))
    for value in parsed.values("root_required"):
        found += [_trait(trait, of_root=True) for trait in _traits(value)]
    for suffix, group in parsed.groups.items():
        if suffix:
            description = f"group {suffix} ({_description(group)})"
            found.append(
                Constraint(ConstraintKind.GROUP, description, group, is_shareable=True)
            )
    return [*found, *_subtrees(parsed), *_policy(parsed)]


def _unsuffixed(group: Params) -> Iterator[Constraint]:
    """Yield the constraints of the group without a suffix, which a tree serves."""
    classes = {
        pair.split(":")[0] for pair in dict(group).get("resources", "").split(",")
    }
    has_own = bool(classes & _NOT_SHARED)
    for name, value in sorted(group, key=lambda param: _ORDER.index(param[0])):
        if name == "resources":
            yield from map(_resource, value.split(","))
        elif name == "required":
            yield from map(_trait, _traits(value))
        elif name == "member_of":
            yield _aggregates(value, is_shareable=not has_own)
        else:
            yield Constraint(ConstraintKind.TREE, _TREE_DESCRIPTION, [(name, value)])


_ORDER: Final = ("resources", "required", "member_of", "in_tree")


def _resource(pair: str) -> Constraint:
    name = pair.split(":")[0]
    return Constraint(
        ConstraintKind.RESOURCE,
        _resource_description(pair),
        [("resources", pair)],
        is_shareable=name not in _NOT_SHARED,
    )


def _trait(trait: str, *, of_root: bool = False) -> Constraint:
    description = _trait_description(trait) + (
        " of the compute node itself" if of_root else ""
    )
    return Constraint(
        ConstraintKind.TRAIT,
        description,
        [("required", trait)],
        must_match_root=of_root,
        is_shareable=not of_root and not trait.startswith("!"),
    )


def _aggregates(value: str, *, is_shareable: bool) -> Constraint:
    is_forbidden = value.startswith("!")
    return Constraint(
        ConstraintKind.AGGREGATE,
        _aggregate_description(value),
        [("member_of", value)],
        # An aggregate of the root applies to its whole tree.
        must_match_root=is_forbidden,
        is_shareable=is_shareable and not is_forbidden,
    )


def _subtrees(parsed: _ParsedParams) -> Iterator[Constraint]:
    for value in parsed.values("same_subtree"):
        suffixes = value.split(",")
        if len(suffixes) < 2 or not parsed.with_resources(suffixes):
            continue  # it adds nothing to its group
        params = [
            *parsed.suffixed(suffixes),
            ("same_subtree", value),
            *(("group_policy", policy) for policy in parsed.values("group_policy")),
        ]
        description = f"groups {', '.join(suffixes)} in one subtree"
        yield Constraint(
            ConstraintKind.SUBTREE,
            description,
            params,
            needs_candidates=True,
            is_shareable=True,
        )


def _policy(parsed: _ParsedParams) -> Iterator[Constraint]:
    suffixes = parsed.with_resources(s for s in parsed.groups if s)
    if len(suffixes) > 1 and "isolate" in parsed.values("group_policy"):
        params = [*parsed.suffixed(suffixes), ("group_policy", "isolate")]
        description = f"groups {', '.join(suffixes)} from a provider each"
        yield Constraint(
            ConstraintKind.POLICY,
            description,
            params,
            needs_candidates=True,
            is_shareable=True,
        )


# -- descriptions ------------------------------------------------------------------


def _description(group: Params) -> str:
    return ", ".join(
        description
        for name, value in sorted(group, key=lambda param: _ORDER.index(param[0]))
        for description in _parameter_descriptions(name, value)
    )


def _parameter_descriptions(name: str, value: str) -> list[str]:
    if name == "resources":
        return [_resource_description(pair) for pair in value.split(",")]
    if name == "required":
        return [_trait_description(trait) for trait in _traits(value)]
    return [_aggregate_description(value) if name == "member_of" else _TREE_DESCRIPTION]


def _traits(value: str) -> list[str]:
    """Return single traits, "!" before a forbidden one; an any-of set stays one."""
    return [value] if value.startswith("in:") else value.split(",")


def _resource_description(pair: str) -> str:
    return pair.replace(":", " ")


def _trait_description(trait: str) -> str:
    if trait.startswith("in:"):
        return f"one of the traits {trait.removeprefix('in:').replace(',', ', ')}"
    if trait.startswith("!"):
        return f"trait {trait[1:]} forbidden"
    return f"trait {trait} required"


def _aggregate_description(value: str) -> str:
    uuids = value.removeprefix("!").removeprefix("in:").replace(",", ", ")
    kind = "aggregates" if "," in value else "aggregate"
    if value.startswith("!"):
        return f"outside the {kind} {uuids}"
    return f"in {'one of ' if ',' in value else ''}the {kind} {uuids}"
