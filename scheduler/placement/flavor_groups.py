# SPDX-License-Identifier: Apache-2.0
"""Groups of a Placement query that a flavor's extra specs name.

Those of nova are ``resources[S]:CLASS``, ``trait[S]:TRAIT`` and ``group_policy``; S is
the group's suffix. Beyond nova, in the words of Placement's own query:

- ``trait[S]:NAME=in:A,B``: a provider with one of the traits; NAME is free, it only
  tells several such sets apart;
- ``member_of[S]=in:UUID,UUID``, ``!in:UUID,UUID``, ``UUID`` or ``!UUID``: in one of
  these aggregates, or in none; ``member_of[S]:NAME`` where there are several;
- ``in_tree[S]=UUID``: in the tree of that provider.

What of nova's cannot be meant is left out, as nova does. What is only ours is refused:
a guest that has to be among certain hosts must not land elsewhere for a slip.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import os_resource_classes as orc
from oslo_utils import uuidutils

from ..errors import InvalidRequest, excerpt
from .query_groups import QueryGroup

#: Suffixes as Placement takes them since microversion 1.33.
_SUFFIX = "([a-zA-Z0-9_-]{1,64})?"
_OF_NOVA = re.compile(rf"(resources|trait){_SUFFIX}:(.*)")
_OF_OURS = re.compile(rf"(member_of|in_tree){_SUFFIX}(?::.*)?")
#: As in Placement's schema of traits.
_TRAIT = re.compile(r"[A-Z0-9_]{1,255}")
_GROUP_POLICIES = ("none", "isolate")
_ANY_OF = "in:"


@dataclass(slots=True)
class FlavorGroups:
    """What a flavor's extra specs ask of Placement directly.

    `ignored` has an extra spec and the reason for each that cannot be meant.
    """

    groups: dict[str, QueryGroup] = field(default_factory=dict)
    policy: str | None = None
    ignored: list[tuple[str, str]] = field(default_factory=list)

    def group(self, suffix: str) -> QueryGroup:
        """Return a group, a new one where there is none of that suffix."""
        return self.groups.setdefault(suffix, QueryGroup(suffix))


def flavor_groups(extra_specs: Mapping[str, str]) -> FlavorGroups:
    """Return the groups that extra specs name; all others mean nothing here.

    What cannot be meant is left out, as in nova 34: an unknown resource class, an
    amount that is no number of at least 0, a trait that is neither required nor
    forbidden, a group policy that is neither none nor isolate.

    Raises
    ------
    InvalidRequest
        An any-of trait, an aggregate or a tree is malformed, or a group has two trees.
    """
    found = FlavorGroups()
    for key, value in extra_specs.items():
        problem = None
        if key == "group_policy":
            problem = _read_policy(found, value)
        elif match := _OF_NOVA.fullmatch(key):
            kind, suffix, name = match.groups()
            read = _read_resource if kind == "resources" else _read_trait
            problem = read(found.group, suffix or "", name, value)
        elif match := _OF_OURS.fullmatch(key):
            kind, suffix = match.groups()
            set_on = _set_member_of if kind == "member_of" else _set_in_tree
            set_on(found.group(suffix or ""), key, value)
        if problem:
            found.ignored.append((f"{key}={value}", problem))
    return found


def _read_policy(found: FlavorGroups, value: str) -> str | None:
    if value not in _GROUP_POLICIES:
        return "it must be none or isolate"
    found.policy = value
    return None


#: Gives a group, which is made only for what can be meant.
_GroupOf = Callable[[str], QueryGroup]


def _read_resource(group: _GroupOf, suffix: str, name: str, value: str) -> str | None:
    if name not in orc.STANDARDS and not name.startswith(orc.CUSTOM_NAMESPACE):
        return "its resource class is no standard one and does not start with CUSTOM_"
    amount = _amount(value)
    if amount is None:
        return "it must be a number of at least 0"
    group(suffix).resources[name] = amount
    return None


def _amount(value: str) -> int | None:
    try:
        amount = int(value)
    except ValueError:
        return None
    return amount if amount >= 0 else None


def _read_trait(group: _GroupOf, suffix: str, name: str, value: str) -> str | None:
    if value == "required":
        group(suffix).required.add(name)
    elif value == "forbidden":
        group(suffix).forbidden.add(name)
    elif value.startswith(_ANY_OF):
        _add_any_of(group(suffix), f"trait{suffix}:{name}", value)
    else:
        return f"it must be required, forbidden or {_ANY_OF}TRAIT,TRAIT"
    return None


def _add_any_of(group: QueryGroup, key: str, value: str) -> None:
    traits = frozenset(_listed(value, _ANY_OF))
    if not all(map(_TRAIT.fullmatch, traits)):
        raise _malformed(key, value, f"{_ANY_OF} and traits with commas between them")
    if len(traits) == 1:
        group.required |= traits  # which every Placement understands
    else:
        group.required_any.add(traits)


def _set_member_of(group: QueryGroup, key: str, value: str) -> None:
    wanted = value.strip()
    uuids = frozenset(
        _uuid(key, value, listed, "in:UUID,UUID or !in:UUID,UUID, of aggregates")
        for listed in _listed(wanted.removeprefix("!"), _ANY_OF)
    )
    if wanted.startswith("!"):
        group.forbidden_aggregates |= uuids
    elif uuids not in group.member_of:
        group.member_of.append(uuids)


def _set_in_tree(group: QueryGroup, key: str, value: str) -> None:
    tree = _uuid(key, value, value, "the UUID of a resource provider")
    if group.in_tree not in (None, tree):
        raise _malformed(key, value, f"{group.in_tree}, as of another key, or left out")
    group.in_tree = tree


def _listed(value: str, prefix: str) -> list[str]:
    return [part.strip() for part in value.removeprefix(prefix).split(",")]


def _uuid(key: str, value: str, found: str, right: str) -> str:
    if not uuidutils.is_uuid_like(found.strip()):
        raise _malformed(key, value, right)
    return str(uuid.UUID(found.strip()))


def _malformed(key: str, value: str, right: str) -> InvalidRequest:
    return InvalidRequest(
        f"flavor.extra_specs[{excerpt(key)}] is {excerpt(value)}; it must be {right}"
    )
