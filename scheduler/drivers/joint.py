# SPDX-License-Identifier: Apache-2.0
"""The hosts for instances that are placed at once, with their rules and preferences."""

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
from .filtering import filter_hosts
from .instances import spec_of_instance
from .record import DecisionRecord, FilterStep

_Answer = TypeVar("_Answer", JointRule, PlacesUsed)


def eligible_jointly(
    request: Request,
    filters: Sequence[BaseHostFilter],
    weighers: Sequence[BaseHostWeigher],
    hosts: HostBatch,
    uuid: str,
    record: DecisionRecord,
) -> Eligible:
    """Return the hosts for the instances that are not counted on them yet.

    Parameters
    ----------
    filters, weighers : sequence
        Prepared for the request, in the order in which they run.

    Raises
    ------
    PluginError
        A filter or weigher failed, or what it returned is not about these hosts.
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
            for rule in _asked(filter_, filter_.joint_rules, hosts, spec_obj):
                allowed &= rule.allowed
                rules.append(rule)
            if filter_ not in applied:
                name, n_out = type(filter_).__name__, int(allowed.sum())
                at = record.position_of(uuid, 0)
                record.steps.append(FilterStep(name, n_in, n_out, filter_.REASON, at))
    with record.timed("weighers"):
        preferences = [
            preference.take(allowed)
            for weigher in weighers
            for preference in _asked(weigher, weigher.joint_wishes, hosts, spec_obj)
        ]
    rules = [rule.take(allowed) for rule in rules]
    return Eligible(hosts.take(allowed), rules, preferences)


def without_joint_rules(filters: Sequence[BaseHostFilter]) -> list[BaseHostFilter]:
    """Return the filters that run for instances that are placed at once.

    The rules of a filter that may pass a host later are applied instead of it.
    """
    return [f for f in filters if not (f.may_pass_later and _has_rules(f))]


def _has_rules(filter_: BaseHostFilter) -> bool:
    return type(filter_).joint_rules is not BaseHostFilter.joint_rules


def _asked(
    plugin: BaseHostFilter | BaseHostWeigher,
    ask: Callable[[HostBatch, RequestSpec], Sequence[_Answer]],
    hosts: HostBatch,
    spec_obj: RequestSpec,
) -> Sequence[_Answer]:
    """Return the rules or preferences of a plugin, which must be about these hosts."""
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
