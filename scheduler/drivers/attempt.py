# SPDX-License-Identifier: Apache-2.0
"""One attempt to decide a request: filter ▸ weigh ▸ claim ▸ selections.

candidates ─▶ filters ─▶ ranking ─▶ Claims ─▶ placed instances ─▶ selections
                 ▲                    │ refused: the next host
                 └────────────────────┘ claims of other requests: filter again
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...objects import RequestSpec, SchedulerLimits, Selection
from ..candidates import MICROVERSION, Offer, Rows
from ..errors import (
    AllocationUpdateFailed,
    NoValidHost,
)
from ..hosts import HostBatch, metadata_values
from ..placement.allocations.limits import MAX_POSTS
from .base import DecisionSteps, Selections, Weigh
from .claims.claims import Claims
from .claims.contention import MAX_NEARNESS, Contention
from .filter_chain import filter_hosts
from .instances import (
    NO_CANDIDATE,
    NOT_ENOUGH,
    Assignment,
    PlacedInstance,
    hosts_after,
    read_attributes,
    spec_of_instance,
)
from .prepared import PreparedRequest
from .ranking import Ranking
from .record import TOP_INSTANCES, InstanceRecord
from .user_reasons import Tried
from .weighing import checked_weights, rank_hosts

LOG = logging.getLogger(__name__)

#: Takes an instance, a batch of hosts, the index of a host, and the hosts that may get
#: other instances of the request. Returns the assignment of the instance to the host;
#: None: the host does not accept the instance.
_Accept = Callable[[str, HostBatch, int, HostBatch], Assignment | None]


class Attempt(DecisionSteps):
    """The steps of one attempt, and its state.

    Parameters
    ----------
    hosts : HostBatch
        The hosts that the request allows.
    offer : Offer or None
        None: all hosts are candidates of a rebuild.
    claims : Claims or None
        None: nothing is claimed, and any host is accepted.
    contention : Contention
        The share of refused claims, which the claims of this attempt change.
    random_seed : int or None
        The seed of the attempt that is repeated; None: one is drawn if needed.

    Attributes
    ----------
    placed : list of PlacedInstance
        The instances that have a host, in the order in which they got it.
    selected : list of list of Selection, or None
        What the driver has to return; None: no selections have been made yet.
    random_seed : int or None
        The seed of `rng`; None: nothing was chosen at random.
    """

    def __init__(
        self,
        prepared: PreparedRequest,
        hosts: HostBatch,
        offer: Offer | None,
        claims: Claims | None,
        contention: Contention,
        random_seed: int | None,
    ) -> None:
        self._prepared = prepared
        self._parts = prepared.parts
        self._record = prepared.record
        self._hosts = hosts
        #: Filters and weighers have not run yet: later changes may have escaped them.
        self._instances_revision = hosts.instances_revision
        self._offer = offer
        self._claims = claims
        self._contention = contention
        self.random_seed = random_seed
        self.placed: list[PlacedInstance] = []
        self.selected: Selections | None = None
        #: The hosts that passed the filters without ``may_pass_later``, for the last
        #: instance that was filtered.
        self._eligible = hosts
        #: The hosts that passed all filters, for the last instance that was filtered;
        #: None: no filter has run.
        self._passing: HostBatch | None = None
        #: The number of steps in the record after the filters without
        #: ``may_pass_later`` had run.
        self._n_steps = 0
        #: The request for the last instance that was filtered or weighed.
        self._spec: RequestSpec | None = None
        #: The driver's function that weighs hosts; None: the enabled weighers do.
        self._weigh: Weigh | None = None

    @functools.cached_property
    def rng(self) -> np.random.Generator:
        """The random generator of this attempt, seeded with `random_seed`."""
        if self.random_seed is None:
            self.random_seed = int(self._parts.rng.integers(2**62))
        return np.random.default_rng(self.random_seed)

    def _spec_of(self, uuid: str) -> RequestSpec:
        """Return the request for one instance; filters and weighers get the same."""
        if self._spec is None or self._spec.instance_uuid != uuid:
            self._spec = spec_of_instance(self._prepared.request.spec_obj, uuid)
        return self._spec

    def _filter(
        self,
        hosts: HostBatch,
        uuid: str,
        number: int,
        *,
        is_again: bool = False,
        changed: Rows | None = None,
    ) -> HostBatch:
        """Return the hosts that pass all filters for an instance.

        Parameters
        ----------
        number : int
            The number of the instance among those that are placed.
        is_again : bool
            Whether only filters with ``may_pass_later`` run.
        changed : ndarray of intp, optional
            See `filter_hosts`; for filters without ``may_pass_later``.
        """
        prepared, record = self._prepared, self._record
        first_filters = prepared.filters[: prepared.n_first]
        last_filters = prepared.filters[prepared.n_first :]
        run = functools.partial(
            filter_hosts,
            spec_obj=self._spec_of(uuid),
            index=number,
            is_rebuild=prepared.request.is_rebuild,
            steps=record.steps,
            instance=record.position_of(uuid, number),
        )
        with record.timed("filters"):
            if not is_again:
                self._eligible = run(first_filters, hosts, changed=changed)
                self._n_steps = len(record.steps)
            self._passing = self._eligible
            if last_filters and len(self._eligible):
                del record.steps[self._n_steps :]
                self._passing = run(last_filters, self._eligible)
        return self._passing

    def tried(self) -> Tried | None:
        """Return the hosts that passed all filters last; None: no filter has run.

        For a rebuild, return None.
        """
        if self._offer is None or self._passing is None:
            return None
        filters, n_first = self._prepared.filters, self._prepared.n_first
        return Tried(
            self._passing,
            self._offer,
            () if self._claims is None else self._claims.backend.attempts,
            {type(filter_).__name__ for filter_ in filters[n_first:]},
        )

    def _rank(
        self,
        hosts: HostBatch,
        uuid: str,
        weigh: Weigh | None = None,
        earlier: Ranking | None = None,
        changed: Rows | None = None,
    ) -> Ranking:
        """Return hosts in the order of the weights of `weigh`, or of the weighers.

        Parameters
        ----------
        earlier, changed
            See `rank_hosts`.
        """
        conf, n_choices = self._parts.conf, self._contention.n_choices
        if self._prepared.n_first < len(self._prepared.filters):
            # Filters with may_pass_later may have passed other hosts than before.
            earlier = None
        if earlier is not None and earlier.hosts.rows is hosts.rows:
            ties = earlier.ties
        else:
            # Tie breakers are constant for a row until the next start.
            n_rows = int(hosts.rows.max()) + 1 if len(hosts) else 0
            ties_of_rows = _random_order(self._parts.tie_seed, 1 << n_rows.bit_length())
            ties = ties_of_rows[hosts.rows]
        with self._record.timed("weighers"):
            if weigh is not None:
                what = f"[moorage] driver: weigh of {type(self._parts.driver).__name__}"
                compute = functools.partial(weigh, hosts, uuid)
                return Ranking(hosts, checked_weights(what, hosts, compute), ties)
            options = conf.filter_scheduler
            is_random = (
                n_choices > 1
                or options.host_subset_size > 1
                or options.shuffle_best_same_weighed_hosts
            )
            return rank_hosts(
                self._prepared.weighers,
                hosts,
                self._spec_of(uuid),
                conf=conf,
                ties=ties,
                # A seed is drawn, and recorded, only if something is chosen at random.
                rng=self.rng if is_random else self._parts.rng,
                n_choices=n_choices,
                nearness=self._contention.share * MAX_NEARNESS,
                earlier=earlier,
                changed=changed,
            )

    def select_by_weight(self, weigh: Weigh | None = None) -> Selections:
        """Place each instance that has no host on the host of the highest weight.

        Several instances are claimed in one POST if Placement grants it. Refused
        instances move to other candidates and hosts, together at first, then one by
        one; granted claims stay. The last instance is placed with all other instances
        counted on their hosts.
        """
        self._weigh = weigh
        claims, hosts, n_posts = self._claims, self._hosts, 0
        placed_uuids = {placed.instance_uuid for placed in self.placed}
        uuids = [u for u in self._prepared.instance_uuids if u not in placed_uuids]
        while claims is not None and len(uuids) > 1 and n_posts < MAX_POSTS:
            planned = self._place(hosts, uuids, self._reserve)
            uuids = claims.claim_together(planned, self._eligible)
            granted = [p for p in planned if p.instance_uuid not in uuids]
            self.placed += granted
            hosts = hosts_after(hosts, granted) if uuids else hosts
            n_posts += 1
        # A request that is repeated because its answer was lost gets the same host
        # again. In an evacuation this is tried before a claim, which could add a third
        # host to the earlier claim's and the source.
        placed = None
        if uuids and claims is not None and claims.may_add:
            placed = self._adopt_earlier_claim(claims, hosts, uuids)
        if uuids and placed is None:
            accept = self._reserve if claims is None else claims.claim_host
            try:
                placed = self._place(hosts, uuids, accept, may_retry=True)
            except AllocationUpdateFailed:
                assert claims is not None
                if claims.has_refused_earlier:
                    raise
                placed = self._adopt_earlier_claim(claims, hosts, uuids)
                if placed is None:
                    raise
        self.placed += placed or ()
        last_placed = self.placed[-1]
        alternates = last_placed.ranking
        assert alternates is not None
        if self._prepared.n_alternates and len(self.placed) > 1:
            # Alternates are ranked with all instances of the request on their hosts.
            uuid, number = last_placed.instance_uuid, len(self.placed) - 1
            hosts = alternates.hosts.with_instance(
                last_placed.index, uuid, last_placed.consumption
            )
            changed = hosts.changed_for([uuid], self._instances_revision)
            passing = self._filter(hosts, uuid, number, changed=changed)
            alternates = self._rank(passing, uuid, weigh, alternates, changed)
        return self._make_selections(alternates)

    def _adopt_earlier_claim(
        self, claims: Claims, hosts: HostBatch, uuids: Sequence[str]
    ) -> list[PlacedInstance] | None:
        """Place an instance on the host that an earlier request has claimed for it.

        Return None if there is no such claim, or if it cannot be kept.
        """
        if len(self._prepared.instance_uuids) > 1:
            return None
        held = claims.held_candidate(uuids[0])
        if held is None:
            return None
        LOG.info("Instance %s has its allocation already", uuids[0])
        placed = self._place(hosts, uuids, functools.partial(self._accept_held, held))
        return placed if claims.take_over(placed[0], self._eligible) else None

    def _place(
        self,
        hosts: HostBatch,
        uuids: Sequence[str],
        accept: _Accept,
        *,
        may_retry: bool = False,
    ) -> list[PlacedInstance]:
        """Place each instance on the best host that `accept` accepts.

        A host that a filter without ``may_pass_later`` rejected is not considered for
        later instances. With `may_retry`, all hosts are tried again, a few times, if no
        host accepted an instance and some were only busy.

        Raises
        ------
        NoValidHost
            No host accepted an instance.
        """
        placed: list[PlacedInstance] = []
        ranking: Ranking | None = None
        changed: Rows | None = None
        for number, uuid in enumerate(uuids):
            passing = self._filter(hosts, uuid, number, changed=changed)
            ranking = self._rank(passing, uuid, self._weigh, ranking, changed)
            n_rounds, assignment = 0, None
            while assignment is None:
                for index in ranking:
                    assignment = accept(uuid, ranking.hosts, index, self._eligible)
                    if assignment is not None:
                        break
                else:
                    n_rounds += 1
                    claims = self._claims if may_retry else None
                    if claims is None or not claims.may_try_again(n_rounds):
                        raise NoValidHost(NOT_ENOUGH)
                    if claims.is_counting:
                        passing = self._filter(hosts, uuid, number, is_again=True)
                        ranking = self._rank(passing, uuid, self._weigh)
            if placed and placed[-1].instance_uuid != self._prepared.instance_uuids[-1]:
                placed[-1] = placed[-1].without_ranking()
            n_top_hosts = self._parts.n_top_hosts if number < TOP_INSTANCES else 0
            placed.append(placed_instance(assignment, ranking, index, n_top_hosts))
            hosts = self._eligible
            if len(uuids) > 1:
                index_in_eligible = index_in(hosts, ranking.hosts, index)
                hosts = hosts.with_instance(
                    index_in_eligible, uuid, assignment.consumption
                )
                # Answers may depend on where this and the next instance are.
                changed = hosts.changed_for(
                    uuids[number : number + 2], self._instances_revision
                )
        return placed

    def _reserve(
        self,
        uuid: str,
        hosts: HostBatch,
        index: int,
        _eligible: HostBatch,
        among: Sequence[int] | None = None,
    ) -> Assignment | None:
        """Reserve a host's first open candidate, without claiming it in Placement.

        Parameters
        ----------
        among : sequence of int, optional
            The numbers of the candidates to choose from; by default all that passed.
        """
        if self._claims is None or self._offer is None:
            return self._prepared.assign(uuid, hosts, index)
        if among is None:
            among = hosts.candidates_of(index)
        number = self._offer.next_candidate(hosts.value("uuid", index), among)
        if number is None:
            return None
        self._offer.reserve(number)
        return self._prepared.assign(uuid, hosts, index, self._offer, number)

    def _accept_held(
        self, held: int, uuid: str, hosts: HostBatch, index: int, _eligible: HostBatch
    ) -> Assignment | None:
        """Accept only the host of the candidate `held`, which the instance holds."""
        offer = self._offer
        if offer is None or held not in offer.numbers_of(hosts.value("uuid", index)):
            return None
        return self._prepared.assign(uuid, hosts, index, offer, held)

    def _make_selections(self, ranking: Ranking) -> Selections:
        """Return and record a list for each instance: its host, then alternates.

        Alternates are the best hosts in the cell of the instance's host that were not
        chosen for any instance.
        """
        n_alternates, hosts = self._prepared.n_alternates, ranking.hosts
        nodes = {placed.value("uuid") for placed in self.placed}
        # All instances in a cell have the same alternates.
        alternates_of_cell: dict[str, list[Selection]]
        alternates_of_cell = {placed.value("cell_uuid"): [] for placed in self.placed}
        for index in ranking:
            if all(
                len(alternates) == n_alternates
                for alternates in alternates_of_cell.values()
            ):
                break
            node = hosts.value("uuid", index)
            alternates = alternates_of_cell.get(hosts.value("cell_uuid", index))
            if node in nodes or alternates is None or len(alternates) == n_alternates:
                continue
            candidate: int | None = NO_CANDIDATE
            if self._claims is not None and self._offer is not None:
                numbers = hosts.candidates_of(index)
                candidate = self._offer.next_candidate(node, numbers)
            if candidate is not None:
                limits = self._prepared.limits(hosts, index)
                host = read_attributes(hosts, index)
                alternates.append(self._selection(host, limits, candidate))
        self.selected = []
        placed_of_instance = {placed.instance_uuid: placed for placed in self.placed}
        for uuid in self._prepared.instance_uuids:
            placed = placed_of_instance[uuid]
            chosen = self._selection(placed.host, placed.limits, placed.candidate)
            alternates = alternates_of_cell[placed.value("cell_uuid")]
            self.selected.append([chosen, *alternates])
            is_same = chosen.nodename == chosen.service_host
            self._record.instances.append(
                InstanceRecord(
                    instance_uuid=uuid,
                    host=chosen.service_host,
                    weight=placed.weight,
                    top_hosts=placed.top_hosts,
                    alternates=tuple(a.service_host for a in alternates),
                    node="" if is_same else chosen.nodename,
                )
            )
        return self.selected

    def _selection(
        self, host: Mapping[str, Any], limits: Mapping[str, object], candidate: int
    ) -> Selection:
        offer = None if candidate == NO_CANDIDATE else self._offer
        zones = metadata_values(host["aggregates"], "availability_zone")
        default_zone = self._parts.conf.default_availability_zone
        return Selection.of_valid(
            compute_node_uuid=host["uuid"],
            service_host=host["host"],
            nodename=host["nodename"],
            cell_uuid=host["cell_uuid"],
            limits=SchedulerLimits.from_dict(dict(limits)),
            # "null" if nothing is claimed, as a stock conductor expects.
            allocation_request=json.dumps(offer and offer.request(candidate)),
            allocation_request_version=offer and MICROVERSION,
            availability_zone=min(zones, default=default_zone),
        )


def placed_instance(
    assignment: Assignment, ranking: Ranking, index: int, n_top_hosts: int
) -> PlacedInstance:
    """Return the assigned instance with the weight of its host in a ranking.

    Parameters
    ----------
    index : int
        The index of the host in ``ranking.hosts``.
    n_top_hosts : int
        The number of best hosts that the record gets.
    """
    return PlacedInstance(
        assignment.instance_uuid,
        assignment.host,
        assignment.candidate,
        assignment.limits,
        assignment.consumption,
        weight=float(ranking.total[index]),
        top_hosts=ranking.top(n_top_hosts) if n_top_hosts else (),
        index=index,
        ranking=ranking,
    )


def index_in(hosts: HostBatch, some: HostBatch, index: int) -> int:
    """Return the index in `hosts` of the host that has `index` in the subset `some`."""
    if hosts is some:
        return index
    return int(np.flatnonzero(hosts.rows == some.rows[index])[0])


@functools.lru_cache(maxsize=4)
def _random_order(seed: int, size: int) -> npt.NDArray[np.float64]:
    return np.random.default_rng(seed).random(size)
