# SPDX-License-Identifier: Apache-2.0
"""Ask Placement what a request means to it, and where that would fit."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Sequence
from typing import Any, Final

from ...objects import RequestSpec
from ..errors import (
    NoValidHost,
    PlacementError,
    PlacementRejected,
    PlacementUnavailable,
    PluginError,
    SchedulerError,
    shortened,
)
from ..placement.conditions import conditions_of
from ..placement.offers import Offer
from ..placement.query import (
    CandidatesQuery,
    Requirements,
    build_fallback_query,
    build_query,
)
from ..placement.registration import NO_PROVIDERS
from ..prefilters import NetworkLookup, Prefilter, PrefilterRequest
from .base import Parts
from .caller import Caller
from .rechecks import FRESH_S, MAX_RECHECKED
from .record import DecisionRecord, FilterStep
from .restrictions import aim

LOG = logging.getLogger(__name__)

#: What Placement's reasons begin with, and what says nothing.
_MALFORMED: Final = (
    "The server could not comply with the request since it is either malformed or "
    "otherwise incorrect."
)
#: Characters of a question that a record has: more than most web servers take.
_MAX_QUERY: Final = 8192


def ask(
    parts: Parts,
    caller: Caller,
    asked: Sequence[CandidatesQuery],
    record: DecisionRecord,
    *,
    came: int,
    n_instances: int,
) -> Offer:
    """Return Placement's candidates for a request, at least one that is open.

    An answer that is kept will do, if there is an open one in it.

    Parameters
    ----------
    asked : sequence of CandidatesQuery
        The request's `questions`.
    came : int
        The moment at which the request came, as `CandidatesCache.tick` gave it.
    n_instances : int
        Of many, it costs less to ask afresh than to check each host's candidate.

    Raises
    ------
    NoValidHost
        There are none.
    PlacementError
        Placement could not be asked.
    """
    max_age_s = FRESH_S if n_instances > MAX_RECHECKED else math.inf
    offer = _answer(parts, caller, asked, record, None, max_age_s)
    if not offer.n_open and not _is_fresh(offer, came):
        offer = _answer(parts, caller, asked, record, came)
    _note_offer(record, offer)
    if not offer.n_open:
        paths = ", ".join(question.path for question in asked)
        LOG.info("Placement has no allocation candidates for %s", paths)
        if parts.placement.is_empty():
            LOG.warning("%s", NO_PROVIDERS)
            raise NoValidHost(NO_PROVIDERS)
        raise NoValidHost()
    return offer


def ask_again(
    parts: Parts,
    caller: Caller,
    asked: Sequence[CandidatesQuery],
    record: DecisionRecord,
    *,
    came: int,
    earlier: Offer,
) -> Offer | None:
    """Return Placement's candidates afresh, where these may be better than earlier.

    None: Placement was asked since the request came, or knows no better.
    """
    if not parts.candidates_cache.lift_limit(earlier) and _is_fresh(earlier, came):
        return None
    offer = _answer(parts, caller, asked, record, came)
    if not offer.has_more_than(earlier):
        return None
    _note_offer(record, offer)
    return offer


def _is_fresh(offer: Offer, came: int) -> bool:
    """Return whether Placement was asked since then, and all that it has is offered."""
    return offer.began >= came and offer.is_complete


def _note_offer(record: DecisionRecord, offer: Offer) -> None:
    record.n_candidates, record.is_truncated = offer.n_open, offer.is_truncated


def questions(
    parts: Parts, spec_obj: RequestSpec, requirements: Requirements
) -> list[CandidatesQuery]:
    """Return what Placement is to be asked for a request.

    A guest with dedicated CPUs is asked for twice: hosts that do not report PCPU yet
    come after those that do.
    """
    limit = parts.conf.scheduler.max_placement_results
    query = build_query(spec_obj, requirements, limit=limit)
    fallback = None
    if not parts.conf.workarounds.disable_fallback_pcpu_query:
        fallback = build_fallback_query(spec_obj, requirements, limit=limit)
    return [query] if fallback in (None, query) else [query, fallback]


def required(
    parts: Parts, caller: Caller, spec_obj: RequestSpec, record: DecisionRecord
) -> Requirements:
    """Return what a request requires of Placement besides amounts; prefilters tell.

    Raises
    ------
    NoValidHost
        A prefilter says so, or the host that is wanted does not exist.
    """
    requirements = Requirements()
    request = PrefilterRequest(
        spec_obj=spec_obj,
        requirements=requirements,
        aggregates=parts.table.aggregates,
        conf=parts.conf,
        network=_network(parts, caller),
        min_service_version=parts.table.least_service_version(),
        are_zones_checked=parts.source.are_zones_checked,
    )
    with record.timed("prefilters"):
        _run_all(parts, request, record)
    aim(spec_obj, parts.table, requirements, lambda: parts.source.poll(parts.table))
    return requirements


def _run_all(parts: Parts, request: PrefilterRequest, record: DecisionRecord) -> None:
    for name, prefilter in parts.prefilters:
        try:
            _run(name, prefilter, request)
        except NoValidHost as e:
            record.no_answer = f"Placement not asked: {name} rejected the request"
            record.steps.append(FilterStep(name, len(parts.table), 0, e.reason))
            raise


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
    parts: Parts,
    caller: Caller,
    questions: Sequence[CandidatesQuery],
    record: DecisionRecord,
    since: int | None,
    max_age_s: float = math.inf,
) -> Offer:
    """Return the answers to some questions as one, less what is known to be gone."""
    offer: Offer | None = None
    for question in questions:
        record.queries.append(shortened(question.path, _MAX_QUERY))
        with record.timed("placement"):
            part = _asked(parts, caller, question, record, since, max_age_s)
        offer = part if offer is None else offer.followed_by(part)
    assert offer is not None
    return offer


def _asked(
    parts: Parts,
    caller: Caller,
    question: CandidatesQuery,
    record: DecisionRecord,
    since: int | None,
    max_age_s: float,
) -> Offer:
    try:
        return parts.candidates_cache.get(
            question,
            since=since,
            max_age_s=max_age_s if conditions_of(question) else math.inf,
            global_request_id=caller.global_request_id,
        )
    except PlacementRejected as e:
        # An unknown trait or class in a flavor: as for nova, no host has it.
        record.no_answer = "Placement refused the question"
        raise NoValidHost(f"Placement refused the question: {_refusal(e)}") from e
    except PlacementError:
        record.no_answer = "Placement gave no answer"
        raise


def _refusal(e: PlacementRejected) -> str:
    """Return why, in Placement's own words: of a URL it says nothing."""
    return shortened(e.detail.removeprefix(_MALFORMED)).strip() or "no reason given"
