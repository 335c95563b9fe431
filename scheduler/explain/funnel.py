# SPDX-License-Identifier: Apache-2.0
"""The funnel of a decision: how many hosts each step left, and why the others went."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..drivers.record import DecisionRecord, FilterStep


@dataclasses.dataclass(frozen=True, slots=True)
class FunnelStep:
    """One step: a filter or a restriction, or what Placement answered.

    Attributes
    ----------
    n_in : int or None
        None: it was not recorded.
    reason : str
        Why hosts were rejected; "" if none was.
    """

    name: str
    n_in: int | None
    n_out: int
    reason: str = ""


def funnel(record: DecisionRecord) -> list[FunnelStep]:
    """Return the steps of a decision, Placement's answer first.

    A filter that ran again for a later instance of the request is listed once, with the
    hosts that went in the first time and those that were left the last time.
    """
    steps: dict[str, FilterStep] = {}
    for step in record.steps:
        first = steps.get(step.name, step)
        steps[step.name] = dataclasses.replace(step, n_in=first.n_in)
    placement = _placement(record)
    found = [] if placement is None else [placement]
    return found + [
        FunnelStep(s.name, s.n_in, s.n_out, s.reason if s.n_out < s.n_in else "")
        for s in steps.values()
    ]


def with_funnel(record: DecisionRecord) -> dict[str, Any]:
    """Return a record as plain data, with its funnel."""
    return {
        **record.to_dict(),
        "funnel": [dataclasses.asdict(step) for step in funnel(record)],
    }


def _placement(record: DecisionRecord) -> FunnelStep | None:
    if record.n_candidates is None and record.no_answer:
        n_known = record.n_known_hosts or None
        return FunnelStep("Placement", n_known, 0, record.no_answer)
    if record.n_candidates is None and not record.queries:
        return None  # a rebuild
    n_known = record.n_known_hosts or None
    notes = []
    if n_known is not None and record.n_hosts < n_known:
        notes.append("resources, traits or aggregates are missing")
    if record.is_truncated:
        notes.append("truncated at [scheduler] max_placement_results")
    if record.n_without_row:
        notes.append(f"{record.n_without_row} provider(s) are not known as hosts")
    return FunnelStep("Placement", n_known, record.n_hosts, "; ".join(notes))
