# SPDX-License-Identifier: Apache-2.0
"""What another configuration would have changed, over many decisions."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from ..drivers.record import Outcome
from ..views import OfflineParts
from .replay import Replay, hosts_of


@dataclasses.dataclass(slots=True)
class ReplaySummary:
    """What another configuration would have changed, over many decisions.

    Each is repeated on its own view: that an earlier one went elsewhere does not change
    the hosts on which later ones are made.

    Attributes
    ----------
    n_elsewhere : int
        Decisions of which an instance got another host.
    n_found, n_lost : int
        Decisions that find hosts only now, and only then.
    fills : tuple of list of float
        The used share of memory of each selected host, with its instance: then, now.
    hosts : tuple of set of str
        The selected hosts: then, now.
    """

    n_replayed: int = 0
    n_identical: int = 0
    n_elsewhere: int = 0
    n_found: int = 0
    n_lost: int = 0
    n_failed: int = 0
    first_failure: str = ""
    fills: tuple[list[float], list[float]] = dataclasses.field(
        default_factory=lambda: ([], [])
    )
    hosts: tuple[set[str], set[str]] = dataclasses.field(
        default_factory=lambda: (set(), set())
    )

    def add(self, made: Replay, offline: OfflineParts, memory_mb: int) -> None:
        """Count a replay.

        Parameters
        ----------
        memory_mb : int
            Of the request's flavor.
        """
        self.n_replayed += 1
        if made.replayed.outcome is Outcome.FAILED:
            self.fail(made.replayed.reason)
            return
        was, now = hosts_of(made.recorded), hosts_of(made.replayed)
        self.n_identical += made.is_identical
        self.n_elsewhere += bool(was and now and was != now)
        self.n_found += bool(now and not was)
        self.n_lost += bool(was and not now)
        for side, names in enumerate((was, now)):
            self.hosts[side].update(names)
            self.fills[side].extend(_fills(offline, names, memory_mb))

    def fail(self, why: str) -> None:
        """Count a decision that could not be repeated."""
        self.n_failed += 1
        self.first_failure = self.first_failure or why

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as plain data, `before` and `after` for hosts and fill."""
        sides = ("recorded", "replayed")
        return {
            "replayed": self.n_replayed,
            "identical": self.n_identical,
            "elsewhere": self.n_elsewhere,
            "found": self.n_found,
            "lost": self.n_lost,
            "failed": self.n_failed,
            "first_failure": self.first_failure,
            "hosts": dict(zip(sides, map(len, self.hosts), strict=True)),
            "memory_fill": dict(zip(sides, map(_mean, self.fills), strict=True)),
        }


def _fills(
    offline: OfflineParts, names: Sequence[str], memory_mb: int
) -> Iterator[float]:
    table = offline.parts.table
    n_placed: Counter[str] = Counter()
    for name in names:
        n_placed[name] += 1
        hosts = table.batch(table.nodes_of(name))
        total = int(hosts.total_usable_ram_mb.sum())
        if total:
            used = total - int(hosts.free_ram_mb.sum()) + memory_mb * n_placed[name]
            yield used / total


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
