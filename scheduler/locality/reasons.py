# SPDX-License-Identifier: Apache-2.0
"""Why a rule about places rejects hosts, in words for end users.

No place is named but those of a hint that have no host.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ..request.locality import AtMost, InPlaces, Rule, WithInstances

#: Where groups other than the request's own are unknown instances.
NO_OTHER_GROUPS: Final = "other server groups are not looked up"


def reason_of_unknown(rule: WithInstances, *, are_groups_read: bool) -> str:
    """Return why hosts are rejected by a rule of whose instances none is known."""
    more = "" if are_groups_read else f", and {NO_OTHER_GROUPS}"
    return f"{rule.hint}: no named instance is known{more}"


def reason_without_host(rule: InPlaces) -> str:
    """Return why hosts are rejected by a rule of whose places none has a host."""
    names = " or ".join(map(repr, sorted(rule.places)))
    return f"{rule.hint}: no host is in {rule.level} {names}"


def reason_of(rules: Collection[Rule]) -> str:
    """Return why hosts are rejected by one rule, or by one of several."""
    hints = list(dict.fromkeys(rule.hint for rule in rules))
    if len(hints) == 1:
        return f"{hints[0]}: {_of_place(next(iter(rules)))}"
    return f"the place breaks {', '.join(hints[:-1])} or {hints[-1]}"


def _of_place(rule: Rule) -> str:
    level = rule.level
    if isinstance(rule, InPlaces):
        return f"in another {level}" if rule.is_allowing else f"in such a {level}"
    named = "member of the server group" if rule.is_group else "of the named instances"
    if isinstance(rule, WithInstances):
        none = f"no {named}" if rule.is_group else f"none {named}"
        return f"the {level} has {none}"
    if not isinstance(rule, AtMost):
        return f"the {level} has more members than another"
    if rule.limit > 1:
        return f"the {level} has {rule.limit} members"
    return f"the {level} has {'a' if rule.is_group else 'one'} {named}"
