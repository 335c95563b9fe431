# SPDX-License-Identifier: Apache-2.0
"""The part of a scheduler that telemetry reads: cheap, and without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from oslo_config import cfg

from ..drivers.record import DecisionLog
from ..hosts import HostTable
from ..placement.cache import CandidatesCache


class MonitoredScheduler(Protocol):
    """A scheduler as telemetry reads it."""

    @property
    def conf(self) -> cfg.ConfigOpts:
        """The options."""

    @property
    def decisions(self) -> DecisionLog:
        """The newest decisions; publishes each to its subscribers."""

    @property
    def candidates_cache(self) -> CandidatesCache:
        """The cache of Placement's allocation candidates."""

    @property
    def table(self) -> HostTable:
        """All hosts."""

    @property
    def is_ready(self) -> bool:
        """Whether requests can be served."""

    @property
    def readiness_note(self) -> str:
        """Why the scheduler is not ready, or a note where it is."""

    @property
    def view_age_s(self) -> float | None:
        """Seconds since the oldest part of the hosts' state was read."""

    @property
    def n_orphans(self) -> int:
        """The number of orphaned claims: those whose outcome is unknown."""

    @property
    def suspected_orphans(self) -> Sequence[str]:
        """UUIDs of consumers whose allocations nothing shows to be in use."""

    @property
    def report_counts(self) -> Mapping[str, int]:
        """The number of reports from hosts, by outcome."""
