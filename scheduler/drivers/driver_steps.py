# SPDX-License-Identifier: Apache-2.0
"""The steps of an attempt for drivers that choose the host of each instance."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..candidates import Mask
from ..errors import MAX_MESSAGE, PluginError, shortened
from ..hosts import HostBatch
from ..request import Request
from .attempt import Attempt, index_in, placed_instance
from .base import Choice, Eligible, Selections
from .filtering import passing_again
from .instances import (
    NO_CANDIDATE,
    Assignment,
    PlacedInstance,
    hosts_after,
    spec_of_instance,
)
from .joint import eligible_jointly, without_joint_rules
from .ranking import Ranking
from .record import TOP_INSTANCES


class DriverSteps(Attempt):
    """An attempt with all steps that a driver may take, see `DecisionSteps`."""

    #: The last weights that the driver asked for.
    _weighed: Ranking | None = None

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

    def note(self, text: str) -> None:
        """Put a line into the record."""
        self._record.note = shortened(text, MAX_MESSAGE)

    def monotonic(self) -> float:
        """Return the seconds of a clock that is never set."""
        return self._parts.waiter.monotonic()

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

    def weights(self, hosts: HostBatch, instance_uuid: str) -> npt.NDArray[np.float64]:
        """Return the weight of each host."""
        self._weighed = self._rank(hosts, instance_uuid)
        return self._weighed.total

    def ranked(self, hosts: HostBatch, instance_uuid: str) -> HostBatch:
        """Return the hosts in the order of their weights."""
        return hosts.take(self._rank(hosts, instance_uuid).order)

    def claim(
        self, hosts: HostBatch, index: int, instance_uuid: str
    ) -> HostBatch | None:
        """Claim a host for an instance."""
        accept = self._reserve if self._claims is None else self._claims.claim_host
        assignment = accept(instance_uuid, hosts, index, self._eligible)
        if assignment is None:
            return None
        placed = self._place_chosen(hosts, index, assignment, len(self.placed))
        self.placed.append(placed)
        self._hosts = hosts_after(self._hosts, [placed])
        return hosts.with_instance(index, instance_uuid, placed.consumption)

    def n_passing(self, hosts: HostBatch, choices: Sequence[Choice]) -> int:
        """Return how many of the choices of one host pass the filters."""
        filters = without_joint_rules(self._prepared.filters)
        host = hosts.take([choices[0].index])
        for n_before, choice in enumerate(choices):
            uuid, number = choice.instance_uuid, choice.candidate
            if n_before:
                now = passing_again(
                    filters,
                    host,
                    spec_of_instance(self.request.spec_obj, uuid),
                    is_rebuild=self.request.is_rebuild,
                )
                if number not in now.candidates.numbers:
                    return n_before
            if self._claims is None:
                number = NO_CANDIDATE
            assignment = self._prepared.assign(uuid, host, 0, self._offer, number)
            host = host.with_instance(0, uuid, assignment.consumption)
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
            among = [choice.candidate]
            assignment = self._reserve(uuid, later, index, self._eligible, among)
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
        granted = [p for p in planned if p.instance_uuid not in refused]
        self.placed += granted
        self._hosts = hosts_after(self._hosts, granted)
        return hosts_after(hosts, granted), refused

    def _place_chosen(
        self, hosts: HostBatch, index: int, assignment: Assignment, n_before: int
    ) -> PlacedInstance:
        """Return an instance on a host that the driver chose, with its last weight."""
        ranking = _in_order(hosts)
        n_top_hosts = self._parts.n_top_hosts if n_before < TOP_INSTANCES else 0
        placed = placed_instance(assignment, ranking, index, n_top_hosts)
        weighed = self._weighed
        if weighed is None or hosts.rows[index] not in weighed.hosts.rows:
            return placed
        return dataclasses.replace(
            placed,
            weight=float(weighed.total[index_in(weighed.hosts, hosts, index)]),
            top_hosts=weighed.top(n_top_hosts) if n_top_hosts else (),
        )

    def selections(self, alternates: HostBatch) -> Selections:
        """Return the chosen hosts, and alternates in their order.

        Raises
        ------
        PluginError
            Not every instance has exactly one host.
        """
        placed = sorted(instance.instance_uuid for instance in self.placed)
        if placed != sorted(self.instance_uuids):
            raise PluginError(
                f"the driver claimed hosts for {placed}, not for each of "
                f"{sorted(self.instance_uuids)} once"
            )
        return self._make_selections(_in_order(alternates))


def _in_order(hosts: HostBatch) -> Ranking:
    """Return a ranking that keeps the order of the hosts."""
    return Ranking(hosts, np.zeros(len(hosts)), np.arange(len(hosts), dtype=float))
