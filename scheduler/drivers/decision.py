# SPDX-License-Identifier: Apache-2.0
"""One decision of filter_scheduler, from the request to claimed selections."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from ...filters import BaseHostFilter
from ...objects import RequestSpec, Selection
from ...weighers import BaseHostWeigher
from ..candidates import DecisionOffer
from ..errors import AllocationUpdateFailed, NoValidHost, PluginError
from ..hosts import HostBatch
from ..placement.allocations.limits import MAX_POSTS, MAX_QUERIES, MAX_REREAD_TREES
from ..request import Request
from ..request.checks import instance_uuids_of
from .alternates import SelectionMaker
from .base import Weigh
from .caller import Caller
from .claims.accepting import (
    NO_CANDIDATE,
    Accept,
    Claims,
    accept_any,
    accept_held,
    claim_in_placement,
    first_accepted,
    reserve_in_ledger,
)
from .claims.fits import FitCheck
from .claims.ledger import Ledger
from .claims.levels import LevelCheck
from .claims.peer_claims import PeerClaim
from .claims.rechecks import MAX_RECHECKED, Rechecks
from .claims.request_claims import RequestClaims, StaleOffer
from .filtering import collect_limits, filter_hosts
from .instances import (
    NOT_ENOUGH,
    ChosenHost,
    Mappings,
    Needs,
    PlacedInstance,
    fill_provider_mapping,
    hosts_after,
    spec_of_instance,
)
from .named_groups import with_current_groups
from .parts import Parts
from .placement_queries import (
    build_queries,
    build_requirements,
    query_candidates,
    requery_candidates,
)
from .record import TOP_INSTANCES, DecisionRecord, InstanceRecord, ReplayKey
from .restrictions import evacuated_from, restrict_hosts
from .seen import Seen
from .steps import Steps
from .together import Together
from .user_reasons import count_causes
from .weighing import Ranking, checked_weights, is_random, rank_hosts

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
        max_attempts = parts.conf.scheduler.max_attempts
        self._n_alternates = max_attempts - 1 if return_alternates else 0
        self._needs = Needs(request, parts.conf)
        self._record = record
        #: Set with the filters and weighers.
        self.together: Together
        self._offer: DecisionOffer | None = None
        #: Those that the request needs, once it is known what they depend on.
        self._filters: Sequence[BaseHostFilter] = ()
        self._n_first = 0
        self._weighers: Sequence[BaseHostWeigher] = ()
        #: The hosts that the first filters passed, and the number of steps until then.
        self._eligible: HostBatch
        self._n_steps = 0
        #: Weighs hosts instead of the weighers.
        self._weigh: Weigh | None = None
        record.n_instances = len(self._uuids)

    def run(self) -> list[list[Selection]]:
        """Return a list an instance; see `BaseSchedulerDriver`.

        If a cached or truncated answer of Placement has no suitable host, Placement is
        queried again before the request fails; also if it refuses many claims on the
        candidates of an answer. Before a request fails, claims on those hosts, which
        may have ended, are reviewed, and the source is polled for the hosts' state.
        """
        if self._is_rebuild:
            self._prepare_plugins()
            self._refresh_hosts()
            self._caller.on_start(None)
            return self._decide(None)
        parts, caller, record = self._parts, self._caller, self._record
        arrived = parts.candidates.tick()
        self._refresh_hosts()
        requirements = build_requirements(parts, caller, self._request, record)
        self._prepare_plugins()
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
            offer = offer if newer_offer is None else newer_offer

    def _prepare_plugins(self) -> None:
        """Prepare the filters and weighers that the request needs."""
        parts, request = self._parts, self._request
        spec_obj = request.spec_obj
        filters = () if request.skips_filters else parts.filters
        prepared = [filter_.prepare(spec_obj) for filter_ in filters]
        applied = [each for each in prepared if not each.is_idle]
        self._filters = sorted(applied, key=lambda each: each.may_pass_later)
        self._n_first = sum(not each.may_pass_later for each in applied)
        weighers = [weigher.prepare(spec_obj) for weigher in parts.weighers]
        self._weighers = [each for each in weighers if not each.is_idle]
        self.together = Together(request, self._filters, self._weighers, self._record)

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
        self, offer: DecisionOffer | None, *, may_give_up: bool = False
    ) -> list[list[Selection]]:
        self._offer = offer
        before, self.seen = self.seen, self._begin_pass()
        self.seen.queries, self.seen.offer = before.queries, offer
        self.seen.is_again = before.view is not None
        if self._recorded is not None:
            self.seen.contention = self._recorded.contention
        hosts, ledger = self._load_hosts(offer)
        with self._record.timed("hosts"):
            hosts = restrict_hosts(hosts, self._request, self._record.steps)
        if ledger is None or not self._is_claimed or self._is_dry:
            ledger = ledger if self._is_dry else None
            steps = Steps(self, hosts, ledger, self._recorded)
            selections = self._run_driver(steps)
            self._report_placement(steps.placed)
            return selections
        claims = RequestClaims(
            self._parts,
            self._caller,
            self._request,
            self._uuids,
            self._record,
            Rechecks(
                self._parts,
                self._request.spec_obj,
                self._filters,
                self._record,
                is_few=len(self._uuids) <= MAX_RECHECKED,
                global_request_id=self._caller.global_request_id,
            ),
            LevelCheck(
                self._parts,
                self._request.spec_obj,
                self._filters,
                self._uuids,
                lambda: self._eligible,
                global_request_id=self._caller.global_request_id,
            ),
            FitCheck(
                self._parts,
                self._request,
                self._needs,
                self._filters,
                self._limits,
                since=hosts.revision,
            ),
            contention=self.seen.contention,
            may_give_up=may_give_up,
        )
        self._parts.orphans.release_before_new_claim(
            self._uuids, excluding=evacuated_from(self._request, self._parts.table)
        )
        try:
            steps = Steps(self, hosts, ledger, claims)
            selections = self._run_driver(steps)
            placed = steps.placed
            # Not earlier: a request that is decided again must be unchanged.
            fill_provider_mapping(
                self._request, ledger.request(placed[-1].candidate)["mappings"]
            )
            self._report_placement(placed)
            self._consume(placed, claims, ledger)
            claims.mark_answered()
        except BaseException:
            claims.release()
            raise
        return selections

    def _report_placement(self, placed: Sequence[PlacedInstance]) -> None:
        [last] = (p for p in placed if p.instance_uuid == self._uuids[-1])
        assert last.ranking is not None
        self._caller.on_placed(last.ranking.hosts, last.index, last.consumption)

    def _consume(
        self, placed: Sequence[PlacedInstance], claims: RequestClaims, ledger: Ledger
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
        self, placed: PlacedInstance, ledger: Ledger, now: float
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
            mappings=_mappings(ledger, placed.candidate) or {},
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

    def _report_lacking(self, offer: DecisionOffer) -> None:
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

    def _hosts_of_offer(self, offer: DecisionOffer) -> HostBatch:
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

    def _load_hosts(
        self, offer: DecisionOffer | None
    ) -> tuple[HostBatch, Ledger | None]:
        """Return the hosts of Placement's candidates; all of them for a rebuild."""
        table = self._parts.table
        ledger = None
        if offer is None:
            hosts = table.batch()
        else:
            ledger = Ledger(offer)
            hosts = self._hosts_of_offer(offer)
            self._record_unknown_providers(offer, hosts)
        self._record.n_hosts = len(hosts)
        self._record.view_revision = self.seen.revision = hosts.revision
        self._record.view_age_s = self._parts.source.age_s(self._parts.clock())
        self._parts.views.begin(self._parts, self.seen)
        return hosts, ledger

    def _record_unknown_providers(self, offer: DecisionOffer, hosts: HostBatch) -> None:
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

    # -- a host for each instance ------------------------------------------------------

    @property
    def request(self) -> Request:
        """The request."""
        return self._request

    @property
    def instance_uuids(self) -> Sequence[str]:
        """The instances of the request."""
        return self._uuids

    def select_by_weight(
        self,
        hosts: HostBatch,
        ledger: Ledger | None,
        claims: Claims | None,
        placed: Sequence[PlacedInstance] = (),
        weigh: Weigh | None = None,
    ) -> tuple[list[PlacedInstance], list[list[Selection]]]:
        """Place all instances on the best hosts; return them, and their selections.

        Parameters
        ----------
        hosts : HostBatch
            With `placed` counted on them.
        placed : sequence of PlacedInstance
            Those that have a host already: not all.
        weigh : callable, optional
            Weighs hosts instead of the enabled weighers.
        """
        self._weigh = weigh
        have = {each.instance_uuid for each in placed}
        left = [uuid for uuid in self._uuids if uuid not in have]
        if ledger is None:
            made = self._place(hosts, left, None, accept_any)
        elif claims is None:
            made = self._place(hosts, left, ledger, reserve_in_ledger(ledger))
        else:
            made = self._claim_all(hosts, left, ledger, claims)
        made = [*placed, *made]
        others = self._ranked_alternates(made)
        return made, self.make_selections(made, ledger, others)

    def _claim_all(
        self,
        hosts: HostBatch,
        left: Sequence[str],
        ledger: Ledger,
        claims: Claims,
    ) -> list[PlacedInstance]:
        """Place and claim instances, several in one POST if Placement grants it.

        Refused instances move to other candidates and hosts, together at first, then
        one by one; granted claims stay. The instance that is placed last is placed with
        all others taken into account.
        """
        placed: list[PlacedInstance] = []
        for _ in range(MAX_POSTS):
            if len(left) < 2:
                break
            planned = self._place(
                hosts_after(hosts, placed), left, ledger, reserve_in_ledger(ledger)
            )
            left = claims.claim_together(planned, ledger)
            placed += [each for each in planned if each.instance_uuid not in left]
        if left:
            seen = hosts_after(hosts, placed)
            placed += self._claim_singly(seen, left, ledger, claims)
        return placed

    def _claim_singly(
        self,
        hosts: HostBatch,
        uuids: Sequence[str],
        ledger: Ledger,
        claims: Claims,
    ) -> list[PlacedInstance]:
        """Place and claim instances one by one.

        A request that is repeated because its answer was lost gets the same host again.
        """
        if claims.may_add:
            # Otherwise it would get a third host, in addition to this and the source.
            placed = self._adopt_earlier_claim(hosts, uuids, ledger, claims)
            if placed is not None:
                return placed
        claim = claim_in_placement(ledger, claims)
        try:
            return self._place(hosts, uuids, ledger, claim, claims)
        except AllocationUpdateFailed:
            placed = self._adopt_earlier_claim(hosts, uuids, ledger, claims)
            if placed is None:
                raise
            return placed

    def _adopt_earlier_claim(
        self,
        hosts: HostBatch,
        uuids: Sequence[str],
        ledger: Ledger,
        claims: Claims,
    ) -> list[PlacedInstance] | None:
        if len(self._uuids) > 1:
            return None
        earlier = claims.held_candidate(uuids[0], ledger)
        if earlier is None:
            return None
        LOG.info("Instance %s has its allocation already", uuids[0])
        placed = self._place(hosts, uuids, ledger, accept_held(ledger, earlier))
        return placed if claims.take_over(placed[0], ledger) else None

    def _place(
        self,
        hosts: HostBatch,
        uuids: Sequence[str],
        ledger: Ledger | None,
        accept: Accept,
        claims: Claims | None = None,
    ) -> list[PlacedInstance]:
        """Select the best accepting host for each instance, or raise NoValidHost.

        A host that a filter rejected is not considered for later instances, except for
        filters with ``may_pass_later``. If none accepted and some were only busy, all
        are tried again, a few times.
        """
        placed: list[PlacedInstance] = []
        for number, uuid in enumerate(uuids):
            ranking = self._rank(hosts, uuid, number)
            found = first_accepted(ranking, uuid, accept)
            rounds = 1
            while found is None and claims and claims.may_try_again(rounds):
                if claims.counts_others:
                    passing = self._filter_last(uuid, number)
                    ranking = self._ranked(passing, uuid)
                found = first_accepted(ranking, uuid, accept)
                rounds += 1
            if found is None:
                raise NoValidHost(NOT_ENOUGH)
            index, candidate = found
            if placed and placed[-1].instance_uuid != self._uuids[-1]:
                placed[-1] = placed[-1].without_ranking()
            placed.append(
                self.place_instance(
                    ranking, uuid, index, candidate, ledger,
                    has_top=number < TOP_INSTANCES,
                )
            )  # fmt: skip
            hosts = self._eligible
            if len(uuids) > 1:
                at = _index_in(hosts, ranking.hosts, index)
                hosts = hosts.with_instance(at, uuid, placed[-1].consumption)
        return placed

    def place_instance(
        self,
        ranking: Ranking,
        uuid: str,
        index: int,
        candidate: int,
        ledger: Ledger | None,
        *,
        has_top: bool = True,
        weighed: Ranking | None = None,
    ) -> PlacedInstance:
        """Return an instance with its host, which has accepted it.

        Parameters
        ----------
        has_top : bool
            Whether the decision record gets the best hosts of the ranking.
        weighed : Ranking, optional
            Has the weights for the record, if not `ranking`.
        """
        its_limits = self._limits(ranking.hosts, index)
        consumption = self._needs.on_host(its_limits, _mappings(ledger, candidate))
        shown, at = ranking, index
        if weighed is not None:
            shown, at = weighed, _index_in(weighed.hosts, ranking.hosts, index)
        chosen = ChosenHost.of(shown, at, has_top=has_top)
        return PlacedInstance(
            uuid, chosen, candidate, its_limits, consumption, index, ranking
        )

    def _limits(self, hosts: HostBatch, index: int) -> dict[str, object]:
        return collect_limits(
            self._filters,
            hosts[index],
            self._request.spec_obj,
            is_rebuild=self._is_rebuild,
        )

    def _rank(self, hosts: HostBatch, uuid: str, number: int) -> Ranking:
        return self._ranked(self.filter_hosts(hosts, uuid, number), uuid)

    def _ranked(self, hosts: HostBatch, uuid: str) -> Ranking:
        """Return hosts in the order of the driver's weights, or of the weighers'."""
        if self._weigh is None:
            return self.rank_hosts(hosts, uuid)
        what = f"[moorage] driver: weigh of {type(self._parts.driver).__name__}"
        with self._record.timed("weighers"):
            compute = functools.partial(self._weigh, hosts, uuid)
            return Ranking(
                hosts, checked_weights(what, hosts, compute), self._ties(hosts)
            )

    def filter_hosts(self, hosts: HostBatch, uuid: str, number: int) -> HostBatch:
        """Return the hosts that pass for an instance, by its number in the request."""
        first = self._filters[: self._n_first]
        self._eligible = self._run_filters(first, hosts, uuid, number)
        self._n_steps = len(self._record.steps)
        return self._filter_last(uuid, number)

    def assume_placed(self, hosts: HostBatch) -> None:
        """Count instances that are about to be claimed, for checks after the claim."""
        self._eligible = hosts

    def free(self, provider: str, name: str) -> int:
        """Return what a provider of a candidate has left, with nothing reserved."""
        return 0 if self._offer is None else self._offer.free(provider, name)

    @property
    def record(self) -> DecisionRecord:
        """The record of the decision."""
        return self._record

    def monotonic(self) -> float:
        """Return the seconds of a clock that is never set."""
        return self._parts.waiter.monotonic()

    def _filter_last(self, uuid: str, number: int) -> HostBatch:
        """Return the eligible hosts that also pass the filters that run last."""
        last = self._filters[self._n_first :]
        if not last or not len(self._eligible):
            return self._eligible
        del self._record.steps[self._n_steps :]
        return self._run_filters(last, self._eligible, uuid, number)

    def _run_filters(
        self,
        filters: Sequence[BaseHostFilter],
        hosts: HostBatch,
        uuid: str,
        number: int,
    ) -> HostBatch:
        with self._record.timed("filters"):
            return filter_hosts(
                filters,
                hosts,
                spec_of_instance(self._request.spec_obj, uuid),
                index=number,
                is_rebuild=self._is_rebuild,
                steps=self._record.steps,
            )

    @property
    def rng(self) -> np.random.Generator:
        """A random generator whose seed is that of the pass."""
        return self.seen.rng(self._parts.rng)

    def rank_hosts(self, hosts: HostBatch, uuid: str) -> Ranking:
        """Return hosts in the order of the weighers' weights for an instance."""
        conf, contention = self._parts.conf, self.seen.contention
        rng, n_choices = self._parts.rng, contention.n_choices
        if is_random(conf, n_choices):
            rng = self.rng
        with self._record.timed("weighers"):
            return rank_hosts(
                self._weighers,
                hosts,
                spec_of_instance(self._request.spec_obj, uuid),
                conf=conf,
                ties=self._ties(hosts),
                rng=rng,
                n_choices=n_choices,
                nearness=contention.nearness,
            )

    def _ties(self, hosts: HostBatch) -> npt.NDArray[np.float64]:
        """Return tie breakers, which are constant for a row until the next start."""
        n_rows = int(hosts.rows.max()) + 1 if len(hosts) else 0
        of_rows = _random_order(self._parts.tie_seed, 1 << n_rows.bit_length())
        ties: npt.NDArray[np.float64] = of_rows[hosts.rows]
        return ties

    # -- the answer --------------------------------------------------------------------

    def _ranked_alternates(self, placed: Sequence[PlacedInstance]) -> Ranking:
        last = placed[-1]
        others = last.ranking
        assert others is not None
        if self._n_alternates and len(placed) > 1:
            # Alternates are ranked with all instances of the request on their hosts.
            after = others.hosts.with_instance(
                last.index, last.instance_uuid, last.consumption
            )
            others = self._rank(after, last.instance_uuid, len(placed) - 1)
        return others

    def make_selections(
        self,
        placed: Sequence[PlacedInstance],
        ledger: Ledger | None,
        others: Ranking,
    ) -> list[list[Selection]]:
        """Return a list an instance: its host, then alternates from `others`."""
        maker = SelectionMaker(
            ledger, self._limits, self._parts.conf.default_availability_zone
        )
        chosen = {each.value("uuid") for each in placed}
        of_instance = {each.instance_uuid: each for each in placed}
        # All instances in a cell share the alternates.
        alternates = {
            cell: maker.alternates(
                others, cell, chosen=chosen, number=self._n_alternates
            )
            for cell in {each.value("cell_uuid") for each in placed}
        }
        selections = []
        for uuid in self._uuids:
            mine = of_instance[uuid]
            others_of_cell = alternates[mine.value("cell_uuid")]
            selections.append([maker.of_instance(mine), *others_of_cell])
            self._record_instance(mine, selections[-1])
        return selections

    def _record_instance(
        self, placed: PlacedInstance, selections: Sequence[Selection]
    ) -> None:
        self._record.instances.append(
            InstanceRecord(
                instance_uuid=placed.instance_uuid,
                host=selections[0].service_host,
                weight=placed.chosen.weight,
                top_hosts=placed.chosen.top_hosts,
                alternates=tuple(s.service_host for s in selections[1:]),
                node=_unless(selections[0].nodename, selections[0].service_host),
            )
        )


def _unless(name: str, same: str) -> str:
    """Return a name; empty if it is the same as another."""
    return "" if name == same else name


@functools.lru_cache(maxsize=4)
def _random_order(seed: int, size: int) -> npt.NDArray[np.float64]:
    return np.random.default_rng(seed).random(size)


def _mappings(ledger: Ledger | None, candidate: int) -> Mappings | None:
    if ledger is None or candidate == NO_CANDIDATE:
        return None
    mappings: Mappings = ledger.request(candidate)["mappings"]
    return mappings


def _index_in(hosts: HostBatch, some: HostBatch, index: int) -> int:
    """Return the index in `hosts` of a host of some of them."""
    if hosts is some:
        return index
    return int(np.flatnonzero(hosts.rows == some.rows[index])[0])
