# SPDX-License-Identifier: Apache-2.0
"""Groups of a Placement query: what one provider, or one tree, must provide.

    flavor's extra specs ─┐
    CPU policies ─────────┤
    ports, devices ───────┼─▶ groups
    flavor's amounts ─────┤
    guest's features ─────┘

Several providers of a tree may serve the group without a suffix; one provider serves
each other group.

Extra specs of nova's that define groups are ``resources[S]:CLASS``, ``trait[S]:TRAIT``
and ``group_policy``; S is the group's suffix. Extensions to nova, in the syntax of
Placement's own query:

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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import os_resource_classes as orc
import os_traits
from oslo_utils import uuidutils

from ..errors import InvalidRequest, excerpt
from .flavor_and_image import (
    CPU_AND_FEATURE_SETTINGS,
    CPUPolicy,
    EmulatorPolicy,
    FlavorAndImage,
    ThreadPolicy,
    cpu_policy,
    dedicated_cpus,
    emulator_policy,
    feature_resources,
    feature_traits,
    get_field,
    thread_policy,
)

if TYPE_CHECKING:
    from ...objects import Flavor, RequestGroup

#: Placement's integer: the most that one allocation can hold of one resource class.
MAX_AMOUNT: Final = 2**31 - 1


@dataclass(slots=True)
class QueryGroup:
    """One group of a query; several providers of a tree may serve the suffix "".

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
        """Read the RequestGroup of a port, a PCI device or a device profile."""
        return cls(
            suffix=get_field(group, "requester_id"),
            resources=dict(get_field(group, "resources") or {}),
            required=set(get_field(group, "required_traits") or ()),
            forbidden=set(get_field(group, "forbidden_traits") or ()),
            member_of=[frozenset(u) for u in get_field(group, "aggregates") or ()],
            forbidden_aggregates=set(get_field(group, "forbidden_aggregates") or ()),
            in_tree=get_field(group, "in_tree"),
        )

    def copy(self) -> QueryGroup:
        """Return a copy that shares no mutable collection with the group."""
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
        """Whether Placement can find a provider for the group.

        Placement 16.0 finds none by forbidden traits, forbidden aggregates or a tree
        alone.
        """
        has_amount = any(self.resources.values())
        return bool(has_amount or self.required or self.required_any or self.member_of)

    def params(self) -> Iterator[tuple[str, str]]:
        """Yield name and value of each of the group's parameters, lists sorted."""
        if self.resources:
            pairs = sorted(
                f"{name}:{amount}" for name, amount in self.resources.items()
            )
            yield f"resources{self.suffix}", ",".join(pairs)
        if self.required or self.forbidden:
            forbidden = (f"!{name}" for name in sorted(self.forbidden))
            traits = ",".join([*sorted(self.required), *forbidden])
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
    in_flavor = FlavorGroups()
    for key, value in extra_specs.items():
        problem = None
        if key == "group_policy" and value in _GROUP_POLICIES:
            in_flavor.policy = value
        elif key == "group_policy":
            problem = "it must be none or isolate"
        elif match := _NOVA_KEY.fullmatch(key):
            kind, suffix, name = match.groups()
            read = _read_resource if kind == "resources" else _read_trait
            problem = read(in_flavor.group, suffix or "", name, value)
        elif match := _EXTENSION_KEY.fullmatch(key):
            kind, suffix = match.groups()
            set_on = _set_member_of if kind == "member_of" else _set_in_tree
            set_on(in_flavor.group(suffix or ""), key, value)
        if problem:
            in_flavor.ignored.append((f"{key}={value}", problem))
    return in_flavor


#: Returns the group with a suffix, and adds it if it is missing: it is called for valid
#: extra specs only.
_GroupOf = Callable[[str], QueryGroup]


def _read_resource(group: _GroupOf, suffix: str, name: str, value: str) -> str | None:
    if name not in orc.STANDARDS and not name.startswith(orc.CUSTOM_NAMESPACE):
        return "its resource class is not standard and does not start with CUSTOM_"
    try:
        amount = int(value)
    except ValueError:
        amount = -1
    if amount < 0:
        return "it must be a number of at least 0"
    group(suffix).resources[name] = amount
    return None


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
        group.required |= traits  # every version of Placement supports one trait
    else:
        group.required_any.add(traits)


def _set_member_of(group: QueryGroup, key: str, value: str) -> None:
    text = value.strip()
    uuids = frozenset(
        _uuid(key, value, part, "in:UUID,UUID or !in:UUID,UUID, of aggregates")
        for part in _listed(text.removeprefix("!"), _ANY_OF)
    )
    if text.startswith("!"):
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


def _uuid(key: str, value: str, part: str, expected: str) -> str:
    if not uuidutils.is_uuid_like(part.strip()):
        raise _malformed(key, value, expected)
    return str(uuid.UUID(part.strip()))


def _malformed(key: str, value: str, expected: str) -> InvalidRequest:
    return InvalidRequest(
        f"flavor.extra_specs[{excerpt(key)}] is {excerpt(value)}; it must be {expected}"
    )


_MIB_PER_GIB = 1024


def query_groups(
    settings: FlavorAndImage,
    in_flavor: FlavorGroups,
    requested: Iterable[QueryGroup],
    flavor: Flavor,
    *,
    is_bfv: bool,
    is_pinned: bool,
) -> list[QueryGroup]:
    """Return all groups of a request, among them always one without a suffix.

    The order matters: a resource that an extra spec names replaces the flavor's own
    amount, and a guest's feature replaces what an extra spec names (nova 34).

    Parameters
    ----------
    settings, in_flavor, requested, flavor
        Not changed: their groups are copied.
    is_bfv : bool
        Whether the guest boots from a volume, and has no root disk on the host.
    is_pinned : bool
        Whether CPU policies request PCPU and traits; False for hosts that do not report
        PCPU.

    Raises
    ------
    InvalidRequest
        A policy, mask or feature is invalid, or the disk exceeds Placement's integer.
    """
    groups = [group.copy() for group in in_flavor.groups.values()]
    unsuffixed = next((group for group in groups if not group.suffix), None)
    if unsuffixed is None:
        unsuffixed = QueryGroup()
        groups.append(unsuffixed)
    has_special_settings = settings.sets_any(CPU_AND_FEATURE_SETTINGS)
    if has_special_settings and is_pinned:
        _add_cpu_policies(unsuffixed, settings)
    groups += [group.copy() for group in requested]
    # The flavor's own amount applies only to a class that no group names, even with 0.
    named_classes = {name for group in groups for name in group.resources}
    if not named_classes & {orc.VCPU, orc.PCPU}:
        unsuffixed.resources[orc.VCPU] = flavor.vcpus
    if orc.MEMORY_MB not in named_classes:
        unsuffixed.resources[orc.MEMORY_MB] = flavor.memory_mb
    if orc.DISK_GB not in named_classes:
        root_gb = 0 if is_bfv else flavor.root_gb
        swap_gb = -(-flavor.swap // _MIB_PER_GIB)
        disk_gb: int = flavor.ephemeral_gb + swap_gb + root_gb
        if disk_gb > MAX_AMOUNT:
            raise InvalidRequest(
                f"root_gb, ephemeral_gb and swap of the flavor are {disk_gb} GiB "
                f"together; they must be at most {MAX_AMOUNT}"
            )
        unsuffixed.resources[orc.DISK_GB] = disk_gb
    unsuffixed.required |= set(settings.properties.get("traits_required") or ())
    if has_special_settings:
        unsuffixed.required |= feature_traits(settings)
        unsuffixed.resources |= feature_resources(settings)
    for group in groups:
        group.resources = {
            name: amount for name, amount in group.resources.items() if amount
        }
    return [group for group in groups if not group.suffix or not group.is_empty]


def _add_cpu_policies(group: QueryGroup, guest: FlavorAndImage) -> None:
    policy = cpu_policy(guest)
    n_emulator = int(emulator_policy(guest) is EmulatorPolicy.ISOLATE)
    if policy is CPUPolicy.DEDICATED:
        group.resources[orc.PCPU] = guest.n_vcpus + n_emulator
    elif policy is CPUPolicy.MIXED:
        n_dedicated = len(dedicated_cpus(guest))
        group.resources[orc.VCPU] = guest.n_vcpus - n_dedicated
        group.resources[orc.PCPU] = n_dedicated + n_emulator
    threads = thread_policy(guest)
    if threads is ThreadPolicy.REQUIRE:
        group.required.add(os_traits.HW_CPU_HYPERTHREADING)
    elif threads is ThreadPolicy.ISOLATE:
        group.forbidden.add(os_traits.HW_CPU_HYPERTHREADING)
