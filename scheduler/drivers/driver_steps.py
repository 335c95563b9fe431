# SPDX-License-Identifier: Apache-2.0
"""The steps of an attempt for drivers that choose the hosts of instances themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ...filters import BaseHostFilter
from ...objects import RequestSpec
from ...weighers import BaseHostWeigher
from ..candidates import Mask
from ..errors import MAX_MESSAGE, PluginError, SchedulerError, shortened
from ..hosts import HostBatch
from ..locality import JointRule, PlacesUsed
from ..request import Request
from .attempt import Attempt, index_in, placed_instance
from .base import Choice, Eligible, Selections
from .filter_chain import filter_hosts
from .filtering import passing_again
from .instances import (
    NO_CANDIDATE,
    Assignment,
    PlacedInstance,
    hosts_after,
    spec_of_instance,
)
from .ranking import Ranking
from .record import TOP_INSTANCES, DecisionRecord, FilterStep

_Answer = TypeVar("_Answer", JointRule, PlacesUsed)


def eligible_jointly(
    request: Request,
    filters: Sequence[BaseHostFilter],
    weighers: Sequence[BaseHostWeigher],
    hosts: HostBatch,
    uuid: str,
    record: DecisionRecord,
) -> Eligible:
    """Return the hosts and rules for all instances that are not placed yet.

    Parameters
    ----------
    filters, weighers : sequence
        Prepared for the request, in the order in which they run.

    Raises
    ------
    PluginError
        A filter or weigher failed, or its rules or wishes do not fit these hosts.
    """
    spec_obj = spec_of_instance(request.spec_obj, uuid)
    applied = without_joint_rules(filters)
    with record.timed("filters"):
        hosts = filter_hosts(
            applied,
            hosts,
            spec_obj,
            index=0,
            is_rebuild=request.is_rebuild,
            steps=record.steps,
            instance=record.position_of(uuid, 0),
        )
        rules: list[JointRule] = []
        allowed = np.ones(len(hosts), bool)
        for filter_ in filter(_has_rules, filters):
            n_in = int(allowed.sum())
            for rule in _rules_or_wishes(filter_, filter_.joint_rules, hosts, spec_obj):
                allowed &= rule.allowed
                rules.append(rule)
            if filter_ not in applied:
                name, n_out = type(filter_).__name__, int(allowed.sum())
                position = record.position_of(uuid, 0)
                record.steps.append(
                    FilterStep(name, n_in, n_out, filter_.REASON, position)
                )
    with record.timed("weighers"):
        preferences = [
            preference.take(allowed)
            for weigher in weighers
            for preference in _rules_or_wishes(
                weigher, weigher.joint_wishes, hosts, spec_obj
            )
        ]
    rules = [rule.take(allowed) for rule in rules]
    return Eligible(hosts.take(allowed), rules, preferences)


def without_joint_rules(filters: Sequence[BaseHostFilter]) -> list[BaseHostFilter]:
    """Return the filters that run for instances that are placed at once.

    A filter with ``may_pass_later`` that has joint rules does not run: the rules are
    applied instead.
    """
    return [f for f in filters if not (f.may_pass_later and _has_rules(f))]


def _has_rules(filter_: BaseHostFilter) -> bool:
    return type(filter_).joint_rules is not BaseHostFilter.joint_rules


def _rules_or_wishes(
    plugin: BaseHostFilter | BaseHostWeigher,
    ask: Callable[[HostBatch, RequestSpec], Sequence[_Answer]],
    hosts: HostBatch,
    spec_obj: RequestSpec,
) -> Sequence[_Answer]:
    """Return a plugin's rules or wishes.

    Raises
    ------
    PluginError
        The plugin failed, or the places of a rule or wish are not of shape (n_hosts,).
    """
    name = type(plugin).__name__
    try:
        answers = ask(hosts, spec_obj)
        shapes = {answer.places.shape for answer in answers}
    except SchedulerError:
        raise
    except Exception as e:
        # Third-party code may raise anything: the error names the plugin.
        raise PluginError(f"{name} failed: {type(e).__name__}: {e}") from e
    if shapes - {(len(hosts),)}:
        raise PluginError(
            f"{name} returned rules or wishes about places of shape {sorted(shapes)}; "
            f"it must be ({len(hosts)},)"
        )
    return answers


class DriverSteps(Attempt):
    """An attempt with all steps that a driver may take; see `DecisionSteps`."""

    #: The weights that the driver requested last.
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
        """The hosts of the attempt, with each placed instance counted on its host."""
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
        """Return the time in seconds of a monotonic clock."""
        return self._parts.waiter.monotonic()

    def passing(self, hosts: HostBatch, instance_uuid: str) -> HostBatch:
        """Return the hosts that pass all enabled filters."""
        # Number 0, the first instance, so that filters that run once per request run.
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
                passing = passing_again(
                    filters,
                    host,
                    spec_of_instance(self.request.spec_obj, uuid),
                    is_rebuild=self.request.is_rebuild,
                )
                if number not in passing.candidates.numbers:
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
        hosts_with_planned = hosts
        for choice in choices:
            uuid, index = choice.instance_uuid, choice.index
            numbers = [choice.candidate]
            assignment = self._reserve(
                uuid, hosts_with_planned, index, self._eligible, numbers
            )
            if assignment is None:
                refused.append(uuid)
                continue
            n_before = len(self.placed) + len(planned)
            placed = self._place_chosen(hosts_with_planned, index, assignment, n_before)
            if uuid != self.instance_uuids[-1]:
                placed = placed.without_ranking()
            planned.append(placed)
            hosts_with_planned = hosts_after(hosts_with_planned, [placed])
        if planned and self._claims is not None:
            refused += self._claims.claim_together(planned, hosts_with_planned)
        granted = [placed for placed in planned if placed.instance_uuid not in refused]
        self.placed += granted
        self._hosts = hosts_after(self._hosts, granted)
        return hosts_after(hosts, granted), refused

    def _place_chosen(
        self, hosts: HostBatch, index: int, assignment: Assignment, n_before: int
    ) -> PlacedInstance:
        """Return an instance with its chosen host, and the host's last weight."""
        ranking = _ranking_in_order(hosts)
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
        return self._make_selections(_ranking_in_order(alternates))


def _ranking_in_order(hosts: HostBatch) -> Ranking:
    """Return a ranking that keeps the order of the hosts."""
    return Ranking(hosts, np.zeros(len(hosts)), np.arange(len(hosts), dtype=float))
