# SPDX-License-Identifier: Apache-2.0
"""The base of filters that require one of a host's numbers to be below a limit."""

from __future__ import annotations

from typing import ClassVar

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch, HostState
from .aggregate_limit import AggregateLimits, aggregate_limits
from .base import BaseHostFilter, Mask
from .rejection import Rejection


class ColumnLimitFilter(BaseHostFilter):
    """Pass hosts whose number is less than the limit.

    Attributes
    ----------
    COLUMN : str
        The column of the number.
    OPTION : str
        The option of ``[filter_scheduler]`` that has the limit.
    """

    COLUMN: ClassVar[str]
    OPTION: ClassVar[str]

    def limits(self, hosts: HostBatch) -> AggregateLimits | int:
        """Return the limit of each host, shape (n_hosts,), or one for all."""
        limit: int = self.conf.filter_scheduler[self.OPTION]
        return limit

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts are below their limit, shape (n_hosts,)."""
        passing: Mask = getattr(hosts, self.COLUMN) < self.limits(hosts)
        return passing

    def explain_rejection(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Rejection | None:
        """Return the number and the limit."""
        rejection = super().explain_rejection(host_state, spec_obj)
        if rejection is None:
            return None
        limits = self.limits(host_state.as_batch())
        return rejection.because(
            self.COLUMN,
            required=f"less than {limits if isinstance(limits, int) else limits[0]}",
            available=getattr(host_state, self.COLUMN),
        )


class AggregateColumnLimitFilter(ColumnLimitFilter):
    """Pass hosts below a limit that aggregates set under the option's name."""

    def limits(self, hosts: HostBatch) -> AggregateLimits:
        """Return the limit of each host, shape (n_hosts,)."""
        default: int = self.conf.filter_scheduler[self.OPTION]
        return aggregate_limits(hosts, self.OPTION, default)
