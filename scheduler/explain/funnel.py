# SPDX-License-Identifier: Apache-2.0
"""The funnel of a decision: how many hosts each step left, and why the others went."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

from ...objects import RequestSpec
from ..drivers.record import DecisionRecord, FilterStep, Outcome
from .requested import describe_request


@dataclasses.dataclass(frozen=True, slots=True)
class FunnelStep:
    """One step: a filter or a restriction, or what Placement answered.

    Attributes
    ----------
    n_in : int or None
        None: it was not recorded.
    reason : str
        Why hosts were rejected; "" if none was.
    instance : int
        The instance of the request for which a filter ran, from 1.
    """

    name: str
    n_in: int | None
    n_out: int
    reason: str = ""
    instance: int = 1


def funnel(record: DecisionRecord) -> list[FunnelStep]:
    """Return the steps of a decision, Placement's answer first.

    Of several instances the first one is shown: hosts that later ones lose are mostly
    those that the request itself has filled. If the request failed, the steps of the
    instance that found no host follow. Each is shown as the filters ran for it last.
    """
    placement = _placement(record)
    found = [] if placement is None else [placement]
    runs = record.runs()
    if not runs:
        return found
    of_first = [run for run in runs if _instance(run) == _instance(runs[0])]
    if _instance(runs[0]) is None:  # what later runs were for is not recorded
        del of_first[1:]
    found += _steps(_with_restrictions(runs[0], of_first[-1]), 1)
    last = _instance(runs[-1])
    if record.outcome is Outcome.NO_VALID_HOST and last not in (None, 0):
        found += _steps(runs[-1], last + 1)
    return found


def _instance(run: list[FilterStep]) -> int | None:
    return run[-1].instance


def _with_restrictions(
    first: list[FilterStep], run: list[FilterStep]
) -> list[FilterStep]:
    """Return a run of filters after the restrictions, which only the first run has."""
    before = itertools.takewhile(lambda step: step.name != run[0].name, first)
    return [*before, *run]


def _steps(run: list[FilterStep], instance: int) -> list[FunnelStep]:
    return [
        FunnelStep(
            s.name, s.n_in, s.n_out, s.reason if s.n_out < s.n_in else "", instance
        )
        for s in run
    ]


def with_funnel(
    record: DecisionRecord, request: RequestSpec | None = None
) -> dict[str, Any]:
    """Return a record as plain data, with its funnel and what was requested.

    Parameters
    ----------
    request : RequestSpec, optional
        None: it is not known, and its part is empty. See `describe_request`.
    """
    return {
        **record.to_dict(),
        "request": {} if request is None else describe_request(request),
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
