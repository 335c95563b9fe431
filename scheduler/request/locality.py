# SPDX-License-Identifier: Apache-2.0
"""The rules of a request about places: racks, rows or what the operator calls them.

    hints and extra specs ──▶ rules, one for each level that is mentioned

Hints are a user's and extra specs an operator's: where both set a limit, the lower one
applies, and a hint never loosens what an extra spec sets by default. Hints about a
level that is not configured are not read.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from oslo_utils import uuidutils

from ..errors import InvalidRequest, excerpt
from .flavor_and_image import FlavorAndImage
from .server_group import (
    ANTI_AFFINITY,
    SOFT_AFFINITY,
    SOFT_ANTI_AFFINITY,
    ServerGroup,
)

if TYPE_CHECKING:
    from ...objects import RequestSpec

GROUP_LEVEL: Final = "group_level"
SPREAD_LEVEL: Final = "spread_level"
MAX_SKEW: Final = "max_skew"
_MAX_A_PLACE: Final = "max_server_per_"
_SCOPE: Final = "moorage:"

#: In place of the level of a `Target` that is a service host; no place has this level.
HOST: Final = "host"
#: A level and the name of a place, or `HOST` and the name of a service host.
Target = tuple[str, str]

#: The most values of all hints about places together: each may cost a GET to Placement.
MAX_VALUES: Final = 100
#: Hints that set preferences and no rules: a host need not meet a preference.
SOFT_HINTS: Final = ("near", "far")
_MAX_NAME: Final = 255
_MAX_COUNT: Final = 10_000


class SetsPlaces(Protocol):
    """The part of a `Request` that sets rules about places."""

    hints: Mapping[str, Sequence[str]]
    settings: FlavorAndImage

    @property
    def server_group(self) -> ServerGroup | None:
        """The server group of the instances."""

    def hint_values(self, name: str) -> list[str]:
        """Return the values of a hint."""


@dataclass(frozen=True, slots=True)
class InPlaces:
    """Only hosts in one of these places, or only hosts in none of them."""

    hint: str
    level: str
    places: frozenset[str]
    is_allowing: bool


@dataclass(frozen=True, slots=True)
class WithInstances:
    """Only hosts in a place that has one of these instances.

    Attributes
    ----------
    instances : frozenset of str
        UUIDs.
    is_group : bool
        Whether the instances are those of the server group: its first member may go
        anywhere, and the other members, also those of the same request, follow it.
    """

    hint: str
    level: str
    instances: frozenset[str]
    is_group: bool


@dataclass(frozen=True, slots=True)
class AtMost:
    """Only hosts in places with fewer than `limit` of these instances.

    Attributes
    ----------
    is_group : bool
        Whether the instances are those of the server group, so that instances of the
        same request count, too.
    """

    hint: str
    level: str
    instances: frozenset[str]
    is_group: bool
    limit: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Only hosts in places that have few of these instances, compared with others.

    With one more instance, a place has at most `max_skew` more of them than the place
    that has the fewest. Instances of the same request count.
    """

    hint: str
    level: str
    instances: frozenset[str]
    max_skew: int

    @property
    def is_group(self) -> bool:
        """Whether instances of the same request count."""
        return True


@dataclass(frozen=True, slots=True)
class SoftRule:
    """Hosts near to, or far from, places or some instances are preferred.

    Attributes
    ----------
    level : str
        The level of the place or of the group's hint. Empty: the rule is about
        instances, and a host that has one of them is nearer than its smallest place.
    place : str or None
        None: the instances are meant.
    instances : frozenset of str
        UUIDs.
    is_group : bool
        Whether the instances are those of the server group, so that instances of the
        same request count, too.
    targets : frozenset of (level, place)
        Places, and hosts with the level `HOST`, of which the closest one counts; empty:
        the place or the instances are meant.
    """

    is_near: bool
    level: str
    place: str | None = None
    instances: frozenset[str] = frozenset()
    is_group: bool = False
    targets: frozenset[Target] = frozenset()


class AttachmentKind(enum.StrEnum):
    """What an instance is attached to, in another service."""

    VOLUME = "volume"
    PORT = "port"


@dataclass(frozen=True, slots=True)
class AttachmentHint:
    """A volume or a port whose place a request names.

    Attributes
    ----------
    level : str
        The level at which a host must be in the place of the volume or port; empty:
        hosts near to it are preferred.
    """

    hint: str
    kind: AttachmentKind
    uuid: str
    level: str = ""


_ATTACHMENT_SUFFIXES: Final = tuple(f"_{kind}" for kind in AttachmentKind)

#: One rule of a request at one level; `hint` is what it is read from.
Rule = InPlaces | WithInstances | AtMost | Spread


def locality_rules(request: SetsPlaces, levels: Sequence[str]) -> tuple[Rule, ...]:
    """Return the rules that a request's hints and its flavor's extra specs set.

    Parameters
    ----------
    levels : sequence of str
        The levels that the operator has configured.

    Raises
    ------
    InvalidRequest
        A value is malformed; the message names the hint or extra spec.
    """
    if not _may_set_rules(request, levels):
        return ()
    return tuple(_RulesReader(request, levels).read())


def soft_rules(request: SetsPlaces, levels: Sequence[str]) -> tuple[SoftRule, ...]:
    """Return the preferences that a request's hints and its flavor's extra specs set.

    Parameters and errors are those of `locality_rules`.
    """
    if not _may_set_rules(request, levels):
        return ()
    return tuple(_RulesReader(request, levels).read_soft())


def named_uuids(
    request: SetsPlaces, levels: Sequence[str]
) -> Mapping[str, frozenset[str]]:
    """Return the UUIDs that each hint about places names.

    The UUID of the request's own server group, and malformed values, are left out.
    """
    group_uuid = request.server_group.uuid if request.server_group is not None else None
    names = [
        f"{prefix}{level}" for prefix in ("same_", "different_") for level in levels
    ]
    uuids_by_hint = {
        hint: frozenset(
            str(UUID(value))
            for value in request.hint_values(hint)[:MAX_VALUES]
            if uuidutils.is_uuid_like(value)
        )
        for hint in (*names, *SOFT_HINTS)
    }
    return {
        hint: uuids - {group_uuid}
        for hint, uuids in uuids_by_hint.items()
        if uuids - {group_uuid}
    }


def remove_hint(spec_obj: RequestSpec, hint: str) -> None:
    """Remove the scheduler hint and the extra spec that rules with a `hint` come from.

    Of ``group_level=rack`` and the like, only the value is removed.
    """
    name, _, value = hint.partition("=")
    hints = {k: list(v) for k, v in (spec_obj.scheduler_hints or {}).items()}
    specs = dict(spec_obj.flavor.extra_specs or {})
    key = f"{_SCOPE}{name}"
    in_spec = [text.strip() for text in specs.pop(key, "").split(",")]
    in_hint = hints.pop(name, [])
    if value and (other_values := [text for text in in_hint if text != value]):
        hints[name] = other_values
    if value and (other_values := [text for text in in_spec if text and text != value]):
        specs[key] = ",".join(other_values)
    spec_obj.scheduler_hints, spec_obj.flavor.extra_specs = hints, specs


def attachment_hints(
    request: SetsPlaces, levels: Sequence[str]
) -> tuple[AttachmentHint, ...]:
    """Return the volumes and ports that a request's hints name.

    Parameters and errors are those of `locality_rules`.
    """
    names = request.hints if levels else ()
    if not any(name.endswith(_ATTACHMENT_SUFFIXES) for name in names):
        return ()
    return tuple(dict.fromkeys(_RulesReader(request, levels).read_attachments()))


def _may_set_rules(request: SetsPlaces, levels: Sequence[str]) -> bool:
    if not levels:
        return False
    specs = request.settings.extra_specs
    return bool(request.hints) or any(key.startswith(_SCOPE) for key in specs)


class _RulesReader:
    """Reads the rules of one request."""

    def __init__(self, request: SetsPlaces, levels: Sequence[str]) -> None:
        self._request = request
        self._levels = levels
        self._specs: Mapping[str, str] = request.settings.extra_specs
        group = request.server_group
        self._group_uuid = group.uuid if group is not None else None
        self._members = group.members if group is not None else frozenset[str]()
        self._policy = group.policy if group is not None else None
        self._n_values = 0

    def read(self) -> Iterator[Rule]:
        """Yield the rules, level by level."""
        group_levels = self._named(GROUP_LEVEL)
        spread_levels = self._named(SPREAD_LEVEL)
        for level in self._levels:
            yield from self._places(level)
            yield from self._instances(level)
            yield from self._limits(level, is_of_group=level in group_levels)
            if level in spread_levels:
                skew = self._least(MAX_SKEW) or 1
                if level in self._set_by_flavor(SPREAD_LEVEL):
                    skew = min(skew, self._of_flavor(MAX_SKEW) or 1)
                hint = f"{SPREAD_LEVEL}={level}"
                yield Spread(hint, level, self._members, skew)

    def read_soft(self) -> Iterator[SoftRule]:
        """Yield the preferences: those of hints, then those of the server group."""
        for hint, is_near in (("near", True), ("far", False)):
            uuids = []
            for value in self._values(hint):
                level, is_place, name = value.partition("=")
                if is_place or not uuidutils.is_uuid_like(value):
                    yield self._soft_place(hint, value, level, name, is_near=is_near)
                else:
                    uuids.append(value)
            instances, is_group = self._split(hint, uuids)
            if is_group:
                instances |= self._members
            if instances or is_group:
                yield SoftRule(is_near, "", None, instances, is_group)
        if self._policy in (SOFT_AFFINITY, SOFT_ANTI_AFFINITY):
            is_near = self._policy == SOFT_AFFINITY
            for level in sorted(self._named(GROUP_LEVEL)):
                yield SoftRule(is_near, level, None, self._members, is_group=True)

    def read_attachments(self) -> Iterator[AttachmentHint]:
        """Yield the volumes and ports that hints name."""
        for kind in AttachmentKind:
            level_hints = ((f"same_{level}_{kind}", level) for level in self._levels)
            for hint, level in ((f"near_{kind}", ""), *level_hints):
                for value in self._values(hint):
                    if not uuidutils.is_uuid_like(value):
                        raise _wrong(hint, value, f"the UUID of a {kind}")
                    yield AttachmentHint(hint, kind, str(UUID(value)), level)

    def _soft_place(
        self, hint: str, value: str, level: str, name: str, *, is_near: bool
    ) -> SoftRule:
        if level not in self._levels or not 0 < len(name) <= _MAX_NAME:
            levels = "|".join(self._levels)
            raise _wrong(hint, value, f"a UUID, or {levels}=<name of a place>")
        return SoftRule(is_near, level, name)

    def _places(self, level: str) -> Iterator[Rule]:
        for prefix, is_allowing in (("in_", True), ("not_in_", False)):
            hint = f"{prefix}{level}"
            if names := self._values(hint):
                for name in names:
                    if len(name) > _MAX_NAME:
                        raise _wrong(hint, name, f"at most {_MAX_NAME} characters")
                yield InPlaces(hint, level, frozenset(names), is_allowing)

    def _instances(self, level: str) -> Iterator[Rule]:
        uuids, is_group = self._uuids(hint := f"same_{level}")
        if uuids or is_group:
            members = self._members if is_group else frozenset[str]()
            yield WithInstances(hint, level, uuids | members, is_group)
        uuids, is_group = self._uuids(hint := f"different_{level}")
        if uuids:
            yield AtMost(hint, level, uuids, is_group=False, limit=1)
        if is_group:
            yield AtMost(hint, level, self._members, is_group=True, limit=1)

    def _limits(self, level: str, *, is_of_group: bool) -> Iterator[Rule]:
        hint = f"{_MAX_A_PLACE}{level}"
        limit = self._least(hint)
        if is_of_group and self._policy == ANTI_AFFINITY:
            is_by_flavor = level in self._set_by_flavor(GROUP_LEVEL)
            if limit is None or (is_by_flavor and self._of_flavor(hint) is None):
                hint, limit = f"{GROUP_LEVEL}={level}", 1
        if limit is not None:
            yield AtMost(hint, level, self._members, is_group=True, limit=limit)

    # -- values ------------------------------------------------------------------------

    def _values(self, hint: str) -> list[str]:
        values = self._request.hint_values(hint)
        self._n_values += len(values)
        if self._n_values > MAX_VALUES:
            raise InvalidRequest(
                f"scheduler_hints: the hints about places have more than {MAX_VALUES} "
                f"values, the last of them {hint}; they must have at most {MAX_VALUES} "
                "together, members of other server groups included"
            )
        return values

    def _uuids(self, hint: str) -> tuple[frozenset[str], bool]:
        """Return the instances that a hint names, and whether it names the group."""
        return self._split(hint, self._values(hint))

    def _split(self, hint: str, uuids: Iterable[str]) -> tuple[frozenset[str], bool]:
        """Return which UUIDs are instances, and whether the server group's is one."""
        values = frozenset(_uuid(hint, value) for value in uuids)
        group = frozenset() if self._group_uuid is None else {self._group_uuid}
        return values - group, bool(values & group)

    def _named(self, name: str) -> frozenset[str]:
        """Return the levels that a hint or an extra spec names."""
        by_hint = frozenset(self._checked_levels(name, self._values(name)))
        return by_hint | self._set_by_flavor(name)

    def _set_by_flavor(self, name: str) -> frozenset[str]:
        """Return the levels that an extra spec names."""
        value = self._specs.get(f"{_SCOPE}{name}")
        named = [level.strip() for level in value.split(",")] if value else []
        return frozenset(self._checked_levels(f"{_SCOPE}{name}", named))

    def _checked_levels(self, name: str, values: Iterable[str]) -> Iterator[str]:
        for value in values:
            if value not in self._levels:
                raise _wrong(name, value, f"one of {', '.join(self._levels)}")
            yield value

    def _least(self, name: str) -> int | None:
        """Return the lowest number in hints and the extra spec; None: there is none."""
        numbers = [_number(name, value) for value in self._values(name)]
        if (by_flavor := self._of_flavor(name)) is not None:
            numbers.append(by_flavor)
        return min(numbers, default=None)

    def _of_flavor(self, name: str) -> int | None:
        """Return the number that an extra spec sets; None: it is not set."""
        value = self._specs.get(f"{_SCOPE}{name}")
        return _number(f"{_SCOPE}{name}", value) if value else None


def _uuid(hint: str, value: str) -> str:
    if not uuidutils.is_uuid_like(value):
        needed = "the UUID of an instance or of the request's server group"
        raise _wrong(hint, value, needed)
    return str(UUID(value))


def _number(name: str, value: str) -> int:
    is_short = value.isascii() and value.isdigit() and len(value) < 9
    number = int(value) if is_short else 0
    if not 1 <= number <= _MAX_COUNT:
        raise _wrong(name, value, f"a number from 1 to {_MAX_COUNT}")
    return number


def _wrong(name: str, value: str, needed: str) -> InvalidRequest:
    where = "flavor.extra_specs" if name.startswith(_SCOPE) else "scheduler_hints"
    return InvalidRequest(f"{where}: {name} is {excerpt(value)}; it must be {needed}")
