# SPDX-License-Identifier: Apache-2.0
"""The base class of host filters, with two ways to write one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
from oslo_config import cfg

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch, HostState
from ..scheduler.locality import JointRule
from .rejection import Mismatch, Rejection

Mask = npt.NDArray[np.bool_]


class BaseHostFilter:
    """Select the hosts that may run an instance; a plugin overrides one of two methods.

    `passing` handles all hosts at once, `host_passes` one host: clearer, but slower.
    The scheduler calls `prepare` once per request and `passing` once per instance, from
    several threads. A filter is pure: it modifies neither hosts nor the request nor
    itself, and does no I/O.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts
        The configuration.
    clock : callable
        Returns the time in seconds since the epoch.

    Attributes
    ----------
    REASON : str
        Why a host is rejected, for the decision record and, with a number of hosts, for
        end users: it names no host. `reason_for` can be more specific.
    RUN_ON_REBUILD : bool
        Whether it runs when an instance is rebuilt on its host.
    run_filter_once_per_request : bool
        Whether the result holds for all instances of a request, so that the filter runs
        for the first one only.
    may_pass_later : bool
        Whether a host that is rejected for one instance may pass for a later one of the
        same request. Such filters run after all others.
    """

    REASON: ClassVar[str] = "rejected by the filter"
    RUN_ON_REBUILD: ClassVar[bool] = False
    run_filter_once_per_request: ClassVar[bool] = False
    may_pass_later: ClassVar[bool] = False

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
        """Return the filter to use for this request: by default the filter itself.

        A filter that prepares something returns a copy of itself that holds it.
        """
        return self

    @property
    def is_idle(self) -> bool:
        """Whether it passes all hosts of the request, so that it need not run.

        The scheduler reads it once a request, after `prepare`.
        """
        return False

    def reason_for(self, spec_obj: RequestSpec, hosts: HostBatch | None = None) -> str:
        """Return why hosts are rejected for this request: by default, `REASON`.

        Called on what `prepare` returned.

        Parameters
        ----------
        hosts : HostBatch, optional
            Those of which none passed.
        """
        return self.REASON

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
        """Return which allocation candidates pass, if those of one host can differ.

        A host then passes if one of its candidates does, and only passing candidates
        are claimed. `passing` must agree. None, the default: the filter does not
        distinguish the candidates of a host, and `passing` decides.

        Returns
        -------
        ndarray of bool, shape (n_candidates,), or None
            In the order of ``hosts.candidates``.
        """
        return None

    def joint_rules(
        self, hosts: HostBatch, spec_obj: RequestSpec
    ) -> Sequence[JointRule]:
        """Return what all further instances of the request conform to together.

        For drivers that place several instances at once. None by default: the filter
        judges a host by the host alone. A filter with ``may_pass_later`` that overrides
        it is not run for such drivers; the rules stand for it.
        """
        return ()

    def selection_limits(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Mapping[str, object]:
        """Return limits that the selection of a host passes to the compute service.

        Called for the chosen host and its alternates. The keys are the names of fields
        of ``SchedulerLimits``.
        """
        return {}

    def explain_rejection(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Rejection | None:
        """Return why one host does not pass, or None if it does.

        Called on demand, never during a decision.
        """
        if self.host_passes(host_state, spec_obj):
            return None
        reason = self.reason_for(spec_obj)
        rejection = Rejection(filter=type(self).__name__, reason=reason)
        if (mismatch := self.mismatch(host_state, spec_obj)) is None:
            return rejection
        attribute, required, available = mismatch
        return rejection.because(attribute, required=required, available=available)

    def mismatch(self, host_state: HostState, spec_obj: RequestSpec) -> Mismatch | None:
        """Return the attribute, the required and the actual value of a rejected host.

        `explain_rejection` adds them to the reason. A plugin overrides it::

            return "free_ram_mb", "at least 512", host_state.free_ram_mb
        """
        return None


def all_hosts(hosts: HostBatch) -> Mask:
    """Return a mask that is True for all hosts, shape (n_hosts,)."""
    return np.ones(len(hosts), dtype=bool)


def no_hosts(hosts: HostBatch) -> Mask:
    """Return a mask that is False for all hosts, shape (n_hosts,)."""
    return np.zeros(len(hosts), dtype=bool)
