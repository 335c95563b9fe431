# SPDX-License-Identifier: Apache-2.0
"""The interface of a host weigher, and the normalization of raw weights."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
from oslo_config import cfg

from ..objects import RequestSpec
from ..scheduler.conf.presets import multiplier
from ..scheduler.errors import ConfigurationError
from ..scheduler.hosts import HostAggregate, HostBatch, HostState
from ..scheduler.locality import PlacesUsed

LOG = logging.getLogger(__name__)

Weights = npt.NDArray[np.float64]


class BaseHostWeigher:
    """Return a raw weight for every host; a plugin overrides one of two methods.

    `weigh_all` weighs all hosts at once, `weigh_host` one host: clearer, but slower.
    The scheduler calls `prepare` once per request and `weigh_all` once per instance,
    from several threads. It then normalizes the raw weights to 0..1, and multiplies
    them by `multipliers`. A weigher is pure: it modifies neither hosts nor the request
    nor itself while it runs, and does no I/O.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts
        The options.
    clock : callable
        Returns the time in seconds since the epoch.

    Raises
    ------
    ConfigurationError
        The value of the option `MULTIPLIER` is not a finite number.

    Attributes
    ----------
    minval, maxval : float or None
        The ends of the range of raw weights that is normalized to 0..1; None: the least
        and the greatest raw weight.
    MULTIPLIER : str or None
        The name of the option with the multiplier; None: the multiplier is 1.
    MULTIPLIER_GROUP : str
        The group of the option.
    MULTIPLIER_KEY : str or None
        The metadata key with which an aggregate overrides the option; None:
        `MULTIPLIER`.
    ROWWISE : bool
        Whether the raw weight of a host depends only on the request and on that host:
        its columns, its aggregates, its allocation candidates, and which instances are
        on its service host; and its multiplier only on the host's aggregates. For later
        instances of a request, the weigher is then called with the hosts that have
        changed, and `multipliers` is not called again.
    origin : str
        Where the multiplier comes from, if not from its option, and the version of what
        else the weigher uses; decision records have it.
    """

    minval: ClassVar[float | None] = None
    maxval: ClassVar[float | None] = None
    MULTIPLIER: ClassVar[str | None] = None
    MULTIPLIER_GROUP: ClassVar[str] = "filter_scheduler"
    MULTIPLIER_KEY: ClassVar[str | None] = None
    ROWWISE: ClassVar[bool] = False
    origin: str = ""

    #: The value of the option, read once; None: a plugin overrides `__init__` without
    #: calling this class's, and the option is read each time.
    _multiplier: float | None = None

    def __init__(
        self, conf: cfg.ConfigOpts, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.conf = conf
        self.clock = clock
        if self.MULTIPLIER is None:
            return
        self._multiplier, preset = multiplier(
            conf, self.MULTIPLIER_GROUP, self.MULTIPLIER
        )
        if preset:
            self.origin = f"{self._multiplier:g} by preset {preset}"
        if not math.isfinite(self._multiplier):
            raise ConfigurationError(
                f"[{self.MULTIPLIER_GROUP}] {self.MULTIPLIER} is {self._multiplier}; "
                "it must be a finite number"
            )

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "ROWWISE" not in cls.__dict__:
            cls.ROWWISE = False  # not inherited: a method may have been overridden
        if (
            cls.weigh_all is BaseHostWeigher.weigh_all
            and cls.weigh_host is BaseHostWeigher.weigh_host
        ):
            raise TypeError(f"{cls.__name__} defines neither weigh_all nor weigh_host")

    def prepare(self, spec_obj: RequestSpec) -> Self:
        """Return the weigher to use for this request; by default the weigher itself."""
        return self

    @property
    def is_idle(self) -> bool:
        """Whether all hosts weigh the same for the request: the weigher need not run.

        The scheduler reads the property once a request, after `prepare`.
        """
        return False

    def is_off(self, hosts: HostBatch) -> bool:
        """Return whether the multiplier of all hosts is 0: the weigher need not run.

        If the option is not 0, but aggregates make all 0, the weigher runs.
        """
        return self._multiplier == 0 and not self.multipliers(hosts).any()

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return the raw weight of every host.

        Returns
        -------
        ndarray of float64, shape (n_hosts,)
        """
        weights = (float(self.weigh_host(host, spec_obj)) for host in hosts)
        return np.fromiter(weights, dtype=np.float64, count=len(hosts))

    def weigh_host(self, host_state: HostState, spec_obj: RequestSpec) -> float:
        """Return the raw weight of one host."""
        return float(self.weigh_all(host_state.as_batch(), spec_obj)[0])

    def joint_wishes(
        self, hosts: HostBatch, spec_obj: RequestSpec
    ) -> Sequence[PlacesUsed]:
        """Return preferences for many or few different places (racks, rows, rooms).

        They apply to all instances of the request together, and serve drivers that
        select the hosts of several instances at once: raw weights cannot depend on the
        hosts of the other instances there. By default there are no preferences.
        """
        return ()

    def multipliers(self, hosts: HostBatch) -> Weights:
        """Return the multiplier of each host.

        It is the least value that the host's aggregates have under `MULTIPLIER_KEY`
        (nova's rule). It is the option if no aggregate has a value, or if one of the
        values is not a finite number.

        Returns
        -------
        ndarray of float64, shape (n_hosts,)
        """
        if self.MULTIPLIER is None:
            return np.ones(len(hosts))
        default = self._multiplier
        if default is None:
            default, _ = multiplier(self.conf, self.MULTIPLIER_GROUP, self.MULTIPLIER)
        key = self.MULTIPLIER_KEY or self.MULTIPLIER
        least: Weights = hosts.map_distinct(
            "aggregates",
            lambda aggregates: _least(aggregates, key, default),
            np.float64,
            cache_key=("multiplier", key, default),
        )
        return least


def _least(aggregates: Sequence[HostAggregate], key: str, default: float) -> float:
    values = {a.metadata[key] for a in aggregates if key in a.metadata}
    try:
        return min(map(_finite, values), default=default)
    except ValueError:
        names = ", ".join(a.name for a in aggregates if key in a.metadata)
        LOG.warning(
            "Aggregates %s: %s must be a finite number, not %s; using %s instead",
            names, key, sorted(values), default,
        )  # fmt: skip
        return default


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def weight_range(
    raw: Weights, minval: float | None, maxval: float | None
) -> tuple[float, float]:
    """Return the range of raw weights that is normalized (nova's ``weights.py``).

    Raw weights are clamped to `minval` and `maxval`. An end that is None is replaced by
    the least or the greatest clamped weight.

    Parameters
    ----------
    raw : ndarray of float64, shape (n_hosts,), n_hosts at least 1
        The raw weights.
    """
    low, high = minval, maxval
    if low is None:
        low = float(raw.min() if high is None else min(raw.min(), high))
    if high is None:
        high = max(float(raw.max()), low)
    return low, high


def normalize(
    raw: Weights,
    low: float | Weights,
    high: float | Weights,
    out: Weights | None = None,
) -> Weights:
    """Return raw weights normalized to 0..1; all are 0 if `low` equals `high`.

    Parameters
    ----------
    raw : ndarray of float64
        The raw weights.
    low, high : float, or ndarray that broadcasts to the shape of `raw`
        The ends of the range, as `weight_range` returns them.
    out : ndarray of float64, optional
        The array to write the result to; by default a new one.
    """
    normalized: Weights = np.clip(raw, low, high, out=out)
    normalized -= low
    extent = high - low
    normalized /= extent + (extent == 0)
    return normalized
