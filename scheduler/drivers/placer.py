# SPDX-License-Identifier: Apache-2.0
"""A host for each instance of a request, claimed, and the selections of the answer."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from ...objects import Selection
from ..candidates import Offer
from ..errors import AllocationUpdateFailed, NoValidHost
from ..hosts import HostBatch
from ..placement.allocations.limits import MAX_POSTS
from ..request import Request
from .alternates import SelectionMaker
from .base import Weigh
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
from .instances import NOT_ENOUGH, ChosenHost, Needs, PlacedInstance, hosts_after
from .ranker import HostRanker
from .record import TOP_INSTANCES, DecisionRecord, InstanceRecord
from .weighing import Ranking

LOG = logging.getLogger(__name__)


class Placer:
    """Places the instances of a request on ranked hosts.

    Parameters
    ----------
    needs : Needs
        What an instance needs of a host.
    n_alternates : int
        For each cell, at most.
    default_zone : str
        That of hosts in no zone, for the selections.

    Attributes
    ----------
    ranker : HostRanker
    request : Request
    instance_uuids : sequence of str
        The instances of the request.
    record : DecisionRecord
        Gets the instances that are placed.
    """

    def __init__(
        self,
        ranker: HostRanker,
        request: Request,
        instance_uuids: Sequence[str],
        record: DecisionRecord,
        *,
        needs: Needs,
        n_alternates: int,
        default_zone: str,
    ) -> None:
        self.ranker = ranker
        self.request = request
        self.instance_uuids = instance_uuids
        self.record = record
        self._needs = needs
        self._n_alternates = n_alternates
        self._default_zone = default_zone

    def select_by_weight(
        self,
        hosts: HostBatch,
        ledger: Offer | None,
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
        self.ranker.weigh = weigh
        have = {each.instance_uuid for each in placed}
        left = [uuid for uuid in self.instance_uuids if uuid not in have]
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
        ledger: Offer,
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
        ledger: Offer,
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
        ledger: Offer,
        claims: Claims,
    ) -> list[PlacedInstance] | None:
        if len(self.instance_uuids) > 1:
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
        ledger: Offer | None,
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
            ranking = self.ranker.rank(hosts, uuid, number)
            found = first_accepted(ranking, uuid, accept)
            rounds = 1
            while found is None and claims and claims.may_try_again(rounds):
                if claims.counts_others:
                    passing = self.ranker.filter_again(uuid, number)
                    ranking = self.ranker.rank_passing(passing, uuid)
                found = first_accepted(ranking, uuid, accept)
                rounds += 1
            if found is None:
                raise NoValidHost(NOT_ENOUGH)
            index, candidate = found
            if placed and placed[-1].instance_uuid != self.instance_uuids[-1]:
                placed[-1] = placed[-1].without_ranking()
            placed.append(
                self.place_instance(
                    ranking, uuid, index, candidate, ledger,
                    has_top=number < TOP_INSTANCES,
                )
            )  # fmt: skip
            hosts = self.ranker.eligible
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
        ledger: Offer | None,
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
        its_limits = self.ranker.limits(ranking.hosts, index)
        mappings = None
        if ledger is not None and candidate != NO_CANDIDATE:
            mappings = ledger.mappings_of(candidate)
        consumption = self._needs.on_host(its_limits, mappings)
        shown, at = ranking, index
        if weighed is not None:
            shown, at = weighed, _index_in(weighed.hosts, ranking.hosts, index)
        chosen = ChosenHost.of(shown, at, has_top=has_top)
        return PlacedInstance(
            uuid, chosen, candidate, its_limits, consumption, index, ranking
        )

    def _ranked_alternates(self, placed: Sequence[PlacedInstance]) -> Ranking:
        last = placed[-1]
        others = last.ranking
        assert others is not None
        if self._n_alternates and len(placed) > 1:
            # Alternates are ranked with all instances of the request on their hosts.
            after = others.hosts.with_instance(
                last.index, last.instance_uuid, last.consumption
            )
            others = self.ranker.rank(after, last.instance_uuid, len(placed) - 1)
        return others

    def make_selections(
        self,
        placed: Sequence[PlacedInstance],
        ledger: Offer | None,
        others: Ranking,
    ) -> list[list[Selection]]:
        """Return a list an instance: its host, then alternates from `others`."""
        maker = SelectionMaker(ledger, self.ranker.limits, self._default_zone)
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
        for uuid in self.instance_uuids:
            mine = of_instance[uuid]
            others_of_cell = alternates[mine.value("cell_uuid")]
            selections.append([maker.of_instance(mine), *others_of_cell])
            self._record_instance(mine, selections[-1])
        return selections

    def _record_instance(
        self, placed: PlacedInstance, selections: Sequence[Selection]
    ) -> None:
        self.record.instances.append(
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


def _index_in(hosts: HostBatch, some: HostBatch, index: int) -> int:
    """Return the index in `hosts` of a host of some of them."""
    if hosts is some:
        return index
    return int(np.flatnonzero(hosts.rows == some.rows[index])[0])
