# SPDX-License-Identifier: Apache-2.0
"""Ask Placement what a request means to it, and where that would fit."""

from __future__ import annotations

import functools
import logging
from typing import Any

from ...objects import RequestSpec
from ..errors import (
    NoValidHost,
    PlacementRejected,
    PlacementUnavailable,
    PluginError,
    SchedulerError,
)
from ..placement.candidates import AllocationCandidates
from ..placement.query import (
    CandidatesQuery,
    Requirements,
    build_fallback_query,
    build_query,
)
from ..prefilters import NetworkLookup, Prefilter, PrefilterRequest
from .base import Parts
from .caller import Caller
from .record import DecisionRecord, FilterStep
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
    with record.timed("prefilters"):
        requirements = _requirements(parts, caller, spec_obj, record)
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


def _requirements(
    parts: Parts, caller: Caller, spec_obj: RequestSpec, record: DecisionRecord
) -> Requirements:
    requirements = Requirements()
    request = PrefilterRequest(
        spec_obj=spec_obj,
        requirements=requirements,
        aggregates=parts.table.aggregates,
        conf=parts.conf,
        network=_network(parts, caller),
        min_service_version=parts.table.least_service_version(),
    )
    for name, prefilter in parts.prefilters:
        try:
            _run(name, prefilter, request)
        except NoValidHost as e:
            record.steps.append(FilterStep(name, len(parts.table), 0, e.reason))
            raise
    aim(spec_obj, parts.table, requirements)
    return requirements


def _run(name: str, prefilter: Prefilter, request: PrefilterRequest) -> None:
    try:
        prefilter(request)
    except SchedulerError:
        raise
    except Exception as e:
        # Whatever somebody else's code raises, the error names the prefilter.
        raise PluginError(f"prefilter {name} failed: {type(e).__name__}: {e}") from e


def _network(parts: Parts, caller: Caller) -> NetworkLookup | None:
    if parts.network is None:
        return None
    aggregates = functools.partial(_provider_aggregates, parts, caller)
    return NetworkLookup(parts.network, aggregates)


def _provider_aggregates(
    parts: Parts, caller: Caller, provider_uuid: str
) -> frozenset[str]:
    url = f"/resource_providers/{provider_uuid}/aggregates"
    body: Any = parts.placement.read(url, global_request_id=caller.global_request_id)
    try:
        return frozenset(body["aggregates"])
    except (KeyError, TypeError) as e:
        raise PlacementUnavailable(f"GET {url} answered no aggregates: {body}") from e


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
