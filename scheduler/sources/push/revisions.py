# SPDX-License-Identifier: Apache-2.0
"""Which report is news: duplicates, old ones and gaps are told apart."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final

#: Earlier incarnations that are remembered of a node.
_MAX_EARLIER: Final = 8


class Verdict(enum.Enum):
    """What a report is to what is held of its node."""

    NEWS = "it is the next state"
    ALIVE = "it says what is held: the node lives"
    OLD = "what is held is newer"
    GAP = "something before it did not come"


@dataclass(slots=True)
class Held:
    """One node as its reports made it.

    Attributes
    ----------
    data : dict
        Values by column, in the form of the wire.
    instances : set of str
    seen_at : float
        When the newest message of it came, seconds since the epoch.
    stored_at : float
        The `seen_at` that the store has; 0: none.
    earlier : tuple of str
        Incarnations that this process held before, the last one first: what orders
        incarnations without a clock.
    """

    incarnation: str
    revision: int
    data: dict[str, Any]
    instances: set[str]
    seen_at: float
    stored_at: float = 0.0
    earlier: tuple[str, ...] = ()

    def succeed(self, before: Held) -> None:
        """Take over what was known of the store and of earlier incarnations."""
        self.stored_at = before.stored_at
        known = dict.fromkeys((before.incarnation, *before.earlier))
        known.pop(self.incarnation, None)
        self.earlier = tuple(known)[:_MAX_EARLIER]

    @property
    def host(self) -> str:
        """The name of its compute service's host."""
        return str(self.data["host"])


def judge_report(held: Held | None, incarnation: str, revision: int) -> Verdict:
    """Return what a whole report is.

    One of another incarnation is news: which of two began later cannot be told, and
    the next delta of the other one asks for a whole report again.
    """
    if held is None or held.incarnation != incarnation or held.revision < revision:
        return Verdict.NEWS
    return Verdict.ALIVE if held.revision == revision else Verdict.OLD


def judge_delta(
    held: Held | None, incarnation: str, since: int, revision: int
) -> Verdict:
    """Return what a delta is; only one on top of exactly what is held is news.

    A column that changed and changed back since an older revision is not in it, so
    that it cannot be put on top of any revision between.
    """
    if held is None or held.incarnation != incarnation:
        return Verdict.GAP
    if revision < held.revision:
        return Verdict.OLD
    if revision == held.revision:
        return Verdict.ALIVE
    return Verdict.NEWS if since == held.revision else Verdict.GAP
