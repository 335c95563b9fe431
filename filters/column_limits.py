# SPDX-License-Identifier: Apache-2.0
"""Filters that require one number of a host, a column, to be below a limit."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from ..objects import RequestSpec
from ..scheduler.hosts import HostAggregate, HostBatch, HostState
from .base import BaseHostFilter, Mask
from .rejection import Mismatch
from .remedy import Remedy

LOG = logging.getLogger(__name__)

#: Limits beyond int64 are clipped to its range: no number of a host is beyond that.
_ENDS: Final = np.iinfo(np.int64)


class ColumnLimitFilter(BaseHostFilter):
    """Pass hosts whose number in a column is less than a limit.

    Attributes
    ----------
    COLUMN : str
        The column of the host table.
    OPTION : str
        The option of ``[filter_scheduler]`` with the limit.
    """

    COLUMN: ClassVar[str]
    OPTION: ClassVar[str]

    @property
    def limit_text(self) -> str:
        """Where the limit is set, for operators."""
        return f"[filter_scheduler] {self.OPTION}"

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

    def remedies(
        self, hosts: HostBatch, spec_obj: RequestSpec, rejected: Mask
    ) -> Iterator[Remedy]:
        """Yield the change of the limit."""
        yield Remedy(
            rejected,
            f"a higher {self.limit_text} than {self.COLUMN} of the hosts",
            needs_operator=True,
            values=lambda hosts: np.asarray(getattr(hosts, self.COLUMN)),
        )


class IoOpsFilter(ColumnLimitFilter):
    """Pass hosts with fewer I/O operations than ``max_io_ops_per_host``."""

    REASON = "as many I/O operations as max_io_ops_per_host allows, or more"
    COLUMN = "num_io_ops"
    OPTION = "max_io_ops_per_host"
    ROWWISE = True


class NumInstancesFilter(ColumnLimitFilter):
    """Pass hosts with fewer instances than ``max_instances_per_host``."""

    REASON = "as many instances as max_instances_per_host allows, or more"
    COLUMN = "num_instances"
    OPTION = "max_instances_per_host"
    ROWWISE = True


class AggregateColumnLimitFilter(ColumnLimitFilter):
    """Pass hosts below the least limit that their aggregates have.

    An aggregate's limit is its metadata with the option's name. For a host without such
    metadata, the option is the limit. As in nova, the option is also the limit of a
    host if one of its limits is not an integer; one warning is logged for all such
    hosts.
    """

    @property
    def limit_text(self) -> str:
        """Where the limit is set, for operators."""
        return f"{self.OPTION} in aggregates' metadata or [filter_scheduler]"

    def limits(self, hosts: HostBatch) -> npt.NDArray[np.int64]:
        """Return the limit of each host, shape (n_hosts,)."""
        key, default = self.OPTION, self.conf.filter_scheduler[self.OPTION]
        with_invalid_limit: set[HostAggregate] = set()

        def limit(aggregates: Sequence[HostAggregate]) -> int:
            with_limit = [a for a in aggregates if key in a.metadata]
            try:
                least = min((int(a.metadata[key]) for a in with_limit), default=default)
            except ValueError:
                with_invalid_limit.update(with_limit)
                least = default
            return max(_ENDS.min, min(least, _ENDS.max))

        limits = hosts.map_distinct("aggregates", limit, np.int64)
        if with_invalid_limit:
            values = sorted(
                f"{a.name}: {a.metadata[key]!r}" for a in with_invalid_limit
            )
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
    ROWWISE = True


class AggregateNumInstancesFilter(AggregateColumnLimitFilter):
    """Pass hosts with fewer instances than their aggregates allow.

    The limit is the metadata ``max_instances_per_host``, or else the option.
    """

    REASON = "as many instances as its aggregates allow, or more"
    COLUMN = "num_instances"
    OPTION = "max_instances_per_host"
    ROWWISE = True
