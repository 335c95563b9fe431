# SPDX-License-Identifier: Apache-2.0
"""How many hosts each step of a decision passed, and why it rejected other hosts."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import os_traits

from ...objects import RequestSpec
from ..drivers.record import DecisionRecord, FilterStep, Outcome, runs_of
from ..placement.constraints import Constraint, ConstraintKind, constraints
from .requested import describe_request


@dataclasses.dataclass(frozen=True, slots=True)
class FunnelStep:
    """One step: a filter or a restriction, or what Placement answered.

    Attributes
    ----------
    n_in : int or None
        Hosts before the step; None: their number was not recorded.
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

    If the request is for several instances, the steps are those of the first one:
    filters reject hosts for later instances mostly because the request itself has
    filled these hosts. If the request failed, the steps of the instance that found no
    host follow. For each instance, the last run of the filters is returned.
    """
    placement = _placement(record)
    steps = [] if placement is None else [placement]
    runs = runs_of(record.steps)
    if not runs:
        return steps
    runs_of_first = [run for run in runs if _instance(run) == _instance(runs[0])]
    if _instance(runs[0]) is None:  # later runs may be for another instance
        del runs_of_first[1:]
    steps += _steps(_with_restrictions(runs[0], runs_of_first[-1]), 1)
    last_instance = _instance(runs[-1])
    if record.outcome is Outcome.NO_VALID_HOST and last_instance not in (None, 0):
        steps += _steps(runs[-1], last_instance + 1)
    return steps


def _instance(run: list[FilterStep]) -> int | None:
    return run[-1].instance


def _with_restrictions(
    first_run: list[FilterStep], run: list[FilterStep]
) -> list[FilterStep]:
    """Return a run of filters after the restrictions, which only the first run has."""
    restriction_steps = itertools.takewhile(
        lambda step: step.name != run[0].name, first_run
    )
    return [*restriction_steps, *run]


def _steps(run: list[FilterStep], instance: int) -> list[FunnelStep]:
    return [
        FunnelStep(
            step.name,
            step.n_in,
            step.n_out,
            step.reason if step.n_out < step.n_in else "",
            instance,
        )
        for step in run
    ]


def cause_of(record: DecisionRecord) -> str:
    """Return the step at which a decision lost its last host, with the reason.

    Equal causes have equal texts: a cause names no host, request or number. Empty if
    hosts were selected.
    """
    if record.outcome is Outcome.SELECTED:
        return ""
    for step in funnel(record):
        if not step.n_out:
            reason = _N_PROVIDERS.sub("providers", step.reason)
            if reason.startswith(step.name):
                return reason
            return f"{step.name}: {reason}" if reason else step.name
    if record.outcome is Outcome.FAILED:
        return record.reason.partition(":")[0].strip() or "failed"
    return "no claim was granted"


def with_funnel(
    record: DecisionRecord, request: RequestSpec | None = None
) -> dict[str, Any]:
    """Return a record as plain data, with its funnel and what was requested.

    Parameters
    ----------
    request : RequestSpec, optional
        None: the request is not known, and the entry "request" is empty. See
        `describe_request`.
    """
    return {
        **record.to_dict(),
        "request": {} if request is None else describe_request(request),
        "funnel": [dataclasses.asdict(step) for step in funnel(record)],
    }


#: In the reason of Placement's step: so many providers.
_N_PROVIDERS: Final = re.compile(r"\d+ provider\(s\)")
#: What ends a query that was too long for the record.
_CUT: Final = "…"
#: The maximum number of resource classes or traits that a reason names.
_MAX_NAMED: Final = 8


@functools.lru_cache(maxsize=1024)
def _missing(queries: tuple[str, ...]) -> str:
    """Return which parts of the queries hosts may lack, without amounts and UUIDs.

    Equal kinds of requests have equal texts, so that they can be counted.
    """
    parts: list[Constraint] = []
    for path in queries:
        query = urlsplit(path.partition(_CUT)[0]).query
        for constraint in constraints(parse_qsl(query)):
            is_group = constraint.kind is ConstraintKind.GROUP
            parts += constraints(constraint.params) if is_group else [constraint]
    values: dict[ConstraintKind, list[str]] = {}
    for part in parts:
        values.setdefault(part.kind, []).append(part.params[0][1])
    traits = values.get(ConstraintKind.TRAIT, [])
    required = [trait.removeprefix("in:") for trait in traits if trait[:1] != "!"]
    forbidden = {trait[1:] for trait in traits if trait[:1] == "!"}
    is_disabled = os_traits.COMPUTE_STATUS_DISABLED in forbidden
    forbidden.discard(os_traits.COMPUTE_STATUS_DISABLED)
    aggregates = values.get(ConstraintKind.AGGREGATE, [])
    classes = [
        pair.partition(":")[0] for pair in values.get(ConstraintKind.RESOURCE, [])
    ]
    causes = {
        f"too little {_either(classes)}": classes,
        f"no trait {_either(required)}": required,
        f"the forbidden trait {_either(forbidden)}": forbidden,
        "disabled": is_disabled,
        "outside the zone or aggregates that are required": any(
            value[:1] != "!" for value in aggregates
        ),
        "in a forbidden aggregate": any(value[:1] == "!" for value in aggregates),
        "not the requested host": ConstraintKind.TREE in values,
    }
    texts = [text for text, is_possible in causes.items() if is_possible]
    return ", or ".join(texts) or "not all that was asked of Placement"


def _either(names: Iterable[str]) -> str:
    distinct = sorted(
        {name for listed in names for name in listed.split(",")}, key=str.lower
    )
    if len(distinct) > _MAX_NAMED:
        distinct[_MAX_NAMED:] = [f"{len(distinct) - _MAX_NAMED} others"]
    return " or ".join(filter(None, (", ".join(distinct[:-1]), *distinct[-1:])))


def _placement(record: DecisionRecord) -> FunnelStep | None:
    if record.n_candidates is None and record.no_answer:
        n_known = record.n_known_hosts or None
        return FunnelStep("Placement", n_known, 0, record.no_answer)
    if record.n_candidates is None and not record.queries:
        return None  # a rebuild
    n_known = record.n_known_hosts or None
    notes = []
    if n_known is not None and record.n_hosts < n_known:
        notes.append(_missing(tuple(record.queries)))
    if record.is_truncated:
        notes.append("truncated at [scheduler] max_placement_results")
    if record.n_without_row:
        notes.append(
            f"{record.n_without_row} provider(s) of candidates belong to no known host"
        )
    return FunnelStep("Placement", n_known, record.n_hosts, "; ".join(notes))


_LATER: Final = "{} (counting the instances of the request that have a host)"
_CLAIM: Final = "claim"
_NOT_GRANTED: Final = "Placement granted no claim, or not enough hosts passed"


@dataclasses.dataclass(slots=True)
class RejectionCount:
    """How often one step rejected hosts for one reason, in some decisions.

    Attributes
    ----------
    n_hosts : int
        Hosts that the step rejected, summed over the decisions; if a request is for
        several instances, only those that the step rejected for the first one.
    n_decisions : int
        Decisions in which the step rejected hosts.
    n_requests : int
        Requests that found no host because the step left none.
    """

    step: str
    reason: str
    n_hosts: int = 0
    n_decisions: int = 0
    n_requests: int = 0


def count_rejections(records: Iterable[DecisionRecord]) -> list[RejectionCount]:
    """Return the steps that rejected hosts; first, the steps that left no host."""
    counts: dict[tuple[str, str], RejectionCount] = {}
    for record in records:
        left_none = _count_steps(record, counts)
        if not left_none and record.outcome is Outcome.NO_VALID_HOST:
            _entry(counts, _CLAIM, _NOT_GRANTED).n_requests += 1
    by_name = sorted(counts.values(), key=lambda count: (count.step, count.reason))
    return sorted(
        by_name, key=lambda count: (count.n_requests, count.n_hosts), reverse=True
    )


def _count_steps(
    record: DecisionRecord, counts: dict[tuple[str, str], RejectionCount]
) -> bool:
    """Count the steps of one record; return whether one left no host."""
    for step in funnel(record):
        n_rejected = max(0, (step.n_in or 0) - step.n_out)
        left_none = not step.n_out and record.outcome is Outcome.NO_VALID_HOST
        if not n_rejected and not left_none:
            continue
        if step.instance > 1 and not left_none:
            continue  # the first instance has counted these hosts
        is_first = step.instance == 1
        reason = step.reason if is_first else _LATER.format(step.reason)
        entry = _entry(counts, step.name, reason)
        entry.n_hosts += n_rejected * is_first
        entry.n_decisions += 1
        if left_none:
            entry.n_requests += 1
            return True
    return False


def _entry(
    counts: dict[tuple[str, str], RejectionCount], step: str, reason: str
) -> RejectionCount:
    return counts.setdefault((step, reason), RejectionCount(step, reason))
