# SPDX-License-Identifier: Apache-2.0
"""What is the weighted sum of the metrics that the host reports?"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping

import numpy as np
from oslo_config import cfg

from ..objects import RequestSpec
from ..scheduler.conf.factors import factors
from ..scheduler.errors import HostMetricNotFound
from ..scheduler.hosts import HostBatch
from .base import BaseHostWeigher, Weights

Setting = tuple[tuple[str, float], ...]
Metrics = Mapping[str, float]


class MetricsWeigher(BaseHostWeigher):
    """Weigh by the sum of metrics times their ratios in ``[metrics] weight_setting``.

    If a host lacks one of the metrics and ``[metrics] required`` is true, the request
    fails, unless MetricsFilter has rejected the host before. Otherwise the host weighs
    ``weight_of_unavailable``; but a missing metric is ignored if its ratio, or the
    multiplier of the host, is 0.
    """

    MULTIPLIER = "weight_multiplier"
    MULTIPLIER_GROUP = "metrics"
    MULTIPLIER_KEY = "metrics_weight_multiplier"
    ROWWISE = True

    def __init__(
        self, conf: cfg.ConfigOpts, *, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(conf, clock=clock)
        setting = conf.metrics.weight_setting
        self._setting: Setting = factors("[metrics] weight_setting", setting)

    def is_off(self, hosts: HostBatch) -> bool:
        """Return whether the weigher need not run: a required metric is checked."""
        return not self.conf.metrics.required and super().is_off(hosts)

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return the weighted sum of each host's metrics, shape (n_hosts,).

        Raises
        ------
        HostMetricNotFound
            A metric is required, and a host lacks it.
        """
        if not self._setting:
            return np.zeros(len(hosts))
        if self.conf.metrics.required:
            sums = self._sums(hosts, self._setting)
            if np.isnan(sums).any():
                raise self._missing(hosts, int(np.flatnonzero(np.isnan(sums))[0]))
            return sums
        unavailable = float(self.conf.metrics.weight_of_unavailable)
        needed = tuple((name, ratio) for name, ratio in self._setting if ratio)
        sums = np.nan_to_num(self._sums(hosts, needed), nan=unavailable)
        is_off = self.multipliers(hosts) == 0
        if is_off.any():
            sums = np.where(is_off, self._sums(hosts, ()), sums)
        return sums

    def _sums(self, hosts: HostBatch, needed: Setting) -> Weights:
        """Return the sums, NaN for hosts that lack a metric of `needed`, (n_hosts,)."""
        names = tuple(name for name, _ in needed)
        total = functools.partial(_total, setting=self._setting, needed=names)
        cache_key = ("MetricsWeigher", self._setting, names)
        sums: Weights = hosts.map_distinct(
            "metrics", total, np.float64, cache_key=cache_key
        )
        return sums

    def _missing(self, hosts: HostBatch, index: int) -> HostMetricNotFound:
        values = hosts.value("metrics", index) or {}
        name = next(n for n, _ in self._setting if math.isnan(values.get(n, math.nan)))
        return HostMetricNotFound(
            f"Metric {name} could not be found on the compute host node "
            f"{hosts.value('host', index)}.{hosts.value('nodename', index)}. Enable "
            "MetricsFilter, or set [metrics] required to False."
        )


def _total(
    metrics: Metrics | None, *, setting: Setting, needed: tuple[str, ...]
) -> float:
    values = metrics or {}
    if any(name not in values for name in needed):
        return math.nan
    total = 0.0
    for name, ratio in setting:  # nova's order: the rounding of floats depends on it
        if name in values:
            total += values[name] * ratio
    return total
