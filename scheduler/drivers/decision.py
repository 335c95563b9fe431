# SPDX-License-Identifier: Apache-2.0
"""One decision, from the request to claimed selections."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
from collections.abc import Collection, Sequence

from ...objects import RequestSpec, Selection
from ..candidates import Offer
from ..errors import NoValidHost, PluginError
from ..hosts import HostBatch
from ..placement.allocations.limits import MAX_QUERIES, MAX_REREAD_TREES
from ..request import Request
from ..request.checks import instance_uuids_of
from .caller import Caller
from .claims.accepting import Claims
from .claims.fits import FitCheck
from .claims.levels import LevelCheck
from .claims.peer_claims import PeerClaim
from .claims.rechecks import MAX_RECHECKED, Rechecks
from .claims.request_claims import RequestClaims, StaleOffer
from .instances import NOT_ENOUGH, Needs, PlacedInstance, fill_provider_mapping
from .named_groups import with_current_groups
from .parts import Parts
from .placement_queries import (
    build_queries,
    build_requirements,
    query_candidates,
    requery_candidates,
)
from .placer import Placer
from .ranker import HostRanker
from .record import DecisionRecord, ReplayKey
from .restrictions import evacuated_from, restrict_hosts
from .seen import Seen
from .steps import Steps
from .user_reasons import count_causes

LOG = logging.getLogger(__name__)


class Decision:
    """The decision of one request; an instance is used once.

    Parameters
    ----------
    is_dry : bool
        Whether nothing is claimed: each instance gets the best host that has a
        candidate left.
    repeated : ReplayKey, optional
        That of the decision that a dry one repeats.
    recorded : Claims, optional
        What a dry decision claims with, instead of reserving candidates.

    Raises
    ------
    InvalidRequest
        The request is malformed or contradictory.
    """

    def __init__(  # noqa: PLR0913 - the last four by name
        self,
        parts: Parts,
        caller: Caller,
        spec_obj: RequestSpec,
        instance_uuids: Sequence[str] | None,
        record: DecisionRecord,
        *,
        return_alternates: bool,
        is_dry: bool = False,
        repeated: ReplayKey | None = None,
        recorded: Claims | None = None,
    ) -> None:
        request = with_current_groups(parts, Request.validated(spec_obj))
        spec_obj = request.spec_obj
        if record.request is not None:
            record.request = spec_obj
        self._parts = parts
        self._caller = caller
        self._request = request
        self._uuids = instance_uuids_of(spec_obj, instance_uuids)
        if not self._uuids:
            raise NoValidHost(NOT_ENOUGH)  # nova's answer to a request for none
        self._is_rebuild = request.is_rebuild
        # An old conductor, which names no instances, claims by itself.
        self._is_claimed = instance_uuids is not None and not self._is_rebuild
        self._is_dry = is_dry
        self._recorded = recorded
        self._begin_pass = functools.partial(
            Seen.begin,
            parts,
            record,
            return_alternates=return_alternates,
            repeated=repeated,
        )
        #: What the current pass has read.
        self.seen = self._begin_pass()
        self._needs = Needs(request, parts.conf)
        self._record = record
        self._offer: Offer | None = None
        #: Set once it is known what the request requires: filters may depend on it.
        self._placer: Placer
        record.n_instances = len(self._uuids)

    def run(self) -> list[list[Selection]]:
        """Return a list an instance; see `BaseSchedulerDriver`.

        If a cached or truncated answer of Placement has no suitable host, Placement is
        queried again before the request fails; also if it refuses many claims on the
        candidates of an answer. Before a request fails, claims on those hosts, which
        may have ended, are reviewed, and the source is polled for the hosts' state.
        """
        if self._is_rebuild:
            self._placer = self._make_placer()
            self._refresh_hosts()
            self._caller.on_start(None)
            return self._decide(None)
        parts, caller, record = self._parts, self._caller, self._record
        arrived = parts.candidates.tick()
        self._refresh_hosts()
        requirements = build_requirements(parts, caller, self._request, record)
        self._placer = self._make_placer()
        queries = build_queries(parts, self._request, requirements)
        self.seen.queries = queries
        offer = query_candidates(
            parts,
            caller,
            queries,
            record,
            arrived=arrived,
            n_instances=len(self._uuids),
        )
        caller.on_start(requirements)
        n_decided = 1
        while True:
            try:
                return self._decide(offer, may_give_up=n_decided == 1)
            except StaleOffer:
                arrived = parts.candidates.tick()
                newer_offer = requery_candidates(
                    parts,
                    caller,
                    queries,
                    record,
                    arrived=arrived,
                    earlier=offer,
                    is_stale=True,
                )
            except NoValidHost:
                if n_decided == MAX_QUERIES:
                    raise
                self._report_lacking(offer)
                with record.timed("review"):
                    is_freed = parts.review(offer.roots)
                is_freed |= self._is_outdated()
                newer_offer = requery_candidates(
                    parts, caller, queries, record, arrived=arrived, earlier=offer
                )
                if newer_offer is None and not is_freed:
                    raise
            record.restart()
            n_decided += 1
            offer = offer.renewed() if newer_offer is None else newer_offer

    def _make_placer(self) -> Placer:
        """Prepare the filters and weighers that the request needs."""
        conf = self._parts.conf
        has_alternates = self.seen.return_alternates
        return Placer(
            HostRanker(self._parts, self._request, self._record),
            self._request,
            self._uuids,
            self._record,
            needs=self._needs,
            n_alternates=conf.scheduler.max_attempts - 1 if has_alternates else 0,
            default_zone=conf.default_availability_zone,
        )

    def _steps(
        self, hosts: HostBatch, ledger: Offer | None, claims: Claims | None
    ) -> Steps:
        return Steps(self._parts, self._placer, self._offer, hosts, ledger, claims)

    def _run_driver(self, steps: Steps) -> list[list[Selection]]:
        selections = self._parts.driver.select(steps)
        if selections is None or selections is not steps.made:
            raise PluginError(
                f"[moorage] driver: select of {type(self._parts.driver).__name__} must "
                "return what selections or select_by_weight of its steps returned"
            )
        return selections

    def reason_for_user(self, error: NoValidHost) -> str:
        """Return the reason that the caller gets, which may reach an end user.

        Where nova's says little, it has counts of hosts by cause, unless the option
        ``user_reasons`` is ``nova``.
        """
        options = self._parts.conf.moorage
        if error.reason not in ("", NOT_ENOUGH) or options.user_reasons == "nova":
            return error.reason
        return count_causes(
            self._record,
            self._request,
            self._parts.table.batch(),
            self._parts.table.aggregates,
            () if self._offer is None else self._offer.roots,
        )

    def _decide(
        self, offer: Offer | None, *, may_give_up: bool = False
    ) -> list[list[Selection]]:
        self._offer = offer
        before, self.seen = self.seen, self._begin_pass()
        self.seen.queries, self.seen.offer = before.queries, offer
        self.seen.is_again = before.view is not None
        if self._recorded is not None:
            self.seen.contention = self._recorded.contention
        self._placer.ranker.seen = self.seen
        hosts, ledger = self._load_hosts(offer)
        with self._record.timed("hosts"):
            hosts = restrict_hosts(hosts, self._request, self._record.steps)
        if ledger is None or not self._is_claimed or self._is_dry:
            ledger = ledger if self._is_dry else None
            steps = self._steps(hosts, ledger, self._recorded)
            selections = self._run_driver(steps)
            self._report_placement(steps.placed)
            return selections
        claims = self._request_claims(hosts, may_give_up=may_give_up)
        self._parts.orphans.release_before_new_claim(
            self._uuids, excluding=evacuated_from(self._request, self._parts.table)
        )
        try:
            steps = self._steps(hosts, ledger, claims)
            selections = self._run_driver(steps)
            placed = steps.placed
            # Not earlier: a request that is decided again must be unchanged.
            mappings = ledger.mappings_of(placed[-1].candidate)
            fill_provider_mapping(self._request, mappings)
            self._report_placement(placed)
            self._consume(placed, claims, ledger)
            claims.mark_answered()
        except BaseException:
            claims.release()
            raise
        return selections

    def _request_claims(self, hosts: HostBatch, *, may_give_up: bool) -> RequestClaims:
        parts, request, ranker = self._parts, self._request, self._placer.ranker
        global_request_id = self._caller.global_request_id
        rechecks = Rechecks(
            parts,
            request.spec_obj,
            ranker.filters,
            self._record,
            is_few=len(self._uuids) <= MAX_RECHECKED,
            global_request_id=global_request_id,
        )
        levels = LevelCheck(
            parts,
            request.spec_obj,
            ranker.filters,
            self._uuids,
            lambda: ranker.eligible,
            global_request_id=global_request_id,
        )
        fits = FitCheck(
            parts,
            request,
            self._needs,
            ranker.filters,
            ranker.limits,
            since=hosts.revision,
        )
        return RequestClaims(
            parts,
            self._caller,
            request,
            self._uuids,
            self._record,
            rechecks,
            levels,
            fits,
            contention=self.seen.contention,
            may_give_up=may_give_up,
        )

    def _report_placement(self, placed: Sequence[PlacedInstance]) -> None:
        [last] = (p for p in placed if p.instance_uuid == self._uuids[-1])
        assert last.ranking is not None
        self._caller.on_placed(last.ranking.hosts, last.index, last.consumption)

    def _consume(
        self, placed: Sequence[PlacedInstance], claims: RequestClaims, ledger: Offer
    ) -> None:
        table, now = self._parts.table, self._parts.clock()
        try:
            for each in placed:
                table.claims.consume(
                    each.value("uuid"), each.instance_uuid, each.consumption, now
                )
        except BaseException:
            for each in placed:
                # What an earlier request claimed was consumed by that, and stays.
                if claims.has_claimed(each.instance_uuid):
                    table.claims.release(each.value("host"), each.instance_uuid)
            raise
        self._parts.publish_claims(
            [self._peer_claim(each, ledger, now) for each in placed]
        )

    def _peer_claim(
        self, placed: PlacedInstance, ledger: Offer, now: float
    ) -> PeerClaim:
        claim = PeerClaim(
            node_uuid=placed.value("uuid"),
            instance_uuid=placed.instance_uuid,
            claimed_at=now,
            consumption=placed.consumption,
            resources=ledger.resources_of(placed.candidate),
        )
        if placed.consumption.need is None:
            return claim
        return dataclasses.replace(
            claim,
            spec_obj=self._request.spec_obj,
            limits=placed.limits,
            mappings=ledger.mappings_of(placed.candidate),
        )

    # -- hosts -----------------------------------------------------------------------

    def _refresh_hosts(self, missing: Collection[str] = ()) -> None:
        """Have the source refresh the hosts for a decision, as well as it can."""
        with self._record.timed("refresh"):
            self._parts.source.refresh_if_stale(self._parts.table, missing)
        self._parts.candidates.invalidate_older_than(self._parts.table.supply_revision)
        self._report_freed()

    def _report_freed(self) -> None:
        """Have the providers read again of hosts that an instance has left."""
        if freed := self._parts.table.take_freed():
            self._parts.candidates.mark_changed(freed)

    def _report_lacking(self, offer: Offer) -> None:
        """Have providers read again that have room, though not for all instances."""
        if len(self._uuids) > 1:
            roots = itertools.islice(offer.roots, MAX_REREAD_TREES)
            self._parts.candidates.mark_changed(list(roots))

    def _is_outdated(self) -> bool:
        """Poll the source; return whether hosts have changed since the decision."""
        table = self._parts.table
        with self._record.timed("refresh"):
            is_polled = self._parts.source.poll(table)
        self._report_freed()
        return is_polled and table.revision != self._record.view_revision

    def _hosts_of_offer(self, offer: Offer) -> HostBatch:
        """Return the hosts of Placement's candidates; refresh if some are new."""
        table = self._parts.table
        with self._record.timed("hosts"):
            hosts = table.batch_of_offer(offer)
        if len(hosts) < offer.n_roots:
            missing = table.missing(offer.roots)
            if missing:
                self._refresh_hosts(missing)
                with self._record.timed("hosts"):
                    hosts = table.batch_of_offer(offer)
        return hosts

    def _load_hosts(self, offer: Offer | None) -> tuple[HostBatch, Offer | None]:
        """Return the hosts of Placement's candidates; all of them for a rebuild."""
        table = self._parts.table
        ledger = None
        if offer is None:
            hosts = table.batch()
        else:
            ledger = offer
            hosts = self._hosts_of_offer(offer)
            self._record_unknown_providers(offer, hosts)
        self._record.n_hosts = len(hosts)
        self._record.view_revision = self.seen.revision = hosts.revision
        self._record.view_age_s = self._parts.source.age_s(self._parts.clock())
        self._parts.views.begin(self._parts, self.seen)
        return hosts, ledger

    def _record_unknown_providers(self, offer: Offer, hosts: HostBatch) -> None:
        self._record.n_without_row = offer.n_roots - len(hosts)
        if not len(hosts):
            LOG.error(
                "Placement has %d allocation candidate(s), but none of their %d root "
                "provider(s) is a known host, for example not %s: do the source of "
                "hosts and Placement describe the same cloud?",
                offer.n_open,
                offer.n_roots,
                next(iter(offer.roots)),
            )
