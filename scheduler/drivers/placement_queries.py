# SPDX-License-Identifier: Apache-2.0
"""Translate a request into queries for allocation candidates, and send them."""

from __future__ import annotations

import functools
import logging
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ...filters import BaseHostFilter
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
from ..hosts import HostAggregate, HostTable
from ..locality import Places, place_of
from ..placement.conditions import conditions_of
from ..placement.health import NO_PROVIDERS
from ..placement.query import Requirements, build_fallback_query, build_query
from ..prefilters import NetworkLookup, Prefilter, PrefilterRequest
from ..request import Request
from ..request.locality import InPlaces, Rule, WithInstances
from .attachment_places import apply_attachments, check_required
from .caller import Caller
from .claims.checks import FRESH_S, MAX_RECHECKED
from .parts import Parts
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


def narrow_to_places(
    request: Request,
    table: HostTable,
    levels: Sequence[str],
    filters: Collection[BaseHostFilter],
    requirements: Requirements,
) -> None:
    """Require the aggregates of the places that a rule names or implies.

    nova mirrors its host aggregates to Placement, of a service host with several nodes
    (Ironic) only for the first one. For rules that cannot be expressed so the query has
    no limit, as for nova's hints about other instances.
    """
    is_applied = any(isinstance(each, LocalityFilter) for each in filters)
    if not is_applied or request.skips_filters:
        return
    rules = request.locality_rules(levels)
    if not rules:
        return
    aggregates = _Aggregates(table, levels)
    for rule in rules:
        if uuids := aggregates.of_rule(rule):
            requirements.member_of.append(uuids)
        else:
            requirements.is_limited = False


class _Aggregates:
    """The aggregates that make up places."""

    def __init__(self, table: HostTable, levels: Sequence[str]) -> None:
        self._hosts = table.batch()
        self._places = Places(self._hosts, levels)
        found: defaultdict[tuple[str, str], list[HostAggregate]] = defaultdict(list)
        for each in table.aggregates:
            if place := place_of(each):
                found[place].append(each)
        self._found: Mapping[tuple[str, str], list[HostAggregate]] = found
        #: Aggregates of Placement only, of which each node is a member by itself.
        self._of_nodes: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for one in table.placement_places:
            self._of_nodes[one.place].add(one.aggregate)

    def of_rule(self, rule: Rule) -> frozenset[str]:
        """Return aggregates of which a host must be in one; empty: this is unknown."""
        if isinstance(rule, InPlaces) and rule.is_allowing:
            return self._of_places(rule.level, rule.places)
        if isinstance(rule, WithInstances) and not rule.is_group:
            counts = self._places.count(rule.level, rule.instances)
            names = self._places.names(rule.level)
            with_some = [names[i] for i in np.flatnonzero(counts)]
            return self._of_places(rule.level, with_some)
        return frozenset()

    def _of_places(self, level: str, names: Collection[str]) -> frozenset[str]:
        if self._places.has_reported(level):
            return frozenset()  # aggregates do not have all hosts of the places
        found = [each for name in names for each in self._found.get((level, name), ())]
        hosts = frozenset[str]().union(*(each.hosts for each in found))
        if self._have_several_nodes(hosts):
            return frozenset()
        of_nodes = (self._of_nodes.get((level, name), ()) for name in names)
        return frozenset(each.uuid for each in found).union(*of_nodes)

    def _have_several_nodes(self, hosts: Collection[str]) -> bool:
        """Return whether one of these service hosts has more than one compute node."""
        codes = self._hosts.codes("host")[self._hosts.matches("host", hosts)]
        return bool(len(codes)) and int(np.bincount(codes).max()) > 1


def query_candidates(
    parts: Parts,
    caller: Caller,
    queries: Sequence[CandidatesQuery],
    record: DecisionRecord,
    *,
    arrived: int,
    n_instances: int,
) -> Offer:
    """Return Placement's candidates for a request, at least one that is open.

    A cached answer is used if it has an open one.

    Parameters
    ----------
    queries : sequence of CandidatesQuery
        As `build_queries` returns them.
    arrived : int
        The tick at which the request arrived, as `CandidatesSource.tick` returned it.
    n_instances : int
        For many, a new query costs less than a check of each host's candidate.

    Raises
    ------
    NoValidHost
        There are none.
    PlacementError
        Placement could not be queried.
    """
    max_age_s = FRESH_S if n_instances > MAX_RECHECKED else math.inf
    offer = _query_all(parts, caller, queries, record, None, max_age_s)
    if not offer.n_open and not _is_fresh(offer, arrived):
        offer = _query_all(parts, caller, queries, record, arrived)
    _record_offer(record, offer)
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
    """Query Placement again, where its answer may be better than the earlier one.

    Return None if Placement was queried since the request arrived, or has nothing new.
    If the earlier one `is_stale`, one without what was refused is better.
    """
    is_lifted = [parts.candidates.lift_limit(offer) for offer in earlier.offers]
    if not any(is_lifted) and _is_fresh(earlier, arrived):
        return None
    offer = _query_all(parts, caller, queries, record, arrived)
    if not (is_stale and offer.n_open) and not offer.has_more_than(earlier):
        return None
    _record_offer(record, offer)
    return offer


def _is_fresh(offer: Offer, arrived: int) -> bool:
    """Return whether an offer is newer than that, and has all of Placement's answer."""
    return offer.began >= arrived and offer.is_complete


def _record_offer(record: DecisionRecord, offer: Offer) -> None:
    record.n_candidates, record.is_truncated = offer.n_open, offer.is_truncated


def build_queries(
    parts: Parts, request: Request, requirements: Requirements
) -> list[CandidatesQuery]:
    """Return a request's queries for allocation candidates.

    A guest with dedicated CPUs has two: the second one finds hosts that do not report
    PCPU yet, which come after those that do.
    """
    limit = parts.conf.scheduler.max_placement_results
    query = build_query(request, requirements, limit=limit)
    fallback = None
    if not parts.conf.workarounds.disable_fallback_pcpu_query:
        fallback = build_fallback_query(request, requirements, limit=limit)
    return [query] if fallback in (None, query) else [query, fallback]


def build_requirements(
    parts: Parts, caller: Caller, request: Request, record: DecisionRecord
) -> Requirements:
    """Run the prefilters; return the requirements in addition to resource amounts.

    Raises
    ------
    NoValidHost
        A prefilter rejects the request, or the requested host does not exist.
    """
    requirements = run_prefilters(parts, caller, request, record)
    restrict_to_requested_host(
        request, parts.table, requirements, lambda: parts.source.poll(parts.table)
    )
    narrow_to_places(
        request,
        parts.table,
        parts.conf.locality.levels,
        parts.filters,
        requirements,
    )
    return requirements


def run_prefilters(
    parts: Parts, caller: Caller, request: Request, record: DecisionRecord
) -> Requirements:
    """Return what the prefilters require of Placement, and look up attachments.

    Raises
    ------
    NoValidHost
        A prefilter rejects the request, or a required place is not known.
    """
    requirements = Requirements()
    argument = PrefilterRequest(
        spec_obj=request.spec_obj,
        requirements=requirements,
        aggregates=parts.table.aggregates,
        conf=parts.conf,
        network=_network(parts, caller),
        min_service_version=parts.table.least_service_version(),
        are_zones_checked=parts.source.are_zones_checked,
    )
    step = ATTACHMENTS
    try:
        with record.timed("prefilters"):
            for step, prefilter in parts.prefilters:
                _run(step, prefilter, argument)
            step = ATTACHMENTS
            found = apply_attachments(
                parts.attachments, request, parts.table, parts.conf
            )
            record.attachments = list(found)
            check_required(found)
    except NoValidHost as e:
        record.no_answer = f"Placement not queried: {step} rejected the request"
        record.steps.append(FilterStep(step, len(parts.table), 0, e.reason))
        raise
    return requirements


def _run(name: str, prefilter: Prefilter, request: PrefilterRequest) -> None:
    try:
        prefilter(request)
    except SchedulerError:
        raise
    except Exception as e:
        # Third-party code may raise anything: the error names the prefilter.
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


def _query_all(
    parts: Parts,
    caller: Caller,
    queries: Sequence[CandidatesQuery],
    record: DecisionRecord,
    since: int | None,
    max_age_s: float = math.inf,
) -> Offer:
    """Return the answers to all queries as one, without candidates known to be gone."""
    offers = []
    for query in queries:
        record.queries.append(shortened(query.path, _MAX_QUERY))
        with record.timed("placement"):
            offers.append(_query_one(parts, caller, query, record, since, max_age_s))
    return Offer(offers)


def _query_one(
    parts: Parts,
    caller: Caller,
    query: CandidatesQuery,
    record: DecisionRecord,
    since: int | None,
    max_age_s: float,
) -> QueryOffer:
    try:
        return parts.candidates.get(
            query,
            since=since,
            max_age_s=max_age_s if conditions_of(query) else math.inf,
            global_request_id=caller.global_request_id,
        )
    except PlacementRejected as e:
        # An unknown trait or class in a flavor: as for nova, no host has it.
        record.no_answer = "Placement rejected the query"
        raise NoValidHost(f"Placement rejected the query: {_refusal(e)}") from e
    except PlacementError:
        record.no_answer = "Placement gave no answer"
        raise


def _refusal(e: PlacementRejected) -> str:
    """Return the reason in Placement's words, which do not contain a URL."""
    return shortened(e.detail.removeprefix(_MALFORMED)).strip() or "no reason given"
