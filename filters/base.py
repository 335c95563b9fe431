# SPDX-License-Identifier: Apache-2.0
"""The base class of host filters, with two ways to write one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
from oslo_config import cfg

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch, HostState
from ..scheduler.locality import JointRule
from .rejection import Mismatch, Rejection
from .remedy import Remedy

Mask = npt.NDArray[np.bool_]


class BaseHostFilter:
    """Select the hosts that may run an instance; a plugin overrides one of two methods.

    `passing` handles all hosts at once, `host_passes` one host: clearer, but slower.
    The scheduler calls `prepare` once per request and `passing` once per instance, from
    several threads. A filter is pure: it modifies neither hosts nor the request nor
    itself while it runs, and does no I/O.

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
        end users. The text must not name a host. `reason_for` can be more specific.
    RUN_ON_REBUILD : bool
        Whether the filter runs when an instance is rebuilt on its host.
    run_filter_once_per_request : bool
        Whether the result holds for all instances of a request, so that the filter runs
        for the first instance only.
    may_pass_later : bool
        Whether a host that is rejected for one instance may pass for a later one of the
        same request. Such filters run after all other filters.
    ROWWISE : bool
        Whether the answer for a host depends only on the request and on that host: its
        columns, its aggregates, its allocation candidates, and which instances are on
        its service host. For later instances of a request, the filter is then called
        with the hosts that have changed. It must not depend on the number or the order
        of the hosts, on other hosts, or on the time.
    """

    REASON: ClassVar[str] = "rejected by the filter"
    RUN_ON_REBUILD: ClassVar[bool] = False
    run_filter_once_per_request: ClassVar[bool] = False
    may_pass_later: ClassVar[bool] = False
    ROWWISE: ClassVar[bool] = False

    def __init__(
        self, conf: cfg.ConfigOpts, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.conf = conf
        self.clock = clock

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "ROWWISE" not in cls.__dict__:
            cls.ROWWISE = False  # not inherited: a method may have been overridden
        if (
            cls.passing is BaseHostFilter.passing
            and cls.host_passes is BaseHostFilter.host_passes
        ):
            raise TypeError(f"{cls.__name__} defines neither passing nor host_passes")

    def prepare(self, spec_obj: RequestSpec) -> Self:
        """Return the filter to use for this request: by default the filter itself.

        A filter that prepares data for the request returns a copy of itself with the
        data.
        """
        return self

    @property
    def is_idle(self) -> bool:
        """Whether the filter passes all hosts of the request, so that it need not run.

        The scheduler reads the property once a request, after `prepare`.
        """
        return False

    def reason_for(self, spec_obj: RequestSpec, hosts: HostBatch | None = None) -> str:
        """Return why hosts are rejected for this request: by default, `REASON`.

        Called on what `prepare` returned.

        Parameters
        ----------
        hosts : HostBatch, optional
            The hosts that the filter was given, if none of them passed.
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
        """Return which allocation candidates pass; by default None: `passing` decides.

        For filters that distinguish the allocation candidates of one host. A host then
        passes if at least one of its candidates passes, and only passing candidates are
        claimed. `passing` must return the same hosts.

        Returns
        -------
        ndarray of bool, shape (n_candidates,), or None
            In the order of ``hosts.candidates``.
        """
        return None

    def joint_rules(
        self, hosts: HostBatch, spec_obj: RequestSpec
    ) -> Sequence[JointRule]:
        """Return rules to which all further instances of the request conform together.

        For drivers that place several instances at once. By default there are no rules:
        whether a host passes does not depend on the other instances of the request. If
        a filter with ``may_pass_later`` overrides this method, such drivers apply the
        rules instead of running the filter.
        """
        return ()

    def selection_limits(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Mapping[str, object]:
        """Return limits for the compute service, by the fields of ``SchedulerLimits``.

        They are part of the selection of a host. Called for the chosen host and its
        alternates.
        """
        return {}

    def explain_rejection(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Rejection | None:
        """Return why one host does not pass; None: the host passes.

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

        `explain_rejection` adds them to the reason. Return None, the default, to add
        nothing. A plugin overrides this method, for example::

            return "free_ram_mb", "at least 512", host_state.free_ram_mb
        """
        return None

    def remedies(
        self, hosts: HostBatch, spec_obj: RequestSpec, rejected: Mask
    ) -> Iterator[Remedy]:
        """Yield a change for each check of the filter that hosts fail.

        Called on demand on what `prepare` returned, never during a decision. The
        default yields one change, which names the filter and its reason.

        Parameters
        ----------
        rejected : ndarray of bool, shape (n_hosts,)
            The hosts that the filter rejects.
        """
        text = f"{type(self).__name__} satisfied or disabled: "
        reason = self.reason_for(spec_obj)
        yield Remedy(rejected, f"{text}{reason}", needs_operator=True)


def all_hosts(hosts: HostBatch) -> Mask:
    """Return a mask that is True for all hosts, shape (n_hosts,)."""
    return np.ones(len(hosts), dtype=bool)


def no_hosts(hosts: HostBatch) -> Mask:
    """Return a mask that is False for all hosts, shape (n_hosts,)."""
    return np.zeros(len(hosts), dtype=bool)
