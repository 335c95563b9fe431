# SPDX-License-Identifier: Apache-2.0
"""Translate a request into queries for allocation candidates, and send them."""

from __future__ import annotations

import functools
import itertools
import logging
import math
from collections.abc import Sequence
from typing import Any, Final

from oslo_config import cfg

from ...filters.locality import LocalityFilter
from ..candidates import CandidatesQuery, Offer, QueryOffer
from ..errors import (
    NoValidHost,
    PlacementError,
    PlacementRejected,
    PlacementUnavailable,
    PluginError,
    SchedulerError,
    shortened,
)
from ..locality.hints import locality_rules
from ..placement.conditions import conditions_of
from ..placement.health import NO_PROVIDERS
from ..placement.query import Requirements, build_query
from ..prefilters import ENABLED_BY, NetworkLookup, PrefilterRequest
from ..request import Request
from .attachment_finder import apply_attachments, check_required
from .claims.checks import FRESH_S, MAX_RECHECKED
from .parts import Parts
from .prepared import Caller
from .record import DecisionRecord, FilterStep
from .restrictions import restrict_to_requested_host

LOG = logging.getLogger(__name__)

#: The name of the step that looks up volumes and ports.
ATTACHMENTS: Final = "attachments"
#: The prefix of Placement's error details, which carries no information.
_MALFORMED: Final = (
    "The server could not comply with the request since it is either malformed or "
    "otherwise incorrect."
)
#: Maximum characters of a query in a record: more than most web servers accept.
_MAX_QUERY: Final = 8192


def query_candidates(
    parts: Parts,
    caller: Caller,
    queries: Sequence[CandidatesQuery],
    record: DecisionRecord,
    *,
    arrived: int,
    n_instances: int,
    is_current: bool = False,
) -> Offer:
    """Return Placement's candidates for a request, of which at least one is open.

    A cached answer is used if it has an open candidate.

    Parameters
    ----------
    queries : sequence of CandidatesQuery
        As `build_queries` returns them.
    arrived : int
        The sequence number that `CandidatesSource.next_sequence` returned when the
        request arrived.
    n_instances : int
        The number of instances. For many, an older cached answer is not used: a new
        query costs less than checking the candidate of each chosen host again.
    is_current : bool
        Whether only answers to queries since the request arrived are used.

    Raises
    ------
    NoValidHost
        There are no open candidates.
    PlacementError
        Placement could not be queried.
    """
    max_age_s = FRESH_S if n_instances > MAX_RECHECKED else math.inf
    since = arrived if is_current else None
    offer = _query_all(parts, caller, queries, record, since, max_age_s)
    if not offer.n_open and not _is_fresh(offer, arrived):
        offer = _query_all(parts, caller, queries, record, arrived)
    record.n_candidates, record.is_truncated = offer.n_open, offer.is_truncated
    if not offer.n_open:
        paths = ", ".join(query.path for query in queries)
        LOG.info("Placement has no allocation candidates for %s", paths)
        if parts.placement.is_empty():
            LOG.warning("%s", NO_PROVIDERS)
            raise NoValidHost(NO_PROVIDERS)
        raise NoValidHost()
    return offer


def requery_candidates(
    parts: Parts,
    caller: Caller,
    queries: Sequence[CandidatesQuery],
    record: DecisionRecord,
    *,
    arrived: int,
    earlier: Offer,
    is_stale: bool = False,
) -> Offer | None:
    """Query Placement again if its answer may be better than the earlier one.

    Return the new offer if it is better: if it has candidates that the earlier one does
    not have or, if the earlier one `is_stale`, any open candidates. Return None if it
    is not better, or if the earlier one is complete and newer than the request.
    """
    is_lifted = [parts.candidates.lift_limit(offer) for offer in earlier.offers]
    if not any(is_lifted) and _is_fresh(earlier, arrived):
        return None
    rejected = () if is_stale else earlier.offers
    offer = _query_all(parts, caller, queries, record, arrived, rejected=rejected)
    if not (is_stale and offer.n_open) and not offer.has_more_than(earlier):
        return None
    record.n_candidates, record.is_truncated = offer.n_open, offer.is_truncated
    return offer


def _is_fresh(offer: Offer, arrived: int) -> bool:
    """Return whether an offer is complete, and was queried since `arrived`."""
    return offer.began >= arrived and offer.is_complete


def build_queries(
    parts: Parts, request: Request, requirements: Requirements
) -> list[CandidatesQuery]:
    """Return a request's queries for allocation candidates.

    A guest with dedicated CPUs has two queries. The second one finds hosts that do not
    report PCPU yet; its candidates come after those of the first query.
    """
    limit = parts.conf.scheduler.max_placement_results
    queries = [build_query(request, requirements, limit=limit)]
    groups = request.fallback_groups
    if groups is not None and not parts.conf.workarounds.disable_fallback_pcpu_query:
        fallback = build_query(request, requirements, limit=limit, groups=groups)
        if fallback not in queries:
            queries.append(fallback)
    return queries


def build_requirements(
    parts: Parts, caller: Caller, request: Request, record: DecisionRecord
) -> Requirements:
    """Run the prefilters; return the requirements in addition to resource amounts.

    Raises
    ------
    NoValidHost
        A prefilter rejects the request, the requested host does not exist, or a
        required place is not known.
    """
    requirements = run_prefilters(parts, caller, request, record)
    restrict_to_requested_host(request, parts.table, requirements, parts.source.poll)
    levels = parts.conf.locality.levels
    if (
        levels
        and not request.skips_filters
        and any(isinstance(filter_, LocalityFilter) for filter_ in parts.filters)
        and locality_rules(request, levels)
    ):
        # The hosts of an allowed place may all be beyond a limit. The aggregates of the
        # place cannot be required instead: sharing providers are in no place.
        requirements.is_limited = False
    return requirements


def is_enabled(name: str, conf: cfg.ConfigOpts) -> bool:
    """Return whether the options enable a prefilter, which may change at any time."""
    option = ENABLED_BY.get(name)
    return option is None or bool(conf.scheduler[option])


def run_prefilters(
    parts: Parts, caller: Caller, request: Request, record: DecisionRecord
) -> Requirements:
    """Return what the prefilters require of Placement, and look up attachments.

    Raises
    ------
    NoValidHost
        A prefilter rejects the request, or a required place is not known.
    """
    requirements, network = Requirements(), None
    if parts.network is not None:
        aggregates = functools.partial(_provider_aggregates, parts, caller)
        network = NetworkLookup(parts.network, aggregates)
    argument = PrefilterRequest(
        spec_obj=request.spec_obj,
        requirements=requirements,
        aggregates=parts.table.aggregates,
        conf=parts.conf,
        network=network,
        min_service_version=parts.table.least_service_version(),
        are_zones_checked=parts.source.are_zones_checked,
    )
    step = ""
    try:
        with record.timed("prefilters"):
            for name, prefilter in parts.prefilters:
                step = name
                if not is_enabled(name, parts.conf):
                    continue
                try:
                    prefilter(argument)
                except SchedulerError:
                    raise
                except Exception as e:
                    # A prefilter of a third party may raise anything; the error names
                    # the prefilter.
                    raise PluginError(
                        f"prefilter {name} failed: {type(e).__name__}: {e}"
                    ) from e
            step = ATTACHMENTS
            if parts.conf.locality.levels and not request.skips_filters:
                # Nothing is looked up for forced hosts, to which no rule applies.
                record.attachments = list(
                    apply_attachments(
                        parts.attachments, request, parts.table, parts.conf
                    )
                )
                check_required(record.attachments)
    except NoValidHost as e:
        record.no_answer = f"Placement not queried: {step} rejected the request"
        record.steps.append(FilterStep(step, len(parts.table), 0, e.reason))
        raise
    return requirements


def _provider_aggregates(
    parts: Parts, caller: Caller, provider_uuid: str
) -> frozenset[str]:
    url = f"/resource_providers/{provider_uuid}/aggregates"
    body: Any = parts.placement.read(url, global_request_id=caller.global_request_id)
    try:
        return frozenset(body["aggregates"])
    except (KeyError, TypeError) as e:
        raise PlacementUnavailable(f"GET {url} answered no aggregates: {body}") from e


def _query_all(
    parts: Parts,
    caller: Caller,
    queries: Sequence[CandidatesQuery],
    record: DecisionRecord,
    since: int | None,
    max_age_s: float = math.inf,
    rejected: Sequence[QueryOffer] = (),
) -> Offer:
    """Return the answers to all queries as one offer.

    Parameters
    ----------
    since, max_age_s
        The minimum sequence number, and the maximum age in seconds, of cached answers
        that may be used.
    rejected : sequence of QueryOffer
        Earlier offers of the queries, whose answers are not used again.
    """
    offers = []
    for query, rejected_offer in itertools.zip_longest(queries, rejected):
        record.queries.append(shortened(query.path, _MAX_QUERY))
        try:
            with record.timed("placement"):
                offer = parts.candidates.get(
                    query,
                    since=since,
                    max_age_s=max_age_s if conditions_of(query) else math.inf,
                    rejected=rejected_offer,
                    n_instances=record.n_instances,
                    project_id=caller.project_id,
                    global_request_id=caller.global_request_id,
                )
        except PlacementRejected as e:
            # A flavor has an unknown trait or resource class: as for nova, no host has
            # it. The reason is in Placement's words, which do not contain a URL.
            record.no_answer = "Placement rejected the query"
            reason = shortened(e.detail.removeprefix(_MALFORMED)).strip()
            raise NoValidHost(
                f"Placement rejected the query: {reason or 'no reason given'}"
            ) from e
        except PlacementError:
            record.no_answer = "Placement gave no answer"
            raise
        offers.append(offer)
    return Offer(offers)
