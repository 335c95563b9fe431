# SPDX-License-Identifier: Apache-2.0
"""Instances that are placed together: the hosts for them, their rules and wishes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from ...filters import BaseHostFilter
from ...objects import RequestSpec
from ...weighers import BaseHostWeigher
from ..errors import PluginError, SchedulerError
from ..hosts import HostBatch
from ..locality import JointRule, PlacesUsed
from ..request import Request
from .base import Eligible
from .filtering import filter_hosts, passing_again
from .instances import spec_of_instance
from .record import DecisionRecord, FilterStep

_Found = TypeVar("_Found", JointRule, PlacesUsed)


class Together:
    """What the filters and weighers of a request say of all its instances at once.

    Parameters
    ----------
    filters : sequence of BaseHostFilter
        Prepared for the request, in the order in which they run.
    weighers : sequence of BaseHostWeigher
        Prepared for the request.
    """

    def __init__(
        self,
        request: Request,
        filters: Sequence[BaseHostFilter],
        weighers: Sequence[BaseHostWeigher],
        record: DecisionRecord,
    ) -> None:
        self._request = request
        #: Those for which rules stand are not run.
        self._replaced = [e for e in filters if e.may_pass_later and _has_rules(e)]
        self._run = [each for each in filters if each not in self._replaced]
        self._filters = filters
        self._weighers = weighers
        self._record = record

    def eligible(self, hosts: HostBatch, uuid: str) -> Eligible:
        """Return the hosts for the instances that are not counted on them yet.

        Raises
        ------
        PluginError
            A filter or weigher failed, or what it returned is not about these hosts.
        """
        spec_obj = spec_of_instance(self._request.spec_obj, uuid)
        with self._record.timed("filters"):
            hosts = filter_hosts(
                self._run,
                hosts,
                spec_obj,
                index=0,
                is_rebuild=self._request.is_rebuild,
                steps=self._record.steps,
                instance=self._record.position_of(uuid, 0),
            )
            rules: list[JointRule] = []
            allowed = np.ones(len(hosts), bool)
            for filter_ in filter(_has_rules, self._filters):
                n_in = int(allowed.sum())
                for rule in _asked(filter_, filter_.joint_rules, hosts, spec_obj):
                    allowed &= rule.allowed
                    rules.append(rule)
                if filter_ in self._replaced:
                    name, n_out = type(filter_).__name__, int(allowed.sum())
                    at = self._record.position_of(uuid, 0)
                    step = FilterStep(name, n_in, n_out, filter_.REASON, at)
                    self._record.steps.append(step)
        with self._record.timed("weighers"):
            wishes = [
                wish.take(allowed)
                for each in self._weighers
                for wish in _asked(each, each.joint_wishes, hosts, spec_obj)
            ]
        left = [rule.take(allowed) for rule in rules]
        return Eligible(hosts.take(allowed), left, wishes)

    def passing_again(self, hosts: HostBatch, uuid: str) -> HostBatch:
        """Return the eligible hosts that pass once others are counted on them."""
        return passing_again(
            self._run,
            hosts,
            spec_of_instance(self._request.spec_obj, uuid),
            is_rebuild=self._request.is_rebuild,
        )


def _has_rules(filter_: BaseHostFilter) -> bool:
    return type(filter_).joint_rules is not BaseHostFilter.joint_rules


def _asked(
    plugin: BaseHostFilter | BaseHostWeigher,
    ask: Callable[[HostBatch, RequestSpec], Sequence[_Found]],
    hosts: HostBatch,
    spec_obj: RequestSpec,
) -> Sequence[_Found]:
    """Return the rules or wishes of a plugin, which must be about these hosts."""
    name = type(plugin).__name__
    try:
        found = ask(hosts, spec_obj)
        shapes = {each.places.shape for each in found}
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
    return found
