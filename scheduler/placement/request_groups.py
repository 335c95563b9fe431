# SPDX-License-Identifier: Apache-2.0
"""Groups of a Placement query: what one provider, or one tree, has to give.

The group without a suffix may be served by several providers of a tree; each other
group by one provider.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import os_resource_classes as orc

#: Suffixes as Placement takes them since microversion 1.33.
_EXTRA_SPEC = re.compile(r"(resources|trait)([a-zA-Z0-9_-]{1,64})?:(.*)")
_GROUP_POLICIES = ("none", "isolate")


@dataclass(slots=True)
class RequestGroup:
    """One group of a query; `suffix` "" is the group that a tree serves.

    `member_of` holds sets of aggregates: a provider is in one of each set.
    """

    suffix: str = ""
    resources: dict[str, int] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    forbidden: set[str] = field(default_factory=set)
    member_of: list[frozenset[str]] = field(default_factory=list)
    forbidden_aggregates: set[str] = field(default_factory=set)
    in_tree: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the group asks for nothing; a tree alone asks for nothing of it."""
        return not (
            self.resources
            or self.required
            or self.forbidden
            or self.member_of
            or self.forbidden_aggregates
        )

    def strip_zeros(self) -> None:
        """Forget resources of which 0 is asked."""
        self.resources = {name: n for name, n in self.resources.items() if n}

    def params(self) -> Iterator[tuple[str, str]]:
        """Yield the group's parameters, each one's values sorted."""
        if self.resources:
            pairs = sorted(f"{name}:{n}" for name, n in self.resources.items())
            yield f"resources{self.suffix}", ",".join(pairs)
        if traits := joined_traits(self.required, self.forbidden):
            yield f"required{self.suffix}", traits
        for aggregates in self.member_of:
            yield f"member_of{self.suffix}", "in:" + ",".join(sorted(aggregates))
        if self.forbidden_aggregates:
            uuids = ",".join(sorted(self.forbidden_aggregates))
            yield f"member_of{self.suffix}", f"!in:{uuids}"
        if self.in_tree:
            yield f"in_tree{self.suffix}", self.in_tree


def joined_traits(required: set[str], forbidden: set[str]) -> str:
    """Return traits as Placement takes them: the required, then the forbidden ones."""
    return ",".join([*sorted(required), *(f"!{name}" for name in sorted(forbidden))])


@dataclass(slots=True)
class FlavorGroups:
    """What a flavor's extra specs ask of Placement directly.

    `ignored` has an extra spec and the reason for each that cannot be meant.
    """

    groups: dict[str, RequestGroup] = field(default_factory=dict)
    policy: str | None = None
    ignored: list[tuple[str, str]] = field(default_factory=list)

    def group(self, suffix: str) -> RequestGroup:
        """Return a group, a new one where there is none of that suffix."""
        return self.groups.setdefault(suffix, RequestGroup(suffix))


def flavor_groups(extra_specs: Mapping[str, str]) -> FlavorGroups:
    """Return the groups of ``resources[S]:``, ``trait[S]:`` and ``group_policy``.

    What cannot be meant is left out, as in nova 34: an unknown resource class, an
    amount that is no number of at least 0, a trait that is neither required nor
    forbidden. All other extra specs mean nothing here.
    """
    found = FlavorGroups()
    for key, value in extra_specs.items():
        if key == "group_policy":
            problem = _read_policy(found, value)
        elif match := _EXTRA_SPEC.fullmatch(key):
            kind, suffix, name = match.groups()
            read = _read_resource if kind == "resources" else _read_trait
            problem = read(found, suffix or "", name, value)
        else:
            continue
        if problem:
            found.ignored.append((f"{key}={value}", problem))
    return found


def _read_policy(found: FlavorGroups, value: str) -> str | None:
    if value not in _GROUP_POLICIES:
        return "it must be none or isolate"
    found.policy = value
    return None


def _read_resource(
    found: FlavorGroups, suffix: str, name: str, value: str
) -> str | None:
    if name not in orc.STANDARDS and not name.startswith(orc.CUSTOM_NAMESPACE):
        return "its resource class is no standard one and does not start with CUSTOM_"
    amount = _amount(value)
    if amount is None:
        return "it must be a number of at least 0"
    found.group(suffix).resources[name] = amount
    return None


def _amount(value: str) -> int | None:
    try:
        amount = int(value)
    except ValueError:
        return None
    return amount if amount >= 0 else None


def _read_trait(found: FlavorGroups, suffix: str, name: str, value: str) -> str | None:
    if value == "required":
        found.group(suffix).required.add(name)
    elif value == "forbidden":
        found.group(suffix).forbidden.add(name)
    else:
        return "it must be required or forbidden"
    return None
