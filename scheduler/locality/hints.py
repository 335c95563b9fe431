# SPDX-License-Identifier: Apache-2.0
"""Read the rules of a request about places: racks, rows or other levels.

    hints and extra specs ──▶ rules, one for each level that is mentioned

Hints are a user's and extra specs an operator's: where both set a limit, the lower one
applies, and a hint never loosens what an extra spec sets by default. Hints about a
level that is not configured are not read.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from oslo_utils import uuidutils

from ..errors import InvalidRequest, excerpt
from ..request import Request
from ..request.locality import (
    AtMost,
    InPlaces,
    Rule,
    SoftRule,
    Spread,
    WithInstances,
)
from ..request.server_group import ANTI_AFFINITY, SOFT_AFFINITY, SOFT_ANTI_AFFINITY

if TYPE_CHECKING:
    from ...objects import RequestSpec

GROUP_LEVEL: Final = "group_level"
SPREAD_LEVEL: Final = "spread_level"
MAX_SKEW: Final = "max_skew"
_MAX_A_PLACE: Final = "max_server_per_"
_SCOPE: Final = "moorage:"

#: The most values of all hints about places together: each may cost a GET to Placement.
MAX_VALUES: Final = 100
#: Hints that set preferences and no rules: a host need not meet a preference.
SOFT_HINTS: Final = ("near", "far")
_MAX_NAME: Final = 255
_MAX_COUNT: Final = 10_000


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


def locality_rules(request: Request, levels: Sequence[str]) -> tuple[Rule, ...]:
    """Return the rules of a request's hints, extra specs, volumes and ports.

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
        return request.attachment_rules
    return (*_RulesReader(request, levels).read(), *request.attachment_rules)


def soft_rules(request: Request, levels: Sequence[str]) -> tuple[SoftRule, ...]:
    """Return the preferences of a request's hints, extra specs, volumes and ports.

    Parameters and errors are those of `locality_rules`.
    """
    if not _may_set_rules(request, levels):
        return request.attachment_preferences
    reader = _RulesReader(request, levels)
    return (*reader.read_soft(), *request.attachment_preferences)


def named_uuids(
    request: Request, levels: Sequence[str]
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
    request: Request, levels: Sequence[str]
) -> tuple[AttachmentHint, ...]:
    """Return the volumes and ports that a request's hints name.

    Parameters and errors are those of `locality_rules`.
    """
    names = request.hints if levels else ()
    if not any(name.endswith(_ATTACHMENT_SUFFIXES) for name in names):
        return ()
    return tuple(dict.fromkeys(_RulesReader(request, levels).read_attachments()))


def _may_set_rules(request: Request, levels: Sequence[str]) -> bool:
    if not levels:
        return False
    specs = request.settings.extra_specs
    return bool(request.hints) or any(key.startswith(_SCOPE) for key in specs)


class _RulesReader:
    """Reads the rules of one request."""

    def __init__(self, request: Request, levels: Sequence[str]) -> None:
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
