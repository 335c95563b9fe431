# SPDX-License-Identifier: Apache-2.0
"""Groups of a Placement query that a flavor's extra specs define.

Those of nova are ``resources[S]:CLASS``, ``trait[S]:TRAIT`` and ``group_policy``; S is
the group's suffix. Extensions to nova, in the syntax of Placement's own query:

- ``trait[S]:NAME=in:A,B``: a provider with one of the traits; NAME is arbitrary and
  only distinguishes several such sets;
- ``member_of[S]=in:UUID,UUID``, ``!in:UUID,UUID``, ``UUID`` or ``!UUID``: in one of
  these aggregates, or in none; ``member_of[S]:NAME`` where there are several;
- ``in_tree[S]=UUID``: in the tree of that provider.

A malformed extra spec of nova's is ignored, as in nova. A malformed extension is an
error: a guest that must run on certain hosts must not land elsewhere due to a typo.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import os_resource_classes as orc
from oslo_utils import uuidutils

from ..errors import InvalidRequest, excerpt
from .groups import QueryGroup

#: Suffixes as Placement accepts them since microversion 1.33.
_SUFFIX = "([a-zA-Z0-9_-]{1,64})?"
_NOVA_KEY = re.compile(rf"(resources|trait){_SUFFIX}:(.*)")
_EXTENSION_KEY = re.compile(rf"(member_of|in_tree){_SUFFIX}(?::.*)?")
#: As in Placement's schema of traits.
_TRAIT = re.compile(r"[A-Z0-9_]{1,255}")
_GROUP_POLICIES = ("none", "isolate")
_ANY_OF = "in:"


@dataclass(slots=True)
class FlavorGroups:
    """What a flavor's extra specs request from Placement directly.

    `ignored` has each malformed extra spec and the reason.
    """

    groups: dict[str, QueryGroup] = field(default_factory=dict)
    policy: str | None = None
    ignored: list[tuple[str, str]] = field(default_factory=list)

    def group(self, suffix: str) -> QueryGroup:
        """Return the group with a suffix; add it if it does not exist."""
        return self.groups.setdefault(suffix, QueryGroup(suffix))


def flavor_groups(extra_specs: Mapping[str, str]) -> FlavorGroups:
    """Return the groups that extra specs define; other extra specs are skipped.

    Ignored, as in nova 34: an unknown resource class, an amount that is not a
    non-negative number, a trait that is neither required nor forbidden, a group policy
    that is neither none nor isolate.

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
        elif match := _NOVA_KEY.fullmatch(key):
            kind, suffix, name = match.groups()
            read = _read_resource if kind == "resources" else _read_trait
            problem = read(found.group, suffix or "", name, value)
        elif match := _EXTENSION_KEY.fullmatch(key):
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


#: Returns a group; called only for a valid extra spec, as it may add the group.
_GroupOf = Callable[[str], QueryGroup]


def _read_resource(group: _GroupOf, suffix: str, name: str, value: str) -> str | None:
    if name not in orc.STANDARDS and not name.startswith(orc.CUSTOM_NAMESPACE):
        return "its resource class is not standard and does not start with CUSTOM_"
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
        raise _malformed(key, value, f"{_ANY_OF} and traits separated by commas")
    if len(traits) == 1:
        group.required |= traits  # which every Placement supports
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
        raise _malformed(key, value, f"{group.in_tree}, as in another key, or absent")
    group.in_tree = tree


def _listed(value: str, prefix: str) -> list[str]:
    return [part.strip() for part in value.removeprefix(prefix).split(",")]


def _uuid(key: str, value: str, found: str, expected: str) -> str:
    if not uuidutils.is_uuid_like(found.strip()):
        raise _malformed(key, value, expected)
    return str(uuid.UUID(found.strip()))


def _malformed(key: str, value: str, expected: str) -> InvalidRequest:
    return InvalidRequest(
        f"flavor.extra_specs[{excerpt(key)}] is {excerpt(value)}; it must be {expected}"
    )
