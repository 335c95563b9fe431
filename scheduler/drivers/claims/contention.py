# SPDX-License-Identifier: Apache-2.0
"""The rate of refused claims, and how widely to spread selections because of it.

    refused ── share rises ──▶ one of n near-equal hosts ── granted ── share falls ─┐
       ▲                                                                            │
       └──────────────── many schedulers on the one best host ◀── n = 1 ────────────┘

Schedulers that do not know of each other's claims choose the same best host, and all
claims but the first are refused. A random choice deviates from the order of weights, so
it is made only while refusals are frequent, and only among near-equal hosts.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import Final

#: The approximate number of claims over which the share is averaged.
N_REMEMBERED: Final = 20

#: The share of refusals up to which the best host is selected.
LOW_SHARE: Final = 0.1

#: The number of hosts to select from if every claim is refused.
MAX_CHOICES: Final = 128

#: The weights of near-equal hosts differ from the best weight by at most this share of
#: the range of all weights, times the share of refused claims.
MAX_NEARNESS: Final = 0.5


@dataclasses.dataclass(slots=True, eq=False)
class Contention:
    """The share of recently refused claims; thread-safe.

    A moving average over claims: the weight of a claim decreases with each later claim,
    not with time.

    Attributes
    ----------
    share : float
        The share of refused claims, 0 to 1; recent claims count most.
    """

    share: float = 0.0
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    @property
    def n_choices(self) -> int:
        """The number of near-equal best hosts to select from; 1: the best host only."""
        if self.share <= LOW_SHARE:
            return 1
        return 1 + round(self.share * (MAX_CHOICES - 1))

    def note(self, *, is_refused: bool, n_attempts: int = 1) -> None:
        """Record a claim, or several claims in one POST.

        Parameters
        ----------
        n_attempts : int
            How often the POST was sent; all attempts but the last one were refused.
        """
        with self._lock:
            for _ in range(n_attempts - 1):
                self.share += (1 - self.share) / N_REMEMBERED
            self.share += (is_refused - self.share) / N_REMEMBERED
