# SPDX-License-Identifier: Apache-2.0
"""Groups of a Placement query: what one provider, or one tree, must provide.

Several providers of a tree may serve the group without a suffix; one provider serves
each other group. :mod:`.flavor_groups` reads them from a flavor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from .flavor_and_image import set_field

if TYPE_CHECKING:
    from ...objects import RequestGroup


@dataclass(slots=True)
class QueryGroup:
    """One group of a query; `suffix` "" is the group that a tree serves.

    `member_of` holds sets of aggregates: a provider must be in one of each set.
    `required_any` holds sets of traits: a provider must have one of each set.
    """

    suffix: str = ""
    resources: dict[str, int] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    forbidden: set[str] = field(default_factory=set)
    required_any: set[frozenset[str]] = field(default_factory=set)
    member_of: list[frozenset[str]] = field(default_factory=list)
    forbidden_aggregates: set[str] = field(default_factory=set)
    in_tree: str | None = None

    @classmethod
    def read(cls, group: RequestGroup) -> QueryGroup:
        """Read the object in a request, of a port, PCI device or device profile."""
        return cls(
            suffix=set_field(group, "requester_id"),
            resources=dict(set_field(group, "resources") or {}),
            required=set(set_field(group, "required_traits") or ()),
            forbidden=set(set_field(group, "forbidden_traits") or ()),
            member_of=[frozenset(u) for u in set_field(group, "aggregates") or ()],
            forbidden_aggregates=set(set_field(group, "forbidden_aggregates") or ()),
            in_tree=set_field(group, "in_tree"),
        )

    def copy(self) -> QueryGroup:
        """Return a copy that shares nothing which can change."""
        return replace(
            self,
            resources=dict(self.resources),
            required=set(self.required),
            forbidden=set(self.forbidden),
            required_any=set(self.required_any),
            member_of=list(self.member_of),
            forbidden_aggregates=set(self.forbidden_aggregates),
        )

    @property
    def is_empty(self) -> bool:
        """Whether the group requests nothing; `in_tree` alone does not count."""
        return not (
            self.resources
            or self.required
            or self.forbidden
            or self.required_any
            or self.member_of
            or self.forbidden_aggregates
        )

    @property
    def finds_providers(self) -> bool:
        """Whether Placement can find a provider for it.

        Without resources, Placement 16.0 finds none by forbidden traits or by a tree.
        """
        amounts = any(self.resources.values())
        return bool(amounts or self.required or self.required_any or self.member_of)

    def strip_zeros(self) -> None:
        """Remove resources with amount 0."""
        self.resources = {name: n for name, n in self.resources.items() if n}

    def params(self) -> Iterator[tuple[str, str]]:
        """Yield the group's parameters, each one's values sorted."""
        if self.resources:
            pairs = sorted(f"{name}:{n}" for name, n in self.resources.items())
            yield f"resources{self.suffix}", ",".join(pairs)
        if traits := joined_traits(self.required, self.forbidden):
            yield f"required{self.suffix}", traits
        for any_of in self.required_any:
            yield f"required{self.suffix}", "in:" + ",".join(sorted(any_of))
        for aggregates in self.member_of:
            yield f"member_of{self.suffix}", "in:" + ",".join(sorted(aggregates))
        if self.forbidden_aggregates:
            uuids = ",".join(sorted(self.forbidden_aggregates))
            yield f"member_of{self.suffix}", f"!in:{uuids}"
        if self.in_tree:
            yield f"in_tree{self.suffix}", self.in_tree


def joined_traits(required: set[str], forbidden: set[str]) -> str:
    """Return traits in Placement's syntax: the required, then the forbidden ones."""
    return ",".join([*sorted(required), *(f"!{name}" for name in sorted(forbidden))])
