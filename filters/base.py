# SPDX-License-Identifier: Apache-2.0
"""What a host filter is, and the two ways to write one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
from oslo_config import cfg

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch, HostState
from .rejection import Rejection

Mask = npt.NDArray[np.bool_]


class BaseHostFilter:
    """Say which hosts may take a request; a plugin overrides one of two methods.

    `passing` answers for all hosts at once, `host_passes` for one: clearer, slower.
    The scheduler calls `prepare` once a request and `passing` once an instance of it,
    in several threads at a time. A filter is a pure question: it writes to no host, no
    request and not to itself, and it does no I/O.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts
        Options with their values.
    clock : callable
        Returns now, seconds since the epoch.

    Attributes
    ----------
    REASON : str
        Why a host is rejected, in the words of the decision record.
    RUN_ON_REBUILD : bool
        Whether it is asked when an instance is rebuilt where it is.
    run_filter_once_per_request : bool
        Whether the answer holds for all instances of a request, so that it is asked
        for the first one only.
    """

    REASON: ClassVar[str] = "the filter says no"
    RUN_ON_REBUILD: ClassVar[bool] = False
    run_filter_once_per_request: ClassVar[bool] = False

    def __init__(
        self, conf: cfg.ConfigOpts, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.conf = conf
        self.clock = clock

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if (
            cls.passing is BaseHostFilter.passing
            and cls.host_passes is BaseHostFilter.host_passes
        ):
            raise TypeError(f"{cls.__name__} defines neither passing nor host_passes")

    def prepare(self, spec_obj: RequestSpec) -> Self:
        """Return what answers for this request: by default the filter itself.

        One that has something to prepare returns a copy of itself that holds it.
        """
        return self

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts pass.

        Returns
        -------
        ndarray of bool, shape (n_hosts,)
        """
        answers = (bool(self.host_passes(host, spec_obj)) for host in hosts)
        return np.fromiter(answers, dtype=bool, count=len(hosts))

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        """Return whether one host passes."""
        return bool(self.passing(host_state.as_batch(), spec_obj)[0])

    def passing_candidates(
        self, hosts: HostBatch, spec_obj: RequestSpec
    ) -> Mask | None:
        """Return which allocation candidates pass, where those of one host differ.

        A host then passes if one of its candidates does, and only what passes is
        claimed. `passing` has to agree. None, which is the default: a host's
        candidates are all alike to the filter, and `passing` says it all.

        Returns
        -------
        ndarray of bool, shape (n_candidates,), or None
            In the order of ``hosts.candidates``.
        """
        return None

    def selection_limits(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Mapping[str, object]:
        """Return what the selection of a host that passed tells the compute service.

        Asked for the chosen host and its alternates. The names are those of the
        fields of ``SchedulerLimits``.
        """
        return {}

    def explain_rejection(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Rejection | None:
        """Return why one host does not pass, or None if it does.

        Asked for on demand, never while deciding. A plugin overrides it to say what
        was required and what is there::

            rejection = super().explain_rejection(host_state, spec_obj)
            return rejection and rejection.because(
                "free_ram_mb", required="at least 512", available=host_state.free_ram_mb
            )
        """
        if self.host_passes(host_state, spec_obj):
            return None
        return Rejection(filter=type(self).__name__, reason=self.REASON)


def all_hosts(hosts: HostBatch) -> Mask:
    """Return the mask that lets all hosts pass, shape (n_hosts,)."""
    return np.ones(len(hosts), dtype=bool)


def no_hosts(hosts: HostBatch) -> Mask:
    """Return the mask that lets no host pass, shape (n_hosts,)."""
    return np.zeros(len(hosts), dtype=bool)
