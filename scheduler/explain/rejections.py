# SPDX-License-Identifier: Apache-2.0
"""What recent decisions rejected hosts and requests for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final

from ..drivers.record import DecisionRecord, Outcome
from .funnel import funnel

_LATER: Final = "{} (counting the instances of the request that have a host)"
_CLAIM: Final = "claim"
_NOT_GRANTED: Final = "Placement granted no claim, or not enough hosts passed"


@dataclasses.dataclass(slots=True)
class RejectionCount:
    """One step and reason, over some decisions.

    Attributes
    ----------
    n_hosts : int
        Hosts that it rejected, summed over the decisions; of several instances of a
        request for the first one.
    n_decisions : int
        Decisions in which it rejected hosts.
    n_requests : int
        Requests that found no host, because it left none.
    """

    step: str
    reason: str
    n_hosts: int = 0
    n_decisions: int = 0
    n_requests: int = 0


def count_rejections(records: Iterable[DecisionRecord]) -> list[RejectionCount]:
    """Return the steps that rejected hosts, those that left no host first."""
    found: dict[tuple[str, str], RejectionCount] = {}
    for record in records:
        left_none = _count_steps(record, found)
        if not left_none and record.outcome is Outcome.NO_VALID_HOST:
            _entry(found, _CLAIM, _NOT_GRANTED).n_requests += 1
    order = sorted(found.values(), key=lambda each: (each.step, each.reason))
    return sorted(order, key=lambda e: (e.n_requests, e.n_hosts), reverse=True)


def _count_steps(
    record: DecisionRecord, found: dict[tuple[str, str], RejectionCount]
) -> bool:
    """Count the steps of one record; return whether one left no host."""
    for step in funnel(record):
        n_rejected = max(0, (step.n_in or 0) - step.n_out)
        left_none = not step.n_out and record.outcome is Outcome.NO_VALID_HOST
        if not n_rejected and not left_none:
            continue
        if step.instance > 1 and not left_none:
            continue  # its hosts were counted for the first instance
        is_first = step.instance == 1
        reason = step.reason if is_first else _LATER.format(step.reason)
        entry = _entry(found, step.name, reason)
        entry.n_hosts += n_rejected * is_first
        entry.n_decisions += 1
        if left_none:
            entry.n_requests += 1
            return True
    return False


def _entry(
    found: dict[tuple[str, str], RejectionCount], step: str, reason: str
) -> RejectionCount:
    return found.setdefault((step, reason), RejectionCount(step, reason))
