# SPDX-License-Identifier: Apache-2.0
"""What a host weigher is, and how raw figures become weights."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
from oslo_config import cfg

from ..objects import RequestSpec
from ..scheduler.hosts import Aggregate, HostBatch, HostState

LOG = logging.getLogger(__name__)

Weights = npt.NDArray[np.float64]


class BaseHostWeigher:
    """Give every host a figure to be ranked by; a plugin overrides one of two methods.

    `weigh_all` answers for all hosts at once, `weigh_host` for one: clearer, slower.
    The scheduler calls `prepare` once a request and `weigh_all` once an instance of
    it, in several threads at a time, then scales the figures to 0..1 and multiplies
    them by `multipliers`. A weigher writes to nothing and does no I/O.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts
        Options with their values.
    clock : callable
        Returns now, seconds since the epoch.

    Attributes
    ----------
    minval, maxval : float or None
        The ends of the scale; None: the least and the greatest figure that occur.
    MULTIPLIER : str or None
        The option that multiplies; None: always 1.
    MULTIPLIER_GROUP : str
        The option's group.
    MULTIPLIER_KEY : str or None
        The metadata key with which an aggregate overrides it; None: `MULTIPLIER`.
    """

    minval: ClassVar[float | None] = None
    maxval: ClassVar[float | None] = None
    MULTIPLIER: ClassVar[str | None] = None
    MULTIPLIER_GROUP: ClassVar[str] = "filter_scheduler"
    MULTIPLIER_KEY: ClassVar[str | None] = None

    def __init__(
        self, conf: cfg.ConfigOpts, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.conf = conf
        self.clock = clock

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if (
            cls.weigh_all is BaseHostWeigher.weigh_all
            and cls.weigh_host is BaseHostWeigher.weigh_host
        ):
            raise TypeError(f"{cls.__name__} defines neither weigh_all nor weigh_host")

    def prepare(self, spec_obj: RequestSpec) -> Self:
        """Return what answers for this request: by default the weigher itself."""
        return self

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return the raw figure of every host.

        Returns
        -------
        ndarray of float64, shape (n_hosts,)
        """
        figures = (float(self.weigh_host(host, spec_obj)) for host in hosts)
        return np.fromiter(figures, dtype=np.float64, count=len(hosts))

    def weigh_host(self, host_state: HostState, spec_obj: RequestSpec) -> float:
        """Return the raw figure of one host."""
        return float(self.weigh_all(host_state.as_batch(), spec_obj)[0])

    def multipliers(self, hosts: HostBatch) -> Weights:
        """Return what the scaled figure of each host is multiplied by.

        The least of the values that a host's aggregates have under `MULTIPLIER_KEY`,
        else the option (nova's rule).

        Returns
        -------
        ndarray of float64, shape (n_hosts,)
        """
        if self.MULTIPLIER is None:
            return np.ones(len(hosts))
        default = float(self.conf[self.MULTIPLIER_GROUP][self.MULTIPLIER])
        key = self.MULTIPLIER_KEY or self.MULTIPLIER
        least: Weights = hosts.spread(
            "aggregates", lambda mine: _least(mine, key, default), np.float64
        )
        return least


def _least(aggregates: Sequence[Aggregate], key: str, default: float) -> float:
    values = {a.metadata[key] for a in aggregates if key in a.metadata}
    try:
        return min(map(float, values), default=default)
    except ValueError:
        names = ", ".join(a.name for a in aggregates if key in a.metadata)
        LOG.warning(
            "Aggregates %s: %s must be a number, not %s; %s is used instead",
            names, key, sorted(values), default,
        )  # fmt: skip
        return default


def normalize(
    raw: Weights, minval: float | None = None, maxval: float | None = None
) -> Weights:
    """Scale raw figures to 0..1; all 0 where they do not differ.

    The rule is that of nova's ``weights.py``: figures are clamped to the given ends;
    where an end is not given it is the least or the greatest figure.

    Parameters
    ----------
    raw : ndarray of float64, shape (n_hosts,)

    Returns
    -------
    ndarray of float64, shape (n_hosts,)
    """
    if minval is not None or maxval is not None:
        raw = np.clip(raw, minval, maxval)
    low = float(raw.min()) if minval is None else float(minval)
    high = float(raw.max()) if maxval is None else float(maxval)
    if low == high:
        return np.zeros_like(raw)
    scaled: Weights = (raw - low) / (high - low)
    return scaled
