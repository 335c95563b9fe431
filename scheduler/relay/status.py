# SPDX-License-Identifier: Apache-2.0
"""What telemetry reads of a relay."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field


class RelayRole(enum.Enum):
    """What a relay does now."""

    JOINING = "joining"
    FOLLOWER = "follower"
    STARTING = "starting"
    LEADER = "leader"


@dataclass(slots=True)
class RelayStatus:
    """The state of a relay, written by its thread.

    Attributes
    ----------
    trouble : str
        Why the relay cannot do its work, and what it waits for; "": it works.
    notes : tuple of str
        Faults of the relay's source that an operator should read.
    n_hosts : int
        The compute nodes that the topics have, as far as the leader knows.
    n_written : Counter
        Messages committed since the start, by kind.
    last_write_at : float or None
        When the newest transaction was committed, seconds since the epoch.
    """

    role: RelayRole = RelayRole.JOINING
    trouble: str = ""
    notes: tuple[str, ...] = ()
    n_hosts: int = 0
    n_written: Counter[str] = field(default_factory=Counter)
    last_write_at: float | None = None

    @property
    def is_leader(self) -> bool:
        """Whether the relay leads."""
        return self.role is RelayRole.LEADER

    @property
    def is_ready(self) -> bool:
        """Whether the relay leads and writes, or is a follower that could lead."""
        has_joined = self.role in (RelayRole.FOLLOWER, RelayRole.LEADER)
        return has_joined and not self.trouble

    @property
    def text(self) -> str:
        """The role, and why the relay is not ready."""
        parts = (f"Role: {self.role.value}.", self.trouble, *self.notes)
        return " ".join(dict.fromkeys(part for part in parts if part))
