# SPDX-License-Identifier: Apache-2.0
"""Does the host report every metric that hosts are weighed by?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from oslo_config import cfg

from ..objects import RequestSpec
from ..scheduler.conf.factors import factors
from ..scheduler.hosts import HostBatch, HostState
from .base import BaseHostFilter, Mask
from .rejection import Mismatch
from .remedy import Remedy


class MetricsFilter(BaseHostFilter):
    """Pass hosts that have every metric of ``[metrics] weight_setting``.

    A host without monitors has no metrics; in nova such a host fails the request.
    """

    REASON = "lacks a metric of [metrics] weight_setting"
    ROWWISE = True

    def __init__(
        self, conf: cfg.ConfigOpts, *, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(conf, clock=clock)
        settings = factors("[metrics] weight_setting", conf.metrics.weight_setting)
        self._names = frozenset(name for name, _ in settings)

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts have all required metrics, shape (n_hosts,)."""
        cache_key = (MetricsFilter, self._names)
        mask: Mask = hosts.map_distinct(
            "metrics", self._has_all, bool, cache_key=cache_key
        )
        return mask

    def _has_all(self, metrics: Mapping[str, float] | None) -> bool:
        return self._names <= (metrics or {}).keys()

    def mismatch(self, host_state: HostState, spec_obj: RequestSpec) -> Mismatch:
        """Return the required metrics, and the metrics that the host reports."""
        return "metrics", self._names, (host_state.metrics or {}).keys()

    def remedies(
        self, hosts: HostBatch, spec_obj: RequestSpec, rejected: Mask
    ) -> Iterator[Remedy]:
        """Yield the metrics that hosts would have to report.

        Without the filter, MetricsWeigher fails a request as soon as a host lacks a
        required metric.
        """
        names = ", ".join(sorted(self._names))
        also = " and [metrics] required = False" if self.conf.metrics.required else ""
        yield Remedy(
            rejected,
            f"metrics {names} reported by the hosts",
            needs_operator=True,
            alternative=f"MetricsFilter not in enabled_filters{also}",
        )
