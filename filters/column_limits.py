# SPDX-License-Identifier: Apache-2.0
"""Filters that require one of a host's numbers to be below a limit."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from ..objects import RequestSpec
from ..scheduler.hosts import HostAggregate, HostBatch, HostState
from .base import BaseHostFilter, Mask
from .rejection import Mismatch

LOG = logging.getLogger(__name__)

#: Limits beyond int64 are clipped, which makes them no limit at all.
_ENDS: Final = np.iinfo(np.int64)


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

    def limits(self, hosts: HostBatch) -> npt.NDArray[np.int64]:
        """Return the limit of each host, shape (n_hosts,)."""
        return np.full(len(hosts), self.conf.filter_scheduler[self.OPTION])

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts are below their limit, shape (n_hosts,)."""
        passing: Mask = getattr(hosts, self.COLUMN) < self.limits(hosts)
        return passing

    def mismatch(self, host_state: HostState, spec_obj: RequestSpec) -> Mismatch:
        """Return the number and the limit."""
        [limit] = self.limits(host_state.as_batch())
        return self.COLUMN, f"less than {limit}", getattr(host_state, self.COLUMN)


class IoOpsFilter(ColumnLimitFilter):
    """Pass hosts with fewer I/O operations than ``max_io_ops_per_host``."""

    REASON = "as many I/O operations as max_io_ops_per_host allows, or more"
    COLUMN = "num_io_ops"
    OPTION = "max_io_ops_per_host"


class NumInstancesFilter(ColumnLimitFilter):
    """Pass hosts with fewer instances than ``max_instances_per_host``."""

    REASON = "as many instances as max_instances_per_host allows, or more"
    COLUMN = "num_instances"
    OPTION = "max_instances_per_host"


class AggregateColumnLimitFilter(ColumnLimitFilter):
    """Pass hosts below the least limit that their aggregates have.

    It is metadata with the option's name. A host without it has the option's limit; so
    has, as in nova, a host of whose limits one is not an integer, with one warning for
    all such hosts.
    """

    def limits(self, hosts: HostBatch) -> npt.NDArray[np.int64]:
        """Return the limit of each host, shape (n_hosts,)."""
        key, default = self.OPTION, self.conf.filter_scheduler[self.OPTION]
        wrong: set[HostAggregate] = set()

        def limit(aggregates: Sequence[HostAggregate]) -> int:
            having = [a for a in aggregates if key in a.metadata]
            try:
                least = min((int(a.metadata[key]) for a in having), default=default)
            except ValueError:
                wrong.update(having)
                least = default
            return max(_ENDS.min, min(least, _ENDS.max))

        limits = hosts.map_distinct("aggregates", limit, np.int64)
        if wrong:
            values = sorted(f"{a.name}: {a.metadata[key]!r}" for a in wrong)
            LOG.warning(
                "%s must be an integer in every aggregate of a host; it is %s; "
                "%d, the option, is used instead",
                key, ", ".join(values), default,
            )  # fmt: skip
        return limits


class AggregateIoOpsFilter(AggregateColumnLimitFilter):
    """Pass hosts with fewer I/O operations than their aggregates allow.

    The limit is the metadata ``max_io_ops_per_host``, or else the option.
    """

    REASON = "as many I/O operations as its aggregates allow, or more"
    COLUMN = "num_io_ops"
    OPTION = "max_io_ops_per_host"


class AggregateNumInstancesFilter(AggregateColumnLimitFilter):
    """Pass hosts with fewer instances than their aggregates allow.

    The limit is the metadata ``max_instances_per_host``, or else the option.
    """

    REASON = "as many instances as its aggregates allow, or more"
    COLUMN = "num_instances"
    OPTION = "max_instances_per_host"
