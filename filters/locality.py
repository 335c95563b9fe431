# SPDX-License-Identifier: Apache-2.0
"""Filter by a request's rules about places: racks, rows, or what they are called."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Self

import numpy as np
from oslo_config import cfg

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch, HostState
from ..scheduler.locality import JointRule, Masks
from ..scheduler.request import Request
from ..scheduler.request.locality import InPlaces, Rule, WithInstances
from .base import BaseHostFilter, Mask, Mismatch, Rejection, all_hosts


class LocalityFilter(BaseHostFilter):
    """Pass hosts whose places conform to the request's hints and its group's level.

    The levels are those of ``[locality] levels``. It runs after all other filters:
    ``spread_level`` compares the places that still have a host.
    """

    REASON = "its place breaks a rule of the request"
    may_pass_later = True

    def __init__(
        self, conf: cfg.ConfigOpts, *, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(conf, clock=clock)
        self._levels = tuple(dict.fromkeys(conf.locality.levels))
        #: Compute nodes of instances that others have placed during the decision.
        self._located: Mapping[str, str] = {}
        self._rules: Sequence[Rule] | None = None if self._levels else ()

    def prepare(self, spec_obj: RequestSpec) -> Self:
        """Return the filter with the rules of a request."""
        if not self._levels:
            return self
        prepared = copy.copy(self)
        rules = Request.of(spec_obj).locality_rules(self._levels)
        prepared._rules = rules  # noqa: SLF001 - a copy of this filter
        return prepared

    @property
    def is_idle(self) -> bool:
        """Whether the request has no rule."""
        return self._rules is not None and not self._rules

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts all rules allow, shape (n_hosts,)."""
        rules = self._rules_of(spec_obj)
        if not rules or not len(hosts):
            return all_hosts(hosts)
        return self._masks(hosts, spec_obj).all(rules)

    def joint_rules(self, hosts: HostBatch, spec_obj: RequestSpec) -> list[JointRule]:
        """Return the rules for all further instances of the request together."""
        rules = self._rules_of(spec_obj)
        if not rules or not len(hosts):
            return []
        masks = self._masks(hosts, spec_obj)
        return [masks.joint(rule) for rule in rules]

    def _rules_of(self, spec_obj: RequestSpec) -> Sequence[Rule]:
        if self._rules is not None:
            return self._rules
        return Request.of(spec_obj).locality_rules(self._levels)

    def _masks(self, hosts: HostBatch, spec_obj: RequestSpec) -> Masks:
        own = spec_obj.instance_uuid if "instance_uuid" in spec_obj else None
        return Masks(hosts, self._levels, own, self._located)

    # -- reasons -----------------------------------------------------------------------

    def explain_rejection(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Rejection | None:
        """Return why a host does not pass; the places of all hosts count for a spread.

        A decision counts only places with a host that passes the other filters.
        """
        found = self.mismatch(host_state, spec_obj)
        if found is None:
            return None
        level, required, available = found
        return Rejection(type(self).__name__, self.REASON).because(
            level, required=required, available=available
        )

    def mismatch(self, host_state: HostState, spec_obj: RequestSpec) -> Mismatch | None:
        """Return the level, what a rule requires of the place, and the host's place."""
        rules = self._rules_of(spec_obj)
        if not rules:
            return None
        hosts = host_state.as_batch().whole()
        masks = self._masks(hosts, spec_obj)
        index = _index(hosts, host_state.uuid)
        broken = (rule for rule in rules if not masks.of(rule)[index])
        first = next(broken, None)
        return None if first is None else masks.finding(first, index)

    # -- instances that are placed during the decision ---------------------------------

    @property
    def instances(self) -> frozenset[str]:
        """The instances of which the rules of the request depend."""
        some = [r.instances for r in self._rules or () if not isinstance(r, InPlaces)]
        return frozenset[str]().union(*some)

    def locate(self, nodes: Mapping[str, str]) -> None:
        """Count these instances on these compute nodes from now on.

        Called by the engine of decisions, on a filter that `prepare` returned, between
        two questions to it.
        """
        self._located = dict(nodes)

    def opponents(
        self,
        hosts: HostBatch,
        node_uuid: str,
        spec_obj: RequestSpec,
        *,
        is_following: bool,
    ) -> Collection[str]:
        """Return the located instances because of which a host must not be used.

        Parameters
        ----------
        hosts : HostBatch
            Those that pass the other filters.
        is_following : bool
            Whether another instance of the request has settled, and is followed.
        """
        hosts = _including(hosts, node_uuid)
        masks = self._masks(hosts, spec_obj)
        rules = [
            rule
            for rule in self._rules or ()
            if not (is_following and isinstance(rule, WithInstances))
        ]
        return set(masks.opponents(rules, _index(hosts, node_uuid)))

    def describe(self, hosts: HostBatch, node_uuid: str, spec_obj: RequestSpec) -> str:
        """Return what a host has that a rule does not allow, for the record."""
        hosts = _including(hosts, node_uuid)
        masks = self._masks(hosts, spec_obj)
        index = _index(hosts, node_uuid)
        broken = (r for r in self._rules or () if not masks.of(r)[index])
        findings = [masks.finding(rule, index)[2] for rule in broken]
        return "; ".join(findings) or "members of its group are elsewhere"


def _including(hosts: HostBatch, node_uuid: str) -> HostBatch:
    """Return the hosts with one that a filter may since have rejected for others."""
    every = hosts.whole()
    mask = every.matches("uuid", [node_uuid])
    mask[hosts.rows] = True
    return every.take(mask)


def _index(hosts: HostBatch, node_uuid: str) -> int:
    [index] = np.flatnonzero(hosts.matches("uuid", [node_uuid]))
    return int(index)
