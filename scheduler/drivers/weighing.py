# SPDX-License-Identifier: Apache-2.0
"""Weigh hosts and put them in order."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
from oslo_config import cfg

from ...objects import RequestSpec
from ...weighers import BaseHostWeigher
from ...weighers.base import WeightRange, Weights
from .. import tracing
from ..errors import PluginError, SchedulerError
from ..hosts import HostBatch
from .record import TOP_HOSTS, WeighedHost, WeigherPart

LOG = logging.getLogger(__name__)

Order = npt.NDArray[np.intp]

#: Enough for the chosen host, its alternates, and some hosts that are full meanwhile.
_N_BEST = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """What one weigher said: enough to tell its share in any host's weight.

    The scaled figures of all hosts are not kept: at 10,000 hosts, getting the memory
    for those of every weigher would cost more than all the arithmetic.

    Attributes
    ----------
    raw : ndarray of float64, shape (n_hosts,)
    multipliers : ndarray of float64, shape (n_hosts,), or None
        None: all hosts are alike to the weigher.
    """

    name: str
    raw: Weights
    scale: WeightRange
    multipliers: Weights | None

    def of_hosts(self, indices: Order) -> list[WeigherPart]:
        """Return the shares in the weights of some hosts."""
        # They are few: Python's own numbers are faster than arrays, and as exact.
        raw = self.raw[indices].tolist()
        if self.multipliers is None:
            return [WeigherPart(self.name, each, 0.0, 0.0) for each in raw]
        multipliers = self.multipliers[indices].tolist()
        scaled = map(self.scale.normalize_one, raw)
        return [
            WeigherPart(self.name, each, share, share * multiplier)
            for each, share, multiplier in zip(raw, scaled, multipliers, strict=True)
        ]


class Ranking:
    """Order hosts by weight, best first, with what each weigher said of them.

    Only the best are put in order at once: hardly a decision reads further.

    Parameters
    ----------
    total : ndarray of float64, shape (n_hosts,)
        The weight of each host, in the order of `hosts`.
    ties : ndarray of float64, shape (n_hosts,)
        What orders hosts of equal weight, the least first.
    n_best : int
        How many are put in order at once, at least.
    parts : sequence of Part
        What the total is the sum of.
    """

    def __init__(
        self,
        hosts: HostBatch,
        total: Weights,
        ties: npt.NDArray[np.float64],
        n_best: int = _N_BEST,
        parts: Sequence[Part] = (),
    ) -> None:
        self.hosts = hosts
        self.total = total
        self._ties = ties
        self._parts = parts
        # The least weight of those that are put in order at once.
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
        """Count the first hosts that weigh nearly as much as the best one.

        Parameters
        ----------
        nearness : float
            Within which share of what all weights span.
        """
        if not len(self.total):
            return 0
        best = self.total[self.best[:at_most]]
        near = nearness * (best[0] - self.total.min())
        return int(np.count_nonzero(best >= best[0] - near))

    def top(self) -> tuple[WeighedHost, ...]:
        """Return the first hosts of the order as the decision record has them."""
        indices = self.best[:TOP_HOSTS]
        by_weigher = [part.of_hosts(indices) for part in self._parts]
        return tuple(
            WeighedHost(
                host=self.hosts.value("host", index),
                node=self.hosts.value("nodename", index),
                weight=float(self.total[index]),
                parts=tuple(parts[place] for parts in by_weigher),
            )
            for place, index in enumerate(indices.tolist())
        )


def ranked(  # noqa: PLR0913 - five by name
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
    """Return hosts ordered by the sum of their multiplied, scaled weights.

    One host alone is not weighed (nova's rule). Equal weights are ordered by `ties`,
    or anew each time with ``shuffle_best_same_weighed_hosts``; with
    ``host_subset_size`` N one of the N best is moved to the front.

    Parameters
    ----------
    weighers : sequence of BaseHostWeigher
        Prepared for this request.
    ties : ndarray of float64, shape (n_hosts,)
    n_choices : int
        How many of the best hosts to put in random order, those that weigh nearly as
        much as the best one.
    nearness : float
        See `Ranking.n_near_best`.

    Raises
    ------
    PluginError
        A weigher failed, or its answer is no array of finite weights of the hosts.
    """
    options = conf.filter_scheduler
    if options.shuffle_best_same_weighed_hosts:
        ties = rng.random(len(hosts))
    total, scaled = np.zeros(len(hosts)), np.empty(len(hosts))
    parts = []
    if len(hosts) > 1:
        for weigher in weighers:
            name = type(weigher).__name__
            with tracing.span(name, kind="weigher", hosts_in=len(hosts)):
                raw = _figures(name, hosts, partial(weigher.weigh_all, hosts, spec_obj))
                scale = WeightRange.of(raw, weigher.minval, weigher.maxval)
                multipliers = None
                if not scale.is_flat:
                    ask = partial(weigher.multipliers, hosts)
                    multipliers = _figures(name, hosts, ask)
                    with np.errstate(over="ignore", invalid="ignore"):
                        total += scale.normalize(raw, out=scaled) * multipliers
            parts.append(Part(name, raw, scale, multipliers))
    _make_finite(total)
    subset_size = options.host_subset_size
    n_best = max(_N_BEST, subset_size, n_choices)
    ranking = Ranking(hosts, total, ties, n_best, parts)
    if n_choices > 1:
        # Not only the first: where that is refused, the next in order would be, too.
        n_near = ranking.n_near_best(n_choices, nearness)
        ranking.best[:n_near] = rng.permutation(ranking.best[:n_near])
    _move_one_of_the_best(ranking.best, subset_size, rng)
    return ranking


def _figures(name: str, hosts: HostBatch, ask: Callable[[], Weights]) -> Weights:
    try:
        figures = np.asarray(ask(), dtype=np.float64)
    except SchedulerError:
        raise
    except Exception as e:
        # Whatever somebody else's code raises, the error names the weigher.
        raise PluginError(f"weigher {name} failed: {type(e).__name__}: {e}") from e
    if figures.shape != (len(hosts),):
        raise PluginError(
            f"weigher {name} answered an array of shape {figures.shape}; "
            f"it has to be ({len(hosts)},)"
        )
    if not np.isfinite(figures).all():
        # One of them would make every weight NaN, and the order a matter of chance.
        raise PluginError(f"weigher {name} answered NaN or infinity for some host")
    return figures


def _make_finite(total: Weights) -> None:
    """Let hosts whose weight cannot be computed weigh least: NaN has no order.

    Figures and multipliers are finite, but their products and sums may not be.
    """
    is_nan = np.isnan(total)
    if is_nan.any():
        LOG.warning(
            "The weight of %d of %d host(s) cannot be computed, which puts them last: "
            "figures or multipliers of weighers are too large",
            np.count_nonzero(is_nan),
            len(total),
        )
    np.nan_to_num(total, copy=False, nan=np.finfo(np.float64).min)


def _move_one_of_the_best(
    order: Order, subset_size: int, rng: np.random.Generator
) -> None:
    n_best = min(subset_size, len(order))
    if n_best > 1:
        chosen = int(rng.integers(n_best))
        order[: chosen + 1] = np.roll(order[: chosen + 1], 1)
