# SPDX-License-Identifier: Apache-2.0
"""Filters and weighers that were written for nova, taken as they are."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from oslo_config import cfg

from ...filters import BaseHostFilter
from ...filters.base import Mask
from ...objects import RequestSpec
from ...weighers import BaseHostWeigher
from ...weighers.base import Weights
from ..errors import PluginError
from ..hosts import HostBatch, HostState

LOG = logging.getLogger(__name__)


def filter_from(
    cls: type, conf: cfg.ConfigOpts, clock: Callable[[], float]
) -> BaseHostFilter:
    """Make a filter of a class of ours, or of any with ``host_passes``.

    Raises
    ------
    PluginError
        It is neither.
    """
    if issubclass(cls, BaseHostFilter):
        return cls(conf, clock=clock)
    if not callable(getattr(cls, "host_passes", None)):
        raise PluginError(
            f"{cls.__module__}.{cls.__name__} is no filter: it is no BaseHostFilter "
            "and has no host_passes(host_state, spec_obj)"
        )
    theirs = cls()
    wrapper = type(
        cls.__name__,
        (_ForeignFilter,),
        {
            "__doc__": cls.__doc__,
            "RUN_ON_REBUILD": getattr(theirs, "RUN_ON_REBUILD", False),
            "run_filter_once_per_request": getattr(
                theirs, "run_filter_once_per_request", False
            ),
        },
    )
    made: BaseHostFilter = wrapper(theirs, conf, clock)
    return made


def weigher_from(
    cls: type, conf: cfg.ConfigOpts, clock: Callable[[], float]
) -> BaseHostWeigher:
    """Make a weigher of a class of ours, or of any with ``_weigh_object``.

    Raises
    ------
    PluginError
        It is neither.
    """
    if issubclass(cls, BaseHostWeigher):
        return cls(conf, clock=clock)
    if not callable(getattr(cls, "_weigh_object", None)):
        raise PluginError(
            f"{cls.__module__}.{cls.__name__} is no weigher: it is no BaseHostWeigher "
            "and has no _weigh_object(host_state, request)"
        )
    theirs = cls()
    wrapper = type(
        cls.__name__,
        (_ForeignWeigher,),
        {
            "__doc__": cls.__doc__,
            "minval": getattr(theirs, "minval", None),
            "maxval": getattr(theirs, "maxval", None),
        },
    )
    made: BaseHostWeigher = wrapper(theirs, conf, clock)
    return made


class _NovaFilter(Protocol):
    """What is called of a filter that was written for nova."""

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> object:
        """Return whether the host passes."""


class _NovaWeigher(Protocol):
    """What is called of a weigher that was written for nova."""

    def _weigh_object(self, host_state: HostState, spec_obj: RequestSpec) -> float:
        """Return the raw figure of the host."""
        ...


class _ForeignFilter(BaseHostFilter):
    """Ask somebody else's filter, one host at a time."""

    def __init__(
        self, theirs: _NovaFilter, conf: cfg.ConfigOpts, clock: Callable[[], float]
    ) -> None:
        super().__init__(conf, clock=clock)
        self._theirs = theirs

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return bool(self._theirs.host_passes(host_state, spec_obj))

    def passing_candidates(
        self, hosts: HostBatch, spec_obj: RequestSpec
    ) -> Mask | None:
        """Return which candidates its ``filter_candidates`` left to each host."""
        if not hasattr(self._theirs, "filter_candidates"):
            return None
        candidates = hosts.candidates
        kept = np.zeros(len(candidates), bool)
        for host, mine in zip(hosts, candidates.by_row(len(hosts)), strict=True):
            offered = [candidates.requests[n] for n in candidates.numbers[mine]]
            host.allocation_candidates = [*offered]  # it may shorten the list itself
            if self._theirs.host_passes(host, spec_obj):
                left = set(map(id, host.allocation_candidates))
                kept[mine] = [id(each) in left for each in offered]
        return kept

    def selection_limits(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Mapping[str, object]:
        """Return what it writes to the limits of a host that it lets pass."""
        self._theirs.host_passes(host_state, spec_obj)
        return host_state.limits


class _ForeignWeigher(BaseHostWeigher):
    """Ask somebody else's weigher, one host at a time."""

    def __init__(
        self, theirs: _NovaWeigher, conf: cfg.ConfigOpts, clock: Callable[[], float]
    ) -> None:
        super().__init__(conf, clock=clock)
        self._theirs = theirs
        self._warn_of_multiplier = functools.cache(self._log_multiplier)

    def _log_multiplier(self) -> None:
        LOG.warning(
            "weigher %s: a multiplier is no finite number, perhaps in an aggregate's "
            "metadata; 1 is used instead",
            type(self).__name__,
        )

    def weigh_host(self, host_state: HostState, spec_obj: RequestSpec) -> float:
        figure = self._theirs._weigh_object(  # noqa: SLF001 - nova's name of the method
            host_state, spec_obj
        )
        return float(figure)

    def multipliers(self, hosts: HostBatch) -> Weights:
        multiplier = getattr(self._theirs, "weight_multiplier", None)
        if multiplier is None:
            return np.ones(len(hosts))
        values = (float(multiplier(host)) for host in hosts)
        multipliers = np.fromiter(values, dtype=np.float64, count=len(hosts))
        is_finite = np.isfinite(multipliers)
        if not is_finite.all():
            self._warn_of_multiplier()
        return np.where(is_finite, multipliers, 1.0)
