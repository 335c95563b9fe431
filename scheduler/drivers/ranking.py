# SPDX-License-Identifier: Apache-2.0
"""Hosts in the order of their weights, and the parts of which a weight is the sum."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ...weighers.base import Weights, normalize
from ..hosts import HostBatch
from .record import TOP_HOSTS, WeighedHost, WeigherPart

Order = npt.NDArray[np.intp]

#: Enough for the chosen host, its alternates, and some hosts that have become full.
N_BEST: Final = 64


@dataclasses.dataclass(frozen=True, slots=True)
class WeigherScores:
    """The raw weights of one weigher, and how its part of a host's weight is computed.

    The normalized weights of all hosts are not stored: at 10,000 hosts, allocating
    memory for them takes longer than all the arithmetic.

    Attributes
    ----------
    raw : ndarray of float64, shape (n_hosts,)
        The raw weights.
    low, high : float
        The range of raw weights that is normalized to 0..1.
    multipliers : ndarray of float64, shape (n_hosts,), or None
        None: the weigher does not distinguish the hosts.
    """

    name: str
    raw: Weights
    low: float
    high: float
    multipliers: Weights | None


def parts_of(
    scores: Sequence[WeigherScores], indices: Order
) -> tuple[Weights, Weights, Weights]:
    """Return the raw, normalized and multiplied weights of a few hosts.

    All weighers at once: for a few hosts, calls take longer than arithmetic.

    Parameters
    ----------
    scores : sequence of WeigherScores, length n_weighers at least 1
    indices : ndarray of intp, shape (n,)

    Returns
    -------
    three ndarrays of float64, shape (n_weighers, n)
    """
    raw = np.array([score.raw[indices] for score in scores])
    low, high = np.array([[s.low, s.high] for s in scores]).T[..., np.newaxis]
    normalized = normalize(raw, low, high)
    ones = np.ones(len(indices))
    multipliers = [
        ones if score.multipliers is None else score.multipliers[indices]
        for score in scores
    ]
    return raw, normalized, normalized * multipliers


class Ranking:
    """Hosts ordered by weight, best first, with each weigher's scores.

    Only the best hosts are sorted when a ranking is created: hardly any decision reads
    further.

    Parameters
    ----------
    total : ndarray of float64, shape (n_hosts,)
        The weight of each host, in the order of `hosts`.
    ties : ndarray of float64, shape (n_hosts,)
        Tie breakers for hosts of equal weight, the lowest first.
    n_best : int
        The minimum number of hosts that are sorted at creation.
    scores : sequence of WeigherScores
        The scores of the weighers, from which `total` was computed; one for each, or
        none if the hosts were not weighed.
    bound : float
        A weight that a suitable number of hosts is likely to have, or more.

    Attributes
    ----------
    bound : float
        The lowest weight of the hosts that are sorted.
    best : ndarray of intp, shape (n_sorted,)
        The indices of the sorted hosts, best first.
    """

    def __init__(
        self,
        hosts: HostBatch,
        total: Weights,
        ties: npt.NDArray[np.float64],
        n_best: int = N_BEST,
        scores: Sequence[WeigherScores] = (),
        bound: float = -np.inf,
    ) -> None:
        self.hosts = hosts
        self.total = total
        self.ties = ties
        self.scores = scores
        is_large = len(total) > 4 * n_best
        self.bound = bound if is_large else -np.inf
        is_best = total >= self.bound
        if is_large and not n_best <= np.count_nonzero(is_best) <= 4 * n_best:
            # Twice as many, so that the bound serves later instances, too.
            self.bound = np.partition(total, len(total) - 2 * n_best)[-2 * n_best]
            is_best = total >= self.bound
            if np.count_nonzero(is_best) > 4 * n_best:
                # Many have the same weight, such as all empty hosts of one kind.
                equal = np.flatnonzero(total == self.bound)
                n_equal = 2 * n_best - np.count_nonzero(total > self.bound)
                last_tie = np.partition(ties[equal], n_equal - 1)[n_equal - 1]
                is_best[equal[ties[equal] > last_tie]] = False
        self._is_best = is_best
        self.best = self._ordered(is_best)

    def _ordered(self, mask: npt.NDArray[np.bool_]) -> Order:
        indices = np.flatnonzero(mask)
        order = np.lexsort((self.ties[indices], -self.total[indices]))
        ordered: Order = indices[order]
        return ordered

    @property
    def order(self) -> Order:
        """All indices into `hosts`, best first, shape (n_hosts,)."""
        return np.concatenate([self.best, self._ordered(~self._is_best)])

    def __iter__(self) -> Iterator[int]:
        """Yield indices into `hosts`, best first."""
        yield from self.best.tolist()
        if len(self.best) < len(self.total):
            yield from self._ordered(~self._is_best).tolist()

    def n_near_best(self, at_most: int, nearness: float) -> int:
        """Return how many of the first `at_most` hosts have nearly the highest weight.

        Parameters
        ----------
        nearness : float
            The maximum difference to the best weight, as a share of the range of all
            weights.
        """
        if not len(self.total):
            return 0
        best_weights = self.total[self.best[:at_most]]
        max_difference = nearness * (best_weights[0] - self.total.min())
        return int(np.count_nonzero(best_weights >= best_weights[0] - max_difference))

    def top(self, n_hosts: int = TOP_HOSTS) -> tuple[WeighedHost, ...]:
        """Return the best hosts, with each weigher's part of their weights."""
        indices = (self.best if n_hosts <= len(self.best) else self.order)[:n_hosts]
        parts: Iterable[tuple[WeigherPart, ...]] = [()] * len(indices)
        if self.scores:
            names = [score.name for score in self.scores]
            columns = parts_of(self.scores, indices)
            values_of_hosts = zip(
                *(column.T.tolist() for column in columns), strict=True
            )
            parts = (
                tuple(map(WeigherPart, names, *values)) for values in values_of_hosts
            )
        return tuple(
            WeighedHost(
                host=self.hosts.value("host", index),
                node=self.hosts.value("nodename", index),
                weight=float(self.total[index]),
                parts=parts_of_host,
            )
            for index, parts_of_host in zip(indices.tolist(), parts, strict=True)
        )
