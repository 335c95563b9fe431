# SPDX-License-Identifier: Apache-2.0
"""Adapters for filters and weighers that were written for nova."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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


def make_filter(
    cls: type, conf: cfg.ConfigOpts, clock: Callable[[], float]
) -> BaseHostFilter:
    """Return an instance of a `BaseHostFilter`, or wrap any class with ``host_passes``.

    Raises
    ------
    PluginError
        The class is no `BaseHostFilter` and has no ``host_passes``.
    """
    if issubclass(cls, BaseHostFilter):
        return cls(conf, clock=clock)
    _check_method(cls, "host_passes", "filter", "host_passes(host_state, spec_obj)")
    plugin = cls()
    inherited = ("RUN_ON_REBUILD", "run_filter_once_per_request")
    wrapper = _subclass(_ForeignFilter, plugin, inherited)
    filter_: BaseHostFilter = wrapper(plugin, conf, clock)
    return filter_


def make_weigher(
    cls: type, conf: cfg.ConfigOpts, clock: Callable[[], float]
) -> BaseHostWeigher:
    """Return an instance of a `BaseHostWeigher`, or wrap any class with nova's method.

    Raises
    ------
    PluginError
        The class is no `BaseHostWeigher` and has no ``_weigh_object``.
    """
    if issubclass(cls, BaseHostWeigher):
        return cls(conf, clock=clock)
    _check_method(cls, "_weigh_object", "weigher", "_weigh_object(host_state, request)")
    plugin = cls()
    wrapper = _subclass(_ForeignWeigher, plugin, ("minval", "maxval"))
    weigher: BaseHostWeigher = wrapper(plugin, conf, clock)
    return weigher


def _check_method(cls: type, name: str, kind: str, signature: str) -> None:
    if not callable(getattr(cls, name, None)):
        raise PluginError(
            f"{cls.__module__}.{cls.__name__} is not a {kind}: it is not a "
            f"BaseHost{kind.capitalize()} and has no {signature}"
        )


def _subclass(wrapper: type, plugin: object, names: Sequence[str]) -> type:
    """Return a subclass of a wrapper with the class name and attributes of a plugin."""
    attributes = {
        name: getattr(plugin, name) for name in names if hasattr(plugin, name)
    }
    cls = type(plugin)
    return type(cls.__name__, (wrapper,), {"__doc__": cls.__doc__, **attributes})


class _ForeignFilter(BaseHostFilter):
    """Calls a filter written for nova, one host at a time."""

    def __init__(
        self,
        plugin: Any,  # noqa: ANN401 - any class that has the method
        conf: cfg.ConfigOpts,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(conf, clock=clock)
        self._plugin = plugin

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return bool(self._plugin.host_passes(host_state, spec_obj))

    def passing_candidates(
        self, hosts: HostBatch, spec_obj: RequestSpec
    ) -> Mask | None:
        """Return the mask of the candidates that the filter keeps for passing hosts.

        Return None if the filter has no method ``filter_candidates``.
        """
        if not hasattr(self._plugin, "filter_candidates"):
            return None
        candidates = hosts.candidates
        passing = np.zeros(len(candidates), bool)
        for host, numbers in zip(hosts, candidates.by_row(len(hosts)), strict=True):
            offered = [candidates.request(i) for i in numbers.tolist()]
            host.allocation_candidates = [*offered]  # it may modify the list in place
            if self._plugin.host_passes(host, spec_obj):
                kept_ids = set(map(id, host.allocation_candidates))
                passing[numbers] = [id(request) in kept_ids for request in offered]
        return passing

    def selection_limits(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Mapping[str, object]:
        """Return the limits that the filter writes to the host state."""
        self._plugin.host_passes(host_state, spec_obj)
        return host_state.limits


class _ForeignWeigher(BaseHostWeigher):
    """Calls a weigher written for nova, one host at a time."""

    def __init__(
        self,
        plugin: Any,  # noqa: ANN401 - any class that has the method
        conf: cfg.ConfigOpts,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(conf, clock=clock)
        self._plugin = plugin
        self._warn_of_multiplier = functools.cache(self._log_multiplier)

    def _log_multiplier(self) -> None:
        LOG.warning(
            "weigher %s: a multiplier is not a finite number, perhaps in an "
            "aggregate's metadata; using 1 instead",
            type(self).__name__,
        )

    def weigh_host(self, host_state: HostState, spec_obj: RequestSpec) -> float:
        weight = self._plugin._weigh_object(  # noqa: SLF001 - nova's name of the method
            host_state, spec_obj
        )
        return float(weight)

    def multipliers(self, hosts: HostBatch) -> Weights:
        multiplier = getattr(self._plugin, "weight_multiplier", None)
        if multiplier is None:
            return np.ones(len(hosts))
        values = (float(multiplier(host)) for host in hosts)
        multipliers = np.fromiter(values, dtype=np.float64, count=len(hosts))
        is_finite = np.isfinite(multipliers)
        if not is_finite.all():
            self._warn_of_multiplier()
        return np.where(is_finite, multipliers, 1.0)
