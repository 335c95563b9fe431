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
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...filters import BaseHostFilter
from ...objects import SchedulerLimits, Selection
from ..candidates import MICROVERSION, Mask, Offer
from ..errors import (
    MAX_MESSAGE,
    AllocationUpdateFailed,
    NoValidHost,
    PluginError,
    shortened,
)
from ..hosts import HostBatch, metadata_values
from ..placement.allocations.limits import MAX_POSTS
from ..request import Request
from .base import Choice, DecisionSteps, Eligible, Selections, Weigh
from .claims.claims import Claims
from .claims.contention import Contention
from .filtering import filter_hosts, passing_again
from .instances import (
    NO_CANDIDATE,
    NOT_ENOUGH,
    Assignment,
    PlacedInstance,
    hosts_after,
    read_attributes,
    spec_of_instance,
)
from .joint import eligible_jointly, without_joint_rules
from .prepared import PreparedRequest
from .record import TOP_INSTANCES, InstanceRecord
from .user_reasons import Tried
from .weighing import Ranking, checked_weights, is_random, rank_hosts

LOG = logging.getLogger(__name__)

#: Returns what an instance gets on a host; None: the host does not accept it.
_Accept = Callable[[str, HostBatch, int], Assignment | None]


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
        Of the attempt that is repeated; None: one is drawn where needed.

    Attributes
    ----------
    placed : list of PlacedInstance
        The instances that have a host, in the order in which they got it.
    selected : list of list of Selection, or None
        What the driver has to return.
    random_seed : int or None
        None: nothing was chosen at random.
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
        self._offer = offer
        self._claims = claims
        self._contention = contention
        self.random_seed = random_seed
        self.placed: list[PlacedInstance] = []
        self.selected: Selections | None = None
        #: The hosts that the first filters passed, for the instance filtered last.
        self._eligible = hosts
        #: The hosts that all filters passed, for that instance; None: none have run.
        self._passing: HostBatch | None = None
        #: The number of the record's steps once the first filters have run.
        self._n_steps = 0
        #: Weighs hosts instead of the weighers.
        self._weigh: Weigh | None = None
        #: The last weights that the driver asked for.
        self._weighed: Ranking | None = None

    # -- the request -------------------------------------------------------------------

    @property
    def request(self) -> Request:
        """The request."""
        return self._prepared.request

    @property
    def instance_uuids(self) -> Sequence[str]:
        """The instances that need a host each."""
        return self._prepared.instance_uuids

    @property
    def candidates(self) -> HostBatch:
        """The hosts, with the instances that have one counted on them."""
        return self._hosts

    def open_candidates(self, hosts: HostBatch) -> Mask:
        """Return which candidates may still be claimed."""
        numbers = hosts.candidates.numbers
        if self._claims is None or self._offer is None:
            return np.ones(len(numbers), bool)
        is_open = map(self._offer.is_open, numbers.tolist())
        return np.fromiter(is_open, bool, len(numbers))

    def free(self, provider_uuid: str, resource_class: str) -> int:
        """Return what a provider has left for this request."""
        if self._offer is None:
            return 0
        return self._offer.free(provider_uuid, resource_class)

    @functools.cached_property
    def rng(self) -> np.random.Generator:
        """The random generator of this attempt alone, by its seed."""
        if self.random_seed is None:
            self.random_seed = int(self._parts.rng.integers(2**62))
        return np.random.default_rng(self.random_seed)

    def note(self, text: str) -> None:
        """Put a line into the record."""
        self._record.note = shortened(text, MAX_MESSAGE)

    def monotonic(self) -> float:
        """Return the seconds of a clock that is never set."""
        return self._parts.waiter.monotonic()

    # -- filters -----------------------------------------------------------------------

    def passing(self, hosts: HostBatch, instance_uuid: str) -> HostBatch:
        """Return the hosts that pass all enabled filters."""
        # As for the first instance: filters that run once per request run, too.
        return self._filter(hosts, instance_uuid, 0)

    def eligible(self, hosts: HostBatch, instance_uuid: str) -> Eligible:
        """Return the hosts for instances that are placed together, with their rules."""
        return eligible_jointly(
            self.request,
            self._prepared.filters,
            self._prepared.weighers,
            hosts,
            instance_uuid,
            self._record,
        )

    def _filter(self, hosts: HostBatch, uuid: str, number: int) -> HostBatch:
        """Return the hosts that pass; `number` is the instance's in the request."""
        first = self._prepared.filters[: self._prepared.n_first]
        self._eligible = self._run_filters(first, hosts, uuid, number)
        self._n_steps = len(self._record.steps)
        return self._filter_again(uuid, number)

    def _filter_again(self, uuid: str, number: int) -> HostBatch:
        """Return the eligible hosts that also pass the filters that run last.

        Those depend on the instances that are counted on hosts.
        """
        passing, last = self._eligible, self._prepared.filters[self._prepared.n_first :]
        if last and len(passing):
            del self._record.steps[self._n_steps :]
            passing = self._run_filters(last, passing, uuid, number)
        self._passing = passing
        return passing

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
                spec_of_instance(self.request.spec_obj, uuid),
                index=number,
                is_rebuild=self.request.is_rebuild,
                steps=self._record.steps,
                instance=self._record.position_of(uuid, number),
            )

    def tried(self) -> Tried | None:
        """Return the hosts that were tried last, after all filters; None: none were."""
        if self._offer is None or self._passing is None:
            return None
        filters, n_first = self._prepared.filters, self._prepared.n_first
        return Tried(
            self._passing,
            self._offer,
            () if self._claims is None else self._claims.backend.attempts,
            {type(filter_).__name__ for filter_ in filters[n_first:]},
        )

    # -- weighers ----------------------------------------------------------------------

    def weights(self, hosts: HostBatch, instance_uuid: str) -> npt.NDArray[np.float64]:
        """Return the weight of each host."""
        self._weighed = self._rank_by_weighers(hosts, instance_uuid)
        return self._weighed.total

    def ranked(self, hosts: HostBatch, instance_uuid: str) -> HostBatch:
        """Return the hosts in the order of their weights."""
        return hosts.take(self._rank_by_weighers(hosts, instance_uuid).order)

    def _rank(self, hosts: HostBatch, uuid: str) -> Ranking:
        """Return hosts in the order of the weights of `_weigh`, or of the weighers."""
        if self._weigh is None:
            return self._rank_by_weighers(hosts, uuid)
        what = f"[moorage] driver: weigh of {type(self._parts.driver).__name__}"
        with self._record.timed("weighers"):
            compute = functools.partial(self._weigh, hosts, uuid)
            return Ranking(
                hosts, checked_weights(what, hosts, compute), self._ties(hosts)
            )

    def _rank_by_weighers(self, hosts: HostBatch, uuid: str) -> Ranking:
        conf, n_choices = self._parts.conf, self._contention.n_choices
        rng = self.rng if is_random(conf, n_choices) else self._parts.rng
        with self._record.timed("weighers"):
            return rank_hosts(
                self._prepared.weighers,
                hosts,
                spec_of_instance(self.request.spec_obj, uuid),
                conf=conf,
                ties=self._ties(hosts),
                rng=rng,
                n_choices=n_choices,
                nearness=self._contention.nearness,
            )

    def _ties(self, hosts: HostBatch) -> npt.NDArray[np.float64]:
        """Return tie breakers, which are constant for a row until the next start."""
        n_rows = int(hosts.rows.max()) + 1 if len(hosts) else 0
        of_rows = _random_order(self._parts.tie_seed, 1 << n_rows.bit_length())
        ties: npt.NDArray[np.float64] = of_rows[hosts.rows]
        return ties

    # -- claims, for drivers that choose each host -------------------------------------

    def claim(
        self, hosts: HostBatch, index: int, instance_uuid: str
    ) -> HostBatch | None:
        """Claim a host for an instance."""
        assignment = self._claim(instance_uuid, hosts, index)
        if assignment is None:
            return None
        placed = self._place_chosen(hosts, index, assignment, len(self.placed))
        self.placed.append(placed)
        self._hosts = hosts_after(self._hosts, [placed])
        return hosts.with_instance(index, instance_uuid, placed.consumption)

    def n_passing(self, hosts: HostBatch, choices: Sequence[Choice]) -> int:
        """Return how many of the choices of one host pass the filters."""
        filters = without_joint_rules(self._prepared.filters)
        one = hosts.take([choices[0].index])
        for n_before, choice in enumerate(choices):
            uuid, number = choice.instance_uuid, choice.candidate
            if n_before:
                now = passing_again(
                    filters,
                    one,
                    spec_of_instance(self.request.spec_obj, uuid),
                    is_rebuild=self.request.is_rebuild,
                )
                if number not in now.candidates.numbers:
                    return n_before
            if self._claims is None:
                number = NO_CANDIDATE
            assignment = self._prepared.assign(uuid, one, 0, self._offer, number)
            one = one.with_instance(0, uuid, assignment.consumption)
        return len(choices)

    def claim_together(
        self, hosts: HostBatch, choices: Sequence[Choice]
    ) -> tuple[HostBatch, list[str]]:
        """Claim hosts for several instances at once."""
        planned: list[PlacedInstance] = []
        refused: list[str] = []
        later = hosts
        for choice in choices:
            uuid, index = choice.instance_uuid, choice.index
            assignment = self._reserve(uuid, later, index, [choice.candidate])
            if assignment is None:
                refused.append(uuid)
                continue
            n_before = len(self.placed) + len(planned)
            placed = self._place_chosen(later, index, assignment, n_before)
            if uuid != self.instance_uuids[-1]:
                placed = placed.without_ranking()
            planned.append(placed)
            later = hosts_after(later, [placed])
        if planned and self._claims is not None:
            refused += self._claims.claim_together(planned, later)
        granted = [each for each in planned if each.instance_uuid not in refused]
        self.placed += granted
        self._hosts = hosts_after(self._hosts, granted)
        return hosts_after(hosts, granted), refused

    def _place_chosen(
        self, hosts: HostBatch, index: int, assignment: Assignment, n_before: int
    ) -> PlacedInstance:
        """Return an instance on a host that the driver chose, with its last weight."""
        weighed = self._weighed
        if weighed is not None and not (weighed.hosts.rows == hosts.rows[index]).any():
            weighed = None
        return _placed(
            assignment, _in_order(hosts), index, n_before=n_before, weighed=weighed
        )

    # -- filter_scheduler --------------------------------------------------------------

    def select_by_weight(self, weigh: Weigh | None = None) -> Selections:
        """Place all instances that have no host on those of the highest weight.

        Several are claimed in one POST if Placement grants it. Refused instances move
        to other candidates and hosts, together at first, then one by one; granted
        claims stay. The instance that is placed last is placed with all others taken
        into account.
        """
        self._weigh = weigh
        granted = {each.instance_uuid for each in self.placed}
        left = [uuid for uuid in self.instance_uuids if uuid not in granted]
        hosts, n_posts = self._hosts, 0
        while self._claims is not None and len(left) > 1 and n_posts < MAX_POSTS:
            planned = self._place(hosts, left, self._reserve)
            left = self._claims.claim_together(planned, self._eligible)
            kept = [each for each in planned if each.instance_uuid not in left]
            self.placed += kept
            hosts = hosts_after(hosts, kept) if left else hosts
            n_posts += 1
        if left:
            self.placed += self._claim_singly(hosts, left)
        last = self.placed[-1]
        alternates = last.ranking
        assert alternates is not None
        if self._prepared.n_alternates and len(self.placed) > 1:
            # Alternates are ranked with all instances of the request on their hosts.
            hosts = alternates.hosts.with_instance(
                last.index, last.instance_uuid, last.consumption
            )
            number = len(self.placed) - 1
            passing = self._filter(hosts, last.instance_uuid, number)
            alternates = self._rank(passing, last.instance_uuid)
        return self._make_selections(alternates)

    def _claim_singly(
        self, hosts: HostBatch, uuids: Sequence[str]
    ) -> list[PlacedInstance]:
        """Place and claim instances one by one.

        A request that is repeated because its answer was lost gets the same host again.
        """
        if self._claims is not None and self._claims.may_add:
            # Otherwise it would get a third host, in addition to this and the source.
            placed = self._adopt_earlier_claim(hosts, uuids)
            if placed is not None:
                return placed
        try:
            return self._place(hosts, uuids, self._claim, may_retry=True)
        except AllocationUpdateFailed:
            placed = self._adopt_earlier_claim(hosts, uuids)
            if placed is None:
                raise
            return placed

    def _adopt_earlier_claim(
        self, hosts: HostBatch, uuids: Sequence[str]
    ) -> list[PlacedInstance] | None:
        """Place an instance where an earlier request claimed its host, if one did."""
        if self._claims is None or len(self.instance_uuids) > 1:
            return None
        held = self._claims.held_candidate(uuids[0])
        if held is None:
            return None
        LOG.info("Instance %s has its allocation already", uuids[0])
        placed = self._place(hosts, uuids, functools.partial(self._accept_held, held))
        return placed if self._claims.take_over(placed[0], self._eligible) else None

    def _place(
        self,
        hosts: HostBatch,
        uuids: Sequence[str],
        accept: _Accept,
        *,
        may_retry: bool = False,
    ) -> list[PlacedInstance]:
        """Select the best accepting host for each instance, or raise NoValidHost.

        A host that a filter rejected is not considered for later instances, except for
        filters with ``may_pass_later``. If none accepted and some were only busy, all
        are tried again, a few times.
        """
        placed: list[PlacedInstance] = []
        for number, uuid in enumerate(uuids):
            ranking = self._rank(self._filter(hosts, uuid, number), uuid)
            n_rounds = 0
            while True:
                for index in ranking:
                    if assignment := accept(uuid, ranking.hosts, index):
                        break
                else:
                    assignment = None
                n_rounds += 1
                if assignment is not None:
                    break
                if not (
                    may_retry
                    and self._claims is not None
                    and self._claims.may_try_again(n_rounds)
                ):
                    raise NoValidHost(NOT_ENOUGH)
                if self._claims.is_counting:
                    ranking = self._rank(self._filter_again(uuid, number), uuid)
            if placed and placed[-1].instance_uuid != self.instance_uuids[-1]:
                placed[-1] = placed[-1].without_ranking()
            placed.append(_placed(assignment, ranking, index, n_before=number))
            hosts = self._eligible
            if len(uuids) > 1:
                at = _index_in(hosts, ranking.hosts, index)
                hosts = hosts.with_instance(at, uuid, assignment.consumption)
        return placed

    def _claim(self, uuid: str, hosts: HostBatch, index: int) -> Assignment | None:
        """Claim one of a host's candidates."""
        if self._claims is None:
            return self._prepared.assign(uuid, hosts, index)
        return self._claims.claim_host(uuid, hosts, index, self._eligible)

    def _reserve(
        self,
        uuid: str,
        hosts: HostBatch,
        index: int,
        among: Sequence[int] | None = None,
    ) -> Assignment | None:
        """Reserve the first open one of a host's candidates, which is not claimed."""
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
        self, held: int, uuid: str, hosts: HostBatch, index: int
    ) -> Assignment | None:
        """Accept only the host of the candidate that the instance holds already."""
        offer = self._offer
        if offer is None or held not in offer.numbers_of(hosts.value("uuid", index)):
            return None
        return self._prepared.assign(uuid, hosts, index, offer, held)

    # -- selections --------------------------------------------------------------------

    def selections(self, alternates: HostBatch) -> Selections:
        """Return the chosen hosts, and alternates in their order.

        Raises
        ------
        PluginError
            Not every instance has exactly one host.
        """
        placed = sorted(each.instance_uuid for each in self.placed)
        if placed != sorted(self.instance_uuids):
            raise PluginError(
                f"the driver claimed hosts for {placed}, not for each of "
                f"{sorted(self.instance_uuids)} once"
            )
        return self._make_selections(_in_order(alternates))

    def _make_selections(self, alternates: Ranking) -> Selections:
        """Return a list an instance: its host, then alternates; record them."""
        nodes = {each.value("uuid") for each in self.placed}
        of_instance = {each.instance_uuid: each for each in self.placed}
        # All instances in a cell share the alternates.
        of_cell = {
            cell: self._alternates(alternates, cell, nodes)
            for cell in {each.value("cell_uuid") for each in self.placed}
        }
        self.selected = []
        for uuid in self.instance_uuids:
            placed = of_instance[uuid]
            chosen = self._selection(placed.host, placed.limits, placed.candidate)
            others = of_cell[placed.value("cell_uuid")]
            self.selected.append([chosen, *others])
            is_same = chosen.nodename == chosen.service_host
            self._record.instances.append(
                InstanceRecord(
                    instance_uuid=uuid,
                    host=chosen.service_host,
                    weight=placed.weight,
                    top_hosts=placed.top_hosts,
                    alternates=tuple(each.service_host for each in others),
                    node="" if is_same else chosen.nodename,
                )
            )
        return self.selected

    def _alternates(
        self, ranking: Ranking, cell: str, nodes: Collection[str]
    ) -> list[Selection]:
        """Return the best hosts of a cell that are none of the chosen nodes."""
        hosts, alternates = ranking.hosts, list[Selection]()
        for index in ranking:
            if len(alternates) == self._prepared.n_alternates:
                break
            node = hosts.value("uuid", index)
            if node in nodes or hosts.value("cell_uuid", index) != cell:
                continue
            candidate: int | None = NO_CANDIDATE
            if self._claims is not None and self._offer is not None:
                among = hosts.candidates_of(index)
                candidate = self._offer.next_candidate(node, among)
            if candidate is not None:
                limits = self._prepared.limits(hosts, index)
                host = read_attributes(hosts, index)
                alternates.append(self._selection(host, limits, candidate))
        return alternates

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


def _placed(
    assignment: Assignment,
    ranking: Ranking,
    index: int,
    *,
    n_before: int,
    weighed: Ranking | None = None,
) -> PlacedInstance:
    """Return an instance on a host of a ranking.

    Parameters
    ----------
    n_before : int
        Instances that got a host before: the record has the best hosts of few.
    weighed : Ranking, optional
        Has the weights for the record, if not `ranking`.
    """
    shown, at = ranking, index
    if weighed is not None:
        shown, at = weighed, _index_in(weighed.hosts, ranking.hosts, index)
    return PlacedInstance(
        assignment.instance_uuid,
        assignment.host,
        assignment.candidate,
        assignment.limits,
        assignment.consumption,
        weight=float(shown.total[at]),
        top_hosts=shown.top() if n_before < TOP_INSTANCES else (),
        index=index,
        ranking=ranking,
    )


def _index_in(hosts: HostBatch, some: HostBatch, index: int) -> int:
    """Return the index in `hosts` of a host of some of them."""
    if hosts is some:
        return index
    return int(np.flatnonzero(hosts.rows == some.rows[index])[0])


def _in_order(hosts: HostBatch) -> Ranking:
    """Return a ranking that keeps the order of the hosts."""
    return Ranking(hosts, np.zeros(len(hosts)), np.arange(len(hosts), dtype=float))


@functools.lru_cache(maxsize=4)
def _random_order(seed: int, size: int) -> npt.NDArray[np.float64]:
    return np.random.default_rng(seed).random(size)
