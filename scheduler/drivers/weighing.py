# SPDX-License-Identifier: Apache-2.0
"""Weigh and rank hosts."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
from oslo_config import cfg

from ...objects import RequestSpec
from ...weighers import BaseHostWeigher
from ...weighers.base import Weights, normalize, weight_range
from .. import tracing
from ..errors import PluginError, SchedulerError
from ..hosts import HostBatch
from .record import TOP_HOSTS, WeighedHost, WeigherPart

LOG = logging.getLogger(__name__)

Order = npt.NDArray[np.intp]

#: Enough for the chosen host, its alternates, and some hosts that have become full.
_N_BEST = 64


@dataclasses.dataclass(frozen=True, slots=True)
class WeigherScores:
    """The raw weights of one weigher, from which its part in a host's weight follows.

    The normalized weights of all hosts are not stored: at 10,000 hosts, allocating the
    memory for those of every weigher would cost more than all the arithmetic.

    Attributes
    ----------
    raw : ndarray of float64, shape (n_hosts,)
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


class Ranking:
    """Hosts ordered by weight, best first, with each weigher's scores.

    Only the best are sorted at once: hardly any decision reads further.

    Parameters
    ----------
    total : ndarray of float64, shape (n_hosts,)
        The weight of each host, in the order of `hosts`.
    ties : ndarray of float64, shape (n_hosts,)
        Tie breakers for hosts of equal weight, the lowest first.
    n_best : int
        The minimum number of hosts that are sorted at once.
    scores : sequence of WeigherScores
        The scores of which the total is the sum.
    """

    def __init__(
        self,
        hosts: HostBatch,
        total: Weights,
        ties: npt.NDArray[np.float64],
        n_best: int = _N_BEST,
        scores: Sequence[WeigherScores] = (),
    ) -> None:
        self.hosts = hosts
        self.total = total
        self._ties = ties
        self._scores = scores
        # The lowest weight of the hosts that are sorted at once.
        self._bound = -np.inf
        if len(total) > 4 * n_best:
            self._bound = np.partition(total, len(total) - n_best)[-n_best]
        self.best = self._ordered(total >= self._bound)

    def _ordered(self, mask: npt.NDArray[np.bool_]) -> Order:
        indices = np.flatnonzero(mask)
        order = np.lexsort((self._ties[indices], -self.total[indices]))
        ordered: Order = indices[order]
        return ordered

    @property
    def order(self) -> Order:
        """All indices into `hosts`, best first, shape (n_hosts,)."""
        return np.concatenate([self.best, self._ordered(self.total < self._bound)])

    def __iter__(self) -> Iterator[int]:
        """Yield indices into `hosts`, best first."""
        yield from self.best.tolist()
        if len(self.best) < len(self.total):
            yield from self._ordered(self.total < self._bound).tolist()

    def n_near_best(self, at_most: int, nearness: float) -> int:
        """Return the number of first hosts whose weights are near the best one.

        Parameters
        ----------
        nearness : float
            The maximum distance, as a share of the range of all weights.
        """
        if not len(self.total):
            return 0
        best = self.total[self.best[:at_most]]
        near = nearness * (best[0] - self.total.min())
        return int(np.count_nonzero(best >= best[0] - near))

    def top(self) -> tuple[WeighedHost, ...]:
        """Return the first hosts, with the parts of all weighers in their weights."""
        indices, scores = self.best[:TOP_HOSTS], self._scores
        parts: Iterable[tuple[WeigherPart, ...]] = [()] * len(indices)
        if scores:
            # All weighers at once: for a few hosts, calls cost more than arithmetic.
            names = [score.name for score in scores]
            raw = np.array([score.raw[indices] for score in scores])
            low, high = np.array([[s.low, s.high] for s in scores]).T[..., np.newaxis]
            normalized = normalize(raw, low, high)
            ones = np.ones(len(indices))
            multipliers = [
                ones if score.multipliers is None else score.multipliers[indices]
                for score in scores
            ]
            columns = raw, normalized, normalized * multipliers
            of_hosts = zip(*(column.T.tolist() for column in columns), strict=True)
            parts = (tuple(map(WeigherPart, names, *of_host)) for of_host in of_hosts)
        return tuple(
            WeighedHost(
                host=self.hosts.value("host", index),
                node=self.hosts.value("nodename", index),
                weight=float(self.total[index]),
                parts=parts_of_host,
            )
            for index, parts_of_host in zip(indices.tolist(), parts, strict=True)
        )


def rank_hosts(  # noqa: PLR0913 - five by name
    weighers: Sequence[BaseHostWeigher],
    hosts: HostBatch,
    spec_obj: RequestSpec,
    *,
    conf: cfg.ConfigOpts,
    ties: npt.NDArray[np.float64],
    rng: np.random.Generator,
    n_choices: int = 1,
    nearness: float = 0.0,
) -> Ranking:
    """Return hosts ordered by the sum of their multiplied, normalized weights.

    A single host is not weighed (nova's rule). Equal weights are ordered by `ties`,
    or at random with ``shuffle_best_same_weighed_hosts``; with ``host_subset_size`` N
    one of the N best is moved to the front.

    Parameters
    ----------
    weighers : sequence of BaseHostWeigher
        Prepared for this request.
    ties : ndarray of float64, shape (n_hosts,)
    n_choices : int
        The maximum number of hosts near the best one to put in random order.
    nearness : float
        See `Ranking.n_near_best`.

    Raises
    ------
    PluginError
        A weigher failed, or its result is not an array of the hosts' finite weights.
    """
    options = conf.filter_scheduler
    if options.shuffle_best_same_weighed_hosts:
        ties = rng.random(len(hosts))
    total, normalized = np.zeros(len(hosts)), np.empty(len(hosts))
    scores = []
    if len(hosts) > 1:
        for weigher in weighers:
            name = type(weigher).__name__
            with tracing.span(name, kind="weigher", hosts_in=len(hosts)):
                compute = partial(weigher.weigh_all, hosts, spec_obj)
                raw = checked_weights(f"weigher {name}", hosts, compute)
                low, high = weight_range(raw, weigher.minval, weigher.maxval)
                multipliers = None
                if low != high:
                    compute = partial(weigher.multipliers, hosts)
                    multipliers = checked_weights(f"weigher {name}", hosts, compute)
            scores.append(WeigherScores(name, raw, low, high, multipliers))
    with np.errstate(over="ignore", invalid="ignore"):
        for score in scores:
            if score.multipliers is not None:
                normalize(score.raw, score.low, score.high, out=normalized)
                total += np.multiply(normalized, score.multipliers, out=normalized)
    # Weights and multipliers are finite, but their products and sums may not be.
    if not np.isfinite(total).all():
        if n_unordered := np.count_nonzero(np.isnan(total)):
            LOG.warning(
                "The weight of %d of %d host(s) cannot be computed, which ranks them "
                "last: raw weights or multipliers are too large",
                n_unordered,
                len(total),
            )
        np.nan_to_num(total, copy=False, nan=np.finfo(np.float64).min)
    subset_size = options.host_subset_size
    n_best = max(_N_BEST, subset_size, n_choices)
    ranking = Ranking(hosts, total, ties, n_best, scores)
    if n_choices > 1:
        # Not only the first: if that is refused, the next in order would be, too.
        n_near = ranking.n_near_best(n_choices, nearness)
        ranking.best[:n_near] = rng.permutation(ranking.best[:n_near])
    n_subset = min(subset_size, len(ranking.best))
    if n_subset > 1:
        chosen = int(rng.integers(n_subset))
        ranking.best[: chosen + 1] = np.roll(ranking.best[: chosen + 1], 1)
    return ranking


def checked_weights(
    what: str, hosts: HostBatch, compute: Callable[[], Weights]
) -> Weights:
    """Return what `compute` returns, which must be a finite weight of each host.

    Raises
    ------
    PluginError
        It fails, or returns something else; the message begins with `what`.
    """
    try:
        values = np.asarray(compute(), dtype=np.float64)
    except SchedulerError:
        raise
    except Exception as e:
        # Third-party code may raise anything: the error names it.
        raise PluginError(f"{what} failed: {type(e).__name__}: {e}") from e
    if values.shape != (len(hosts),):
        raise PluginError(
            f"{what} returned an array of shape {values.shape}; "
            f"it must be ({len(hosts)},)"
        )
    if not np.isfinite(values).all():
        # A single one would make every weight NaN, and the order random.
        raise PluginError(f"{what} returned NaN or infinity for some host")
    return values
