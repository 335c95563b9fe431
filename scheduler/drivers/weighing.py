# SPDX-License-Identifier: Apache-2.0
"""Weigh hosts, and rank them by the sum of their weights."""

from __future__ import annotations

import contextlib
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
from ..candidates import Rows
from ..errors import PluginError, SchedulerError
from ..hosts import HostBatch, without
from .ranking import N_BEST, Ranking, WeigherScores, parts_of

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
    earlier: Ranking | None = None,
    changed: Rows | None = None,
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
    earlier : Ranking, optional
        The ranking for an earlier instance of the request, of the same hosts or more,
        in the same order. Weighers with ``ROWWISE`` are asked only for the hosts that
        have changed since, and the other weights are those of `earlier`.
    changed : ndarray of intp, optional
        The indices in ``earlier.hosts`` of the hosts that have changed. None: `earlier`
        is not used.

    Raises
    ------
    PluginError
        A weigher failed, or its result is not an array of the hosts' finite weights.
    """
    options = conf.filter_scheduler
    if options.shuffle_best_same_weighed_hosts:
        ties = rng.random(len(hosts))
    scores: list[WeigherScores] = []
    if len(hosts) < 2:
        total = np.zeros(len(hosts))
    elif earlier is None or changed is None or not earlier.scores:
        scores, total = _weigh(weighers, hosts, spec_obj)
    else:
        scores, total = _weigh_again(weighers, hosts, spec_obj, earlier, changed)
    subset_size = options.host_subset_size
    n_best = max(N_BEST, subset_size, n_choices)
    bound = -np.inf if earlier is None else earlier.bound
    ranking = Ranking(hosts, total, ties, n_best, scores, bound)
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


def _weigh(
    weighers: Sequence[BaseHostWeigher], hosts: HostBatch, spec_obj: RequestSpec
) -> tuple[list[WeigherScores], Weights]:
    """Return the scores and the weights of all hosts."""
    is_off = [weigher.is_off(hosts) for weigher in weighers]
    running = [w for w, off in zip(weighers, is_off, strict=True) if not off]
    raw = iter(_raw_of_all(running, hosts, spec_obj))
    scores = [
        _not_weighed(weigher, hosts) if off else _score(weigher, hosts, next(raw))
        for weigher, off in zip(weighers, is_off, strict=True)
    ]
    return scores, _total(scores, len(hosts))


def _raw(weigher: BaseHostWeigher, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
    """Return the raw weights of all hosts, shape (n_hosts,)."""
    name = type(weigher).__name__
    with tracing.span(name, kind="weigher", hosts_in=len(hosts)):
        compute = partial(weigher.weigh_all, hosts, spec_obj)
        return checked_weights(f"weigher {name}", hosts, compute)


def _raw_of_all(
    weighers: Sequence[BaseHostWeigher], hosts: HostBatch, spec_obj: RequestSpec
) -> npt.NDArray[np.float64]:
    """Return the raw weights of hosts, shape (n_weighers, n_hosts)."""
    shape = (len(weighers), len(hosts))
    if not tracing.is_recorded():
        with contextlib.suppress(Exception):
            answers = [weigher.weigh_all(hosts, spec_obj) for weigher in weighers]
            raw = np.array(answers, np.float64)
            if raw.shape == shape and np.isfinite(raw).all():
                return raw
    # One by one: the span, or the error, names the weigher.
    raw = np.array([_raw(weigher, hosts, spec_obj) for weigher in weighers])
    return raw.reshape(shape)


def _not_weighed(weigher: BaseHostWeigher, hosts: HostBatch) -> WeigherScores:
    """Return the scores of a weigher that did not run: 0 for all hosts."""
    return WeigherScores(type(weigher).__name__, np.zeros(len(hosts)), 0.0, 0.0, None)


def _score(weigher: BaseHostWeigher, hosts: HostBatch, raw: Weights) -> WeigherScores:
    """Return the scores for raw weights that were checked."""
    low, high = weight_range(raw, weigher.minval, weigher.maxval)
    multipliers = None if low == high else _multipliers(weigher, hosts)
    return WeigherScores(type(weigher).__name__, raw, low, high, multipliers)


def _multipliers(weigher: BaseHostWeigher, hosts: HostBatch) -> Weights:
    """Return the multipliers of all hosts, shape (n_hosts,)."""
    compute = partial(weigher.multipliers, hosts)
    return checked_weights(f"weigher {type(weigher).__name__}", hosts, compute)


def _total(scores: Sequence[WeigherScores], n_hosts: int) -> Weights:
    """Return the sum of multiplied, normalized weights of all hosts, (n_hosts,)."""
    total, normalized = np.zeros(n_hosts), np.empty(n_hosts)
    with np.errstate(over="ignore", invalid="ignore"):
        for score in scores:
            if score.multipliers is not None:
                normalize(score.raw, score.low, score.high, out=normalized)
                total += np.multiply(normalized, score.multipliers, out=normalized)
    return _finite(total)


def _finite(total: Weights) -> Weights:
    """Return weights with the least or greatest finite number for those that are not.

    Weights and multipliers are finite, but their products and sums may not be.
    """
    if not np.isfinite(total).all():
        if n_unordered := np.count_nonzero(np.isnan(total)):
            LOG.warning(
                "The weight of %d of %d host(s) cannot be computed, which ranks them "
                "last: raw weights or multipliers are too large",
                n_unordered,
                len(total),
            )
        np.nan_to_num(total, copy=False, nan=np.finfo(np.float64).min)
    return total


def _weigh_again(
    weighers: Sequence[BaseHostWeigher],
    hosts: HostBatch,
    spec_obj: RequestSpec,
    earlier: Ranking,
    changed: Rows,
) -> tuple[list[WeigherScores], Weights]:
    """Return the scores and the weights of hosts, most of which have not changed.

    The result is the same, bit for bit, as that of weighing all hosts. Parameters are
    those of `rank_hosts`.
    """
    indices, dropped = changed, changed[:0]
    if len(hosts) < len(earlier.hosts):
        rows = earlier.hosts.rows[changed]
        indices = hosts.indices_of(rows)
        dropped = changed[~np.isin(rows, hosts.rows[indices])]
        if len(hosts) + len(dropped) != len(earlier.hosts):
            # A filter without ROWWISE has rejected hosts that have not changed.
            return _weigh(weighers, hosts, spec_obj)
    is_off = [weigher.is_off(hosts) for weigher in weighers]
    rowwise, kept_scores = [], []
    for weigher, score, off in zip(weighers, earlier.scores, is_off, strict=True):
        if weigher.ROWWISE and not off:
            rowwise.append(weigher)
            kept_scores.append(score)
    new = _raw_of_all(rowwise, hosts.take(indices), spec_obj)
    old = np.array([score.raw[changed] for score in kept_scores]).reshape(
        len(rowwise), len(changed)
    )
    # For all weighers at once: for a few hosts, calls take longer than arithmetic.
    is_equal = (
        [False] * len(rowwise) if len(dropped) else (old == new).all(axis=1).tolist()
    )
    both = np.concatenate([old, new], axis=1)
    least = both.min(axis=1, initial=np.inf).tolist()
    greatest = both.max(axis=1, initial=-np.inf).tolist()
    changes = zip(new, is_equal, least, greatest, strict=True)
    scores: list[WeigherScores] = []
    is_same_scale = len(rowwise) + sum(is_off) == len(weighers)
    for weigher, score, off in zip(weighers, earlier.scores, is_off, strict=True):
        if off:
            scores.append(_not_weighed(weigher, hosts) if len(dropped) else score)
            continue
        if not weigher.ROWWISE:
            scores.append(_score(weigher, hosts, _raw(weigher, hosts, spec_obj)))
            continue
        new_raw, is_unchanged, least_raw, greatest_raw = next(changes)
        if is_unchanged:
            scores.append(score)
            continue
        raw = without(score.raw, dropped)
        if (raw[indices] != new_raw).any():
            raw = raw.copy()
            raw[indices] = new_raw
        low, high, multipliers = score.low, score.high, score.multipliers
        # An end of the range can move only if a host at the end has changed, or if a
        # host exceeds it.
        if (weigher.minval is None and least_raw <= low) or (
            weigher.maxval is None and greatest_raw >= high
        ):
            low, high = weight_range(raw, weigher.minval, weigher.maxval)
            is_same_scale &= (low, high) == (score.low, score.high)
        if low == high:
            multipliers = None
        elif multipliers is None:
            multipliers = _multipliers(weigher, hosts)
        else:
            multipliers = without(multipliers, dropped)
        scores.append(WeigherScores(score.name, raw, low, high, multipliers))
    if not is_same_scale:
        return scores, _total(scores, len(hosts))
    total = without(earlier.total, dropped).copy()
    total[indices] = _total_of(scores, indices)
    return scores, total


def _total_of(scores: Sequence[WeigherScores], indices: Rows) -> Weights:
    """Return the same sums as `_total`, of some hosts, shape (n_indices,)."""
    sums = np.zeros(len(indices))
    distinguishing = [score for score in scores if score.multipliers is not None]
    with np.errstate(over="ignore", invalid="ignore"):
        for weighted in parts_of(distinguishing, indices)[-1] if distinguishing else ():
            sums += weighted  # one by one, in the same order as in `_total`
    return _finite(sums)


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
    if len(values) and values[0] == values[-1] and (values == values[0]).all():
        # Many weighers do not distinguish the hosts: one number is stored for all.
        values = np.ndarray(values.shape, values.dtype, values[:1].copy(), strides=(0,))
    if not np.isfinite(values[:1] if values.strides == (0,) else values).all():
        # A single such value would make every weight NaN, and the order random.
        raise PluginError(f"{what} returned NaN or infinity for some host")
    return values
