# SPDX-License-Identifier: Apache-2.0
"""What telemetry reads of a scheduler; all of it costs little, and asks nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from oslo_config import cfg

from ..drivers.record import DecisionLog
from ..hosts import HostTable
from ..placement.kept import KeptCandidates


class Seen(Protocol):
    """A scheduler, from outside."""

    @property
    def conf(self) -> cfg.ConfigOpts:
        """Its options."""

    @property
    def decisions(self) -> DecisionLog:
        """The newest decisions; tells of each."""

    @property
    def kept(self) -> KeptCandidates:
        """What Placement answered of late."""

    @property
    def table(self) -> HostTable:
        """All hosts."""

    @property
    def is_ready(self) -> bool:
        """Whether requests can be served."""

    @property
    def readiness_note(self) -> str:
        """Why not, or what else to know."""

    @property
    def view_age_s(self) -> float | None:
        """Seconds since the oldest part of the hosts' state was read."""

    @property
    def n_orphans(self) -> int:
        """Claims in doubt."""

    @property
    def suspected_orphans(self) -> Sequence[str]:
        """Consumers whose allocations no evidence explains."""

    @property
    def report_counts(self) -> Mapping[str, int]:
        """How many reports of hosts came to what."""
