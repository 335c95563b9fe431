# SPDX-License-Identifier: Apache-2.0
"""Ask Placement what a request means to it, and where that would fit."""

from __future__ import annotations

import logging

from ...objects import RequestSpec
from ..errors import NoValidHost, PlacementRejected
from ..placement.candidates import AllocationCandidates
from ..placement.query import (
    CandidatesQuery,
    Requirements,
    build_fallback_query,
    build_query,
)
from ..prefilters.base import PrefilterRequest
from .base import Parts
from .caller import Caller
from .record import DecisionRecord
from .restrictions import aim

LOG = logging.getLogger(__name__)


def ask(
    parts: Parts, caller: Caller, spec_obj: RequestSpec, record: DecisionRecord
) -> AllocationCandidates:
    """Return Placement's candidates for a request, at least one.

    A guest with dedicated CPUs is asked for twice: hosts that do not report PCPU yet
    come after those that do.

    Raises
    ------
    NoValidHost
        There are none, a prefilter says so, or the host that is wanted does not exist.
    PlacementError
        Placement could not be asked.
    """
    requirements = _requirements(parts, spec_obj)
    limit = parts.conf.scheduler.max_placement_results
    query = build_query(spec_obj, requirements, limit=limit)
    candidates = _answer(parts, caller, query, record)
    fallback = build_fallback_query(spec_obj, requirements, limit=limit)
    if fallback is not None and fallback != query:
        candidates = candidates.followed_by(_answer(parts, caller, fallback, record))
    record.n_candidates = candidates.n_requests
    if not candidates.n_requests:
        LOG.info("Placement has no allocation candidates for %s", query.path)
        raise NoValidHost()
    return candidates


def _requirements(parts: Parts, spec_obj: RequestSpec) -> Requirements:
    requirements = Requirements()
    request = PrefilterRequest(
        spec_obj=spec_obj,
        requirements=requirements,
        aggregates=parts.table.aggregates,
        conf=parts.conf,
    )
    for _name, prefilter in parts.prefilters:
        prefilter(request)
    aim(spec_obj, parts.table, requirements)
    return requirements


def _answer(
    parts: Parts, caller: Caller, query: CandidatesQuery, record: DecisionRecord
) -> AllocationCandidates:
    record.queries.append(query.path)
    with record.timed("placement"):
        try:
            answer = parts.placement.allocation_candidates(
                query, global_request_id=caller.global_request_id
            )
        except PlacementRejected as e:
            # An unknown trait or class in a flavor: as for nova, no host has it.
            LOG.error("Placement cannot answer %s: %s", query.path, e)
            raise NoValidHost() from e
    record.is_cut |= answer.is_cut
    return answer
