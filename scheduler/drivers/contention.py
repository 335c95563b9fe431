# SPDX-License-Identifier: Apache-2.0
"""How often Placement refuses what was chosen, and how widely to choose therefore.

    refused ── share rises ──▶ one of n near-equal hosts ── granted ── share falls ─┐
       ▲                                                                            │
       └──────────────── many schedulers on the one best host ◀── n = 1 ────────────┘

Schedulers that do not know of each other's claims choose the same best host, and all
but the first are refused. Choosing at random costs some of the order that weighers
want, so it is done only while refusals are frequent, and only among near-equal hosts.
"""

from __future__ import annotations

import threading
from typing import Final

#: How many claims the share looks back on, about.
N_REMEMBERED: Final = 20

#: The share of refusals up to which the best host is chosen.
LOW_SHARE: Final = 0.1

#: Among how many hosts is chosen at most, where nearly every claim is refused.
MAX_CHOICES: Final = 128

#: Two hosts are then near-equal within this share of what all weights span.
MAX_NEARNESS: Final = 0.5


class Contention:
    """The share of claims that were refused of late. It is safe for threads.

    Each claim counts less the more came after it; time alone changes nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._share = 0.0

    @property
    def share(self) -> float:
        """Return the share of refused claims, 0 to 1, the newest counting most."""
        return self._share

    @property
    def n_choices(self) -> int:
        """Return among how many near-equal best hosts to choose; 1: take the best."""
        if self._share <= LOW_SHARE:
            return 1
        return 1 + round(self._share * (MAX_CHOICES - 1))

    @property
    def nearness(self) -> float:
        """Return within which share of what all weights span hosts are near-equal."""
        return self._share * MAX_NEARNESS

    def note(self, *, is_refused: bool, n_attempts: int = 1) -> None:
        """Take note of a claim, or of several in one POST.

        Parameters
        ----------
        n_attempts : int
            How often it was sent; all but the last one were refused.
        """
        with self._lock:
            for _ in range(n_attempts - 1):
                self._share += (1 - self._share) / N_REMEMBERED
            self._share += (is_refused - self._share) / N_REMEMBERED
