# SPDX-License-Identifier: Apache-2.0
"""What a host weigher is, and how raw figures become weights."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from oslo_config import cfg

from ..objects import RequestSpec
from ..scheduler.hosts import HostAggregate, HostBatch, HostState

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
        least: Weights = hosts.map_distinct(
            "aggregates",
            lambda mine: _least(mine, key, default),
            np.float64,
            cache_key=("multiplier", key, default),
        )
        return least


def _least(aggregates: Sequence[HostAggregate], key: str, default: float) -> float:
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


class Scale(NamedTuple):
    """The ends between which raw figures are scaled to 0..1 (nova's ``weights.py``).

    Figures are clamped to the ends that are given; an end that is not is that of the
    figures once they are clamped.
    """

    low: float
    high: float

    @classmethod
    def of(cls, raw: Weights, minval: float | None, maxval: float | None) -> Self:
        """Return the scale of figures, shape (n_hosts,), n_hosts at least 1."""
        low, high = minval, maxval
        if low is None:
            low = float(raw.min() if high is None else min(raw.min(), high))
        if high is None:
            high = max(float(raw.max()), low)
        return cls(low, high)

    @property
    def is_flat(self) -> bool:
        """Whether all hosts are alike, so that each is 0."""
        return self.low == self.high

    def apply(self, raw: Weights, out: Weights | None = None) -> Weights:
        """Return figures scaled to 0..1, in `out` if it is given; shapes are equal."""
        scaled: Weights = np.clip(raw, self.low, self.high, out=out)
        if self.is_flat:
            scaled[...] = 0.0
            return scaled
        scaled -= self.low
        scaled /= self.high - self.low
        return scaled

    def of_one(self, raw: float) -> float:
        """Return one figure scaled to 0..1."""
        if self.is_flat:
            return 0.0
        return (min(max(raw, self.low), self.high) - self.low) / (self.high - self.low)


def normalize(
    raw: Weights, minval: float | None = None, maxval: float | None = None
) -> Weights:
    """Scale raw figures to 0..1; all 0 where they do not differ. See `Scale`.

    Parameters
    ----------
    raw : ndarray of float64, shape (n_hosts,)

    Returns
    -------
    ndarray of float64, shape (n_hosts,)
    """
    return Scale.of(raw, minval, maxval).apply(raw)
