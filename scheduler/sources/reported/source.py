# SPDX-License-Identifier: Apache-2.0
"""The base class of the sources "push" and "kafka", whose hosts report themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from oslo_config import cfg

from ...clock import now_s
from ...instances import InstanceLocation, InstanceState
from ..base import BaseHostSource
from .hosts import ReportCounts, ReportedHosts

#: Seconds between checks for hosts that were silent for too long.
FORGET_EVERY_S: Final = 10.0
#: A running host reports the instances claimed on it well within this interval.
CHECK_CLAIMS_EVERY_S: Final = 30.0
#: Seconds that `stop` waits for the thread of the source.
STOP_S: Final = 10.0


class Interval:
    """Runs a function once in each interval.

    Parameters
    ----------
    every_s : float
        Also the time before the first run.
    """

    def __init__(self, every_s: float, run: Callable[[], object]) -> None:
        self._every_s = every_s
        self._run = run
        self._due_at = time.monotonic() + every_s

    def run_if_due(self) -> None:
        """Run the function if the interval is over."""
        if time.monotonic() >= self._due_at:
            self._due_at = time.monotonic() + self._every_s
            self._run()


class ReportedSource(BaseHostSource):
    """Answer from the newest reports of hosts, which the subclass applies.

    A subclass sets `_hosts` when it starts.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts, optional
        With ``[moorage] forget_hosts_after``.
    clock : callable, optional
        Returns now, seconds since the epoch.
    """

    are_zones_checked = False

    def __init__(
        self,
        conf: cfg.ConfigOpts | None = None,
        *,
        clock: Callable[[], float] = now_s,
    ) -> None:
        super().__init__(conf)
        self._clock = clock
        self._hosts: ReportedHosts | None = None

    @property
    def counts(self) -> ReportCounts:
        """The numbers of reports received, by outcome."""
        return ReportCounts() if self._hosts is None else self._hosts.counts

    def locate_instance(self, instance_uuid: str) -> InstanceLocation:
        """Return the host that reported an instance, or that it was deleted."""
        if self._hosts is None:
            return InstanceLocation(InstanceState.UNKNOWN)
        return self._hosts.locate(instance_uuid)

    def mark_deleted(self, instance_uuids: Iterable[str]) -> None:
        """Remember that these instances were deleted for good."""
        if self._hosts is not None:
            self._hosts.mark_deleted(instance_uuids)

    def seen_at(self) -> float | None:
        """Return when the newest report or heartbeat of any host was received.

        A single silent host counts as down after ``service_down_time``; if all are
        silent, this scheduler receives nothing.
        """
        return None if self._hosts is None else self._hosts.last_report_at

    def refused_report(self, host: str) -> tuple[float, str] | None:
        """Return when and why the newest report of a host was refused."""
        return None if self._hosts is None else self._hosts.refusals.newest(host)
