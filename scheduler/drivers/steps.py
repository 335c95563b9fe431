# SPDX-License-Identifier: Apache-2.0
"""The steps of a decision, as its driver calls them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ..candidates import Mask, Offer
from ..errors import MAX_MESSAGE, PluginError, shortened
from ..hosts import HostBatch
from ..request import Request
from .base import Choice, Eligible, Selections, Weigh
from .claims.accepting import (
    NO_CANDIDATE,
    Accept,
    Claims,
    accept_any,
    claim_in_placement,
    reserve_in_ledger,
)
from .instances import PlacedInstance, hosts_after
from .parts import Parts
from .placer import Placer
from .record import TOP_INSTANCES
from .weighing import Ranking

#: As if so many instances came before: the record has no best hosts for it.
_NO_TOP: Final = TOP_INSTANCES


class Steps:
    """Implements `DecisionSteps` on a decision.

    Parameters
    ----------
    placer : Placer
        With a ranker for the request.
    offer : Offer or None
        None: the candidates of a rebuild are all hosts.
    hosts : HostBatch
        The candidates.
    ledger : Offer or None
        None: any host is accepted.
    claims : Claims or None
        None: nothing is claimed; candidates are reserved in the ledger.

    Attributes
    ----------
    placed : list of PlacedInstance
        The instances that have a host, in the order in which they got it.
    made : list of list of Selection, or None
        What the driver has to return.
    """

    def __init__(
        self,
        parts: Parts,
        placer: Placer,
        offer: Offer | None,
        hosts: HostBatch,
        ledger: Offer | None,
        claims: Claims | None,
    ) -> None:
        self._parts = parts
        self._placer = placer
        self._ranker = placer.ranker
        self._offer = offer
        self.candidates = hosts
        self._ledger = ledger
        self._claims = claims
        self.placed: list[PlacedInstance] = []
        self.made: Selections | None = None
        #: The last weights that the driver asked for.
        self._weighed: Ranking | None = None

    @property
    def request(self) -> Request:
        """The request."""
        return self._placer.request

    @property
    def instance_uuids(self) -> Sequence[str]:
        """The instances that need a host each."""
        return self._placer.instance_uuids

    def passing(self, hosts: HostBatch, instance_uuid: str) -> HostBatch:
        """Return the hosts that pass all enabled filters."""
        # As for the first instance: filters that run once per request run, too.
        return self._ranker.filter_hosts(hosts, instance_uuid, 0)

    def eligible(self, hosts: HostBatch, instance_uuid: str) -> Eligible:
        """Return the hosts for instances that are placed together, with their rules."""
        return self._ranker.together.eligible(hosts, instance_uuid)

    def weights(self, hosts: HostBatch, instance_uuid: str) -> npt.NDArray[np.float64]:
        """Return the weight of each host."""
        self._weighed = self._ranker.rank_by_weighers(hosts, instance_uuid)
        return self._weighed.total

    def ranked(self, hosts: HostBatch, instance_uuid: str) -> HostBatch:
        """Return the hosts in the order of their weights."""
        return hosts.take(self._ranker.rank_by_weighers(hosts, instance_uuid).order)

    def open_candidates(self, hosts: HostBatch) -> Mask:
        """Return which candidates may still be claimed."""
        numbers = hosts.candidates.numbers
        if self._ledger is None:
            return np.ones(len(numbers), bool)
        is_open = map(self._ledger.is_open, numbers.tolist())
        return np.fromiter(is_open, bool, len(numbers))

    def free(self, provider_uuid: str, resource_class: str) -> int:
        """Return what a provider has left for this request."""
        if self._ledger is None:
            offer = self._offer
            return 0 if offer is None else offer.free(provider_uuid, resource_class)
        return self._ledger.free(provider_uuid, resource_class)

    @property
    def rng(self) -> np.random.Generator:
        """The random generator of this decision."""
        return self._ranker.rng

    def claim(
        self, hosts: HostBatch, index: int, instance_uuid: str
    ) -> HostBatch | None:
        """Claim a host for an instance."""
        candidate = self._accept()(instance_uuid, hosts, index)
        if candidate is None:
            return None
        placed = self._placed(hosts, Choice(instance_uuid, index, candidate))
        self.placed.append(placed)
        self.candidates = hosts_after(self.candidates, [placed])
        return hosts.with_instance(index, instance_uuid, placed.consumption)

    def _placed(
        self, hosts: HostBatch, choice: Choice, n_others: int = 0
    ) -> PlacedInstance:
        weighed = self._weighed
        at = hosts.rows[choice.index]
        if weighed is not None and not (weighed.hosts.rows == at).any():
            weighed = None
        return self._placer.place_instance(
            _in_order(hosts),
            choice.instance_uuid,
            choice.index,
            choice.candidate,
            self._ledger,
            has_top=len(self.placed) + n_others < TOP_INSTANCES,
            weighed=weighed,
        )

    def n_passing(self, hosts: HostBatch, choices: Sequence[Choice]) -> int:
        """Return how many of the choices of one host pass the filters."""
        one = hosts.take([choices[0].index])
        for n_before, choice in enumerate(choices):
            if n_before:
                now = self._ranker.together.passing_again(one, choice.instance_uuid)
                if choice.candidate not in now.candidates.numbers:
                    return n_before
            placed = self._placed(one, dataclasses.replace(choice, index=0), _NO_TOP)
            one = one.with_instance(0, choice.instance_uuid, placed.consumption)
        return len(choices)

    def claim_together(
        self, hosts: HostBatch, choices: Sequence[Choice]
    ) -> tuple[HostBatch, list[str]]:
        """Claim hosts for several instances at once."""
        planned: list[PlacedInstance] = []
        refused: list[str] = []
        later = hosts
        for choice in choices:
            if (candidate := self._reserved(hosts, choice)) is None:
                refused.append(choice.instance_uuid)
                continue
            choice = dataclasses.replace(choice, candidate=candidate)
            placed = self._placed(later, choice, len(planned))
            if choice.instance_uuid != self.instance_uuids[-1]:
                placed = placed.without_ranking()
            planned.append(placed)
            later = hosts_after(later, [placed])
        if planned and self._claims is not None and self._ledger is not None:
            self._ranker.eligible = later  # for the checks after the claim
            refused += self._claims.claim_together(planned, self._ledger)
        granted = [each for each in planned if each.instance_uuid not in refused]
        self.placed += granted
        self.candidates = hosts_after(self.candidates, granted)
        return hosts_after(hosts, granted), refused

    def _reserved(self, hosts: HostBatch, choice: Choice) -> int | None:
        """Return the reserved candidate of a choice; None: it is not available."""
        if self._ledger is None:
            return NO_CANDIDATE
        node_uuid = hosts.value("uuid", choice.index)
        candidate = self._ledger.next_candidate(node_uuid, [choice.candidate])
        if candidate is not None:
            self._ledger.reserve(candidate)
        return candidate

    def _accept(self) -> Accept:
        if self._ledger is None:
            return accept_any
        if self._claims is None:
            return reserve_in_ledger(self._ledger)
        return claim_in_placement(self._ledger, self._claims)

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
        others = _in_order(alternates)
        self.made = self._placer.make_selections(self.placed, self._ledger, others)
        return self.made

    def select_by_weight(self, weigh: Weigh | None = None) -> Selections:
        """Place all instances that have no host on those of the highest weight."""
        self.placed, self.made = self._placer.select_by_weight(
            self.candidates, self._ledger, self._claims, self.placed, weigh
        )
        return self.made

    def note(self, text: str) -> None:
        """Put a line into the record."""
        self._placer.record.note = shortened(text, MAX_MESSAGE)

    def monotonic(self) -> float:
        """Return the seconds of a clock that is never set."""
        return self._parts.waiter.monotonic()


def _in_order(hosts: HostBatch) -> Ranking:
    """Return a ranking that keeps the order of the hosts."""
    return Ranking(hosts, np.zeros(len(hosts)), np.arange(len(hosts), dtype=float))
