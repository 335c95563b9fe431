# SPDX-License-Identifier: Apache-2.0
"""Weigh hosts and put them in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
from oslo_config import cfg

from ...objects import RequestSpec
from ...weighers import BaseHostWeigher
from ...weighers.base import Weights, normalize
from ..errors import PluginError, SchedulerError
from ..hosts import HostBatch
from .record import TOP_HOSTS, WeighedHost, WeigherPart

Order = npt.NDArray[np.intp]


class Ranking:
    """Order hosts by weight, best first, with what each weigher said of them.

    Attributes
    ----------
    order : ndarray of int, shape (n_hosts,)
        Indices into `hosts`.
    total : ndarray of float64, shape (n_hosts,)
        The weight of each host, in the order of `hosts`.
    """

    def __init__(self, hosts: HostBatch, total: Weights, order: Order) -> None:
        self.hosts = hosts
        self.total = total
        self.order = order
        self._parts: list[tuple[str, Weights, Weights, Weights]] = []

    def add_part(
        self, name: str, raw: Weights, scaled: Weights, weighted: Weights
    ) -> None:
        """Keep one weigher's figures, each of shape (n_hosts,)."""
        self._parts.append((name, raw, scaled, weighted))

    def top(self) -> tuple[WeighedHost, ...]:
        """Return the first hosts of the order as the decision record has them."""
        return tuple(self._weighed(int(index)) for index in self.order[:TOP_HOSTS])

    def _weighed(self, index: int) -> WeighedHost:
        host = self.hosts[index]
        return WeighedHost(
            host=host.host,
            node=host.nodename,
            weight=float(self.total[index]),
            parts=tuple(
                WeigherPart(name, *(float(a[index]) for a in arrays))
                for name, *arrays in self._parts
            ),
        )


def ranked(
    weighers: Sequence[BaseHostWeigher],
    hosts: HostBatch,
    spec_obj: RequestSpec,
    *,
    conf: cfg.ConfigOpts,
    ties: npt.NDArray[np.float64],
    rng: np.random.Generator,
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

    Raises
    ------
    PluginError
        A weigher failed, or its answer is no array of finite weights of the hosts.
    """
    options = conf.filter_scheduler
    if options.shuffle_best_same_weighed_hosts:
        ties = rng.random(len(hosts))
    total = np.zeros(len(hosts))
    ranking = Ranking(hosts, total, np.arange(len(hosts)))
    if len(hosts) > 1:
        for weigher in weighers:
            name = type(weigher).__name__
            raw = _figures(name, hosts, partial(weigher.weigh_all, hosts, spec_obj))
            scaled = normalize(raw, weigher.minval, weigher.maxval)
            weighted = scaled * _figures(
                name, hosts, partial(weigher.multipliers, hosts)
            )
            total += weighted
            ranking.add_part(name, raw, scaled, weighted)
    ranking.order = np.lexsort((ties, -total))
    _move_one_of_the_best(ranking.order, options.host_subset_size, rng)
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


def _move_one_of_the_best(
    order: Order, subset_size: int, rng: np.random.Generator
) -> None:
    n_best = min(subset_size, len(order))
    if n_best > 1:
        chosen = int(rng.integers(n_best))
        order[: chosen + 1] = np.roll(order[: chosen + 1], 1)
