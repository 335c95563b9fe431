# SPDX-License-Identifier: Apache-2.0
"""Filter by a request's rules about places, such as racks and rows."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Self

import numpy as np
from oslo_config import cfg

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch, HostState
from ..scheduler.locality import (
    Finding,
    JointRule,
    Masks,
    Resolution,
    reason_of,
    reason_of_unknown,
    reason_without_host,
)
from ..scheduler.locality.hints import locality_rules
from ..scheduler.request import Request
from ..scheduler.request.locality import InPlaces, Rule, Spread, WithInstances
from .base import BaseHostFilter, Mask, all_hosts
from .rejection import Rejection


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class BrokenRule:
    """A rule, and which hosts of a batch it rejects.

    Attributes
    ----------
    fails : ndarray of bool, shape (n_hosts,)
        Which hosts the rule rejects.
    masks : Masks
        The masks of all rules of the request.
    """

    rule: Rule
    fails: Mask
    masks: Masks

    def reason(self, *, are_groups_read: bool) -> str:
        """Return why the rule rejects hosts; see `reason_of`."""
        rule = self.rule
        if isinstance(rule, WithInstances) and not self.masks.knows(rule):
            return reason_of_unknown(rule, are_groups_read=are_groups_read)
        if isinstance(rule, InPlaces) and self.masks.is_without_host(rule):
            return reason_without_host(rule)
        return reason_of([rule])

    def finding(self, index: int) -> Finding:
        """Return the level, and the required and the actual value of a host's place."""
        return self.masks.finding(self.rule, index)

    def findings(self, most: int) -> Iterator[str]:
        """Yield the actual values of places that the rule rejects, at most `most`."""
        place_of_host = self.masks.places.at(self.rule.level)
        _, first_indices = np.unique(place_of_host[self.fails], return_index=True)
        for index in np.flatnonzero(self.fails)[np.sort(first_indices)[:most]].tolist():
            yield self.finding(index)[2]


class LocalityFilter(BaseHostFilter):
    """Pass hosts whose places conform to the request's hints and its group's level.

    The levels are those of ``[locality] levels``. The filter runs after all others:
    ``spread_level`` compares the places in which a host has passed them.
    """

    REASON = "its place breaks a rule of the request"
    may_pass_later = True

    def __init__(
        self, conf: cfg.ConfigOpts, *, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(conf, clock=clock)
        self._levels = tuple(dict.fromkeys(conf.locality.levels))
        #: Whether hints may name other server groups: nova's database has the members.
        self._are_groups_read = conf.moorage.source == "nova_db"
        #: The compute nodes of instances that no host has reported; see `locate`.
        self._located: Mapping[str, Collection[str]] = {}
        #: The instances that no longer move for a rule; see `locate`.
        self._answered = frozenset[str]()
        self._rules: Sequence[Rule] | None = None if self._levels else ()

    def prepare(self, spec_obj: RequestSpec) -> Self:
        """Return the filter with the rules of a request."""
        if not self._levels:
            return self
        prepared = copy.copy(self)
        rules = locality_rules(Request.of(spec_obj), self._levels)
        prepared._rules = rules  # noqa: SLF001 - a copy of this filter
        return prepared

    @property
    def is_idle(self) -> bool:
        """Whether the request has no rule."""
        return self._rules is not None and not self._rules

    def reason_for(self, spec_obj: RequestSpec, hosts: HostBatch | None = None) -> str:
        """Return which rules the hosts break and how, as text for end users.

        If none is broken, or without hosts, return which rules the request has.
        """
        rules = self._rules_of(spec_obj)
        if hosts is not None:
            broken = [
                broken_rule
                for broken_rule in self.broken(hosts, spec_obj)
                if broken_rule.fails.any()
            ]
            if len(broken) == 1:
                return broken[0].reason(are_groups_read=self._are_groups_read)
            rules = [broken_rule.rule for broken_rule in broken] or rules
        return reason_of(rules) if rules else self.REASON

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts conform to all rules, shape (n_hosts,)."""
        rules = self._rules_of(spec_obj)
        if not rules or not len(hosts):
            return all_hosts(hosts)
        return self._masks(hosts, spec_obj).all()

    def joint_rules(self, hosts: HostBatch, spec_obj: RequestSpec) -> list[JointRule]:
        """Return the rules for all further instances of the request."""
        rules = self._rules_of(spec_obj)
        if not rules or not len(hosts):
            return []
        masks = self._masks(hosts, spec_obj)
        return [masks.joint(rule) for rule in rules]

    def _rules_of(self, spec_obj: RequestSpec) -> Sequence[Rule]:
        if self._rules is not None:
            return self._rules
        return locality_rules(Request.of(spec_obj), self._levels)

    def _masks(self, hosts: HostBatch, spec_obj: RequestSpec) -> Masks:
        instance_uuid = spec_obj.instance_uuid if "instance_uuid" in spec_obj else None
        rules = self._rules_of(spec_obj)
        return Masks(
            rules, hosts, self._levels, instance_uuid, self._located, self._answered
        )

    # -- reasons -----------------------------------------------------------------------

    def explain_rejection(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Rejection | None:
        """Return why a host does not pass; None: the host passes.

        For ``spread_level``, this method compares the places of all hosts; a decision
        compares only the places in which a host passes the other filters.
        """
        hosts = host_state.as_batch().whole()
        index = _index(hosts, host_state.uuid)
        for broken in self.broken(hosts, spec_obj):
            if broken.fails[index]:
                level, required, available = broken.finding(index)
                reason = broken.reason(are_groups_read=self._are_groups_read)
                return Rejection(type(self).__name__, reason).because(
                    level, required=required, available=available
                )
        return None

    def broken(self, hosts: HostBatch, spec_obj: RequestSpec) -> Iterator[BrokenRule]:
        """Yield each rule of the request, and the hosts that it rejects."""
        rules = self._rules_of(spec_obj)
        if rules and len(hosts):
            masks = self._masks(hosts, spec_obj)
            for rule in rules:
                yield BrokenRule(rule, ~masks.of(rule), masks)

    # -- instances that are placed during the decision ---------------------------------

    @property
    def instances(self) -> frozenset[str]:
        """The instances on which the rules of the request depend."""
        instances_of_rules = [
            r.instances for r in self._rules or () if not isinstance(r, InPlaces)
        ]
        return frozenset[str]().union(*instances_of_rules)

    def locate(
        self, nodes: Mapping[str, Collection[str]], answered: Collection[str]
    ) -> None:
        """Set where instances count that no host has reported.

        Called by the engine of decisions, on a filter that `prepare` returned, and not
        while the filter runs.

        Parameters
        ----------
        nodes : mapping
            The UUIDs of the compute nodes of each instance; empty: the instance does
            not count.
        answered : collection of str
            The instances whose requests were answered: their claims are not released
            any more if they break a rule.
        """
        self._located, self._answered = dict(nodes), frozenset(answered)

    @property
    def compares_places(self) -> bool:
        """Whether a rule depends on how many instances other places have."""
        return any(isinstance(rule, Spread) for rule in self._rules or ())

    def resolution(
        self,
        hosts: HostBatch,
        node_uuid: str,
        spec_obj: RequestSpec,
        *,
        is_following: bool,
    ) -> Resolution:
        """Return whether the instance of a request may keep a host.

        Parameters
        ----------
        hosts : HostBatch
            The hosts that pass the other filters.
        is_following : bool
            Whether another instance of the request has its host. The rules to be with
            instances are then not evaluated: this instance follows the other one.
        """
        hosts = _including(hosts, node_uuid)
        masks = self._masks(hosts, spec_obj)
        rules = [
            rule
            for rule in self._rules or ()
            if not (is_following and isinstance(rule, WithInstances))
        ]
        uuid = str(spec_obj.instance_uuid)
        return masks.resolution(rules, _index(hosts, node_uuid), uuid)

    def is_group_split(self, hosts: HostBatch, spec_obj: RequestSpec) -> bool:
        """Return whether instances that must be in one place are in several places."""
        masks = self._masks(hosts.whole(), spec_obj)
        rules = (r for r in self._rules or () if isinstance(r, WithInstances))
        return any(masks.is_split(rule) for rule in rules)

    def describe(self, hosts: HostBatch, node_uuid: str, spec_obj: RequestSpec) -> str:
        """Return for the record the values of a host's places that break rules."""
        hosts = _including(hosts, node_uuid)
        masks = self._masks(hosts, spec_obj)
        index = _index(hosts, node_uuid)
        broken = (r for r in self._rules or () if not masks.of(r)[index])
        findings = [masks.finding(rule, index)[2] for rule in broken]
        return "; ".join(findings) or "members of its group are elsewhere"


def _including(hosts: HostBatch, node_uuid: str) -> HostBatch:
    """Return the hosts and a host that a filter may have rejected meanwhile."""
    all_known_hosts = hosts.whole()
    mask = all_known_hosts.matches("uuid", [node_uuid])
    mask[hosts.rows] = True
    return all_known_hosts.take(mask)


def _index(hosts: HostBatch, node_uuid: str) -> int:
    [index] = np.flatnonzero(hosts.matches("uuid", [node_uuid]))
    return int(index)
