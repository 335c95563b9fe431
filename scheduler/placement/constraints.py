# SPDX-License-Identifier: Apache-2.0
"""The constraints of a query for allocation candidates, one by one."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Params = Sequence[tuple[str, str]]

_GROUP_PARAM = re.compile(r"(resources|required|member_of|in_tree)(.*)")
_TREE_TEXT = "the compute node that the request names"


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
        The constraint as text; an in_tree's value is omitted: it identifies a host.
    params : sequence of (name, value)
        The query parameters of this constraint alone.
    needs_candidates : bool
        Whether it concerns the relation of several providers of a tree.
    must_match_root : bool
        Whether the compute node's own provider must be in the answer.
    """

    kind: ConstraintKind
    description: str
    params: Params
    needs_candidates: bool = False
    must_match_root: bool = False


def constraints(params: Params) -> list[Constraint]:
    """Return the constraints of a query.

    Each resource class, trait, set of aggregates and tree of the group without a suffix
    is one, and so is each trait of the root, each other group as a whole, each
    ``same_subtree``, and ``group_policy=isolate``.
    """
    groups: dict[str, list[tuple[str, str]]] = {}
    query_params: list[tuple[str, str]] = []
    for name, value in params:
        if match := _GROUP_PARAM.fullmatch(name):
            groups.setdefault(match[2], []).append((match[1], value))
        else:
            query_params.append((name, value))
    all_constraints = list(_of_tree(groups.pop("", [])))
    for name, value in query_params:
        if name == "root_required":
            all_constraints += [_of_root(part) for part in _parts("required", value)]
    for suffix, group in groups.items():
        text = ", ".join(part.text for part in _all_parts(group))
        all_constraints.append(
            Constraint(
                ConstraintKind.GROUP,
                f"group {suffix} ({text})",
                group,
            )
        )
    return [*all_constraints, *_between_groups(groups, query_params)]


@dataclass(frozen=True, slots=True)
class _Part:
    """One resource class, trait, set of aggregates or tree of a parameter's value."""

    kind: ConstraintKind
    name: str
    value: str
    text: str

    @property
    def is_forbidden(self) -> bool:
        return self.value.startswith("!")


def _of_tree(group: Params) -> Iterator[Constraint]:
    """Yield the constraints of the group without a suffix, which a tree serves."""
    for part in _all_parts(group):
        is_aggregate = part.kind is ConstraintKind.AGGREGATE
        yield Constraint(
            part.kind,
            part.text,
            [(part.name, part.value)],
            # An aggregate of the root applies to its whole tree.
            must_match_root=is_aggregate and part.is_forbidden,
        )


def _of_root(trait: _Part) -> Constraint:
    """Return the constraint that the root provider has or lacks a trait."""
    return Constraint(
        trait.kind,
        f"{trait.text} of the compute node itself",
        [(trait.name, trait.value)],
        must_match_root=True,
    )


def _between_groups(
    groups: Mapping[str, Params], of_query: Params
) -> Iterator[Constraint]:
    """Yield the constraints on the relation between groups with a suffix."""
    policies = [param for param in of_query if param[0] == "group_policy"]
    for name, value in of_query:
        suffixes = value.split(",")
        if name == "same_subtree" and len(suffixes) > 1:
            text = f"groups {', '.join(suffixes)} in one subtree"
            yield from _of_several(
                ConstraintKind.SUBTREE,
                text,
                groups,
                suffixes,
                [(name, value), *policies],
            )
    suffixes = [
        suffix for suffix, group in groups.items() if "resources" in dict(group)
    ]
    if len(suffixes) > 1 and ("group_policy", "isolate") in policies:
        text = f"groups {', '.join(suffixes)} from a provider each"
        yield from _of_several(ConstraintKind.POLICY, text, groups, suffixes, policies)


def _of_several(
    kind: ConstraintKind,
    text: str,
    groups: Mapping[str, Params],
    suffixes: Sequence[str],
    query_params: Params,
) -> Iterator[Constraint]:
    """Yield the constraint on several groups, unless none of them has resources."""
    params = [
        (f"{name}{suffix}", value)
        for suffix in suffixes
        for name, value in groups.get(suffix, ())
    ]
    if any(name.startswith("resources") for name, _ in params):
        yield Constraint(kind, text, [*params, *query_params], needs_candidates=True)


def _all_parts(group: Params) -> Iterator[_Part]:
    for name, value in sorted(group, key=lambda param: _ORDER.index(param[0])):
        yield from _parts(name, value)


_ORDER: Final = ("resources", "required", "member_of", "in_tree")


def _parts(name: str, value: str) -> Iterator[_Part]:
    if name == "resources":
        for pair in value.split(","):
            yield _Part(ConstraintKind.RESOURCE, name, pair, pair.replace(":", " "))
    elif name == "required":
        # Single traits, "!" before a forbidden one; an any-of set remains one part.
        for trait in [value] if value.startswith("in:") else value.split(","):
            yield _Part(ConstraintKind.TRAIT, name, trait, _trait_text(trait))
    elif name == "member_of":
        yield _Part(ConstraintKind.AGGREGATE, name, value, _aggregate_text(value))
    else:
        yield _Part(ConstraintKind.TREE, name, value, _TREE_TEXT)


def _trait_text(trait: str) -> str:
    if trait.startswith("in:"):
        return f"one of the traits {trait.removeprefix('in:').replace(',', ', ')}"
    if trait.startswith("!"):
        return f"trait {trait[1:]} forbidden"
    return f"trait {trait} required"


def _aggregate_text(value: str) -> str:
    uuids = value.removeprefix("!").removeprefix("in:").replace(",", ", ")
    kind = "aggregates" if "," in value else "aggregate"
    if value.startswith("!"):
        return f"outside the {kind} {uuids}"
    return f"in {'one of ' if ',' in value else ''}the {kind} {uuids}"
