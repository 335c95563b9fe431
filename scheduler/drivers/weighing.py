# SPDX-License-Identifier: Apache-2.0
"""Weigh hosts, and rank them by the sum of their weights."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
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
from .ranking import N_BEST, Ranking, WeigherScores

LOG = logging.getLogger(__name__)


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
        Tie breakers; of hosts of equal weight, the one with the lowest comes first.
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
    n_best = max(N_BEST, subset_size, n_choices)
    ranking = Ranking(hosts, total, ties, n_best, scores)
    if n_choices > 1:
        # All of them are put in random order, not only the first one: if the first one
        # is refused, the others are likely to be refused in order, too.
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
        `compute` fails, or returns something else; the message begins with `what`.
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
        # A single such value would make every weight NaN, and the order random.
        raise PluginError(f"{what} returned NaN or infinity for some host")
    return values
