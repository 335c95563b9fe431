# SPDX-License-Identifier: Apache-2.0
"""By how much would the instance outlive the others on the host?"""

from __future__ import annotations

import copy
import itertools
import math
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Final, Self

import numpy as np
import numpy.typing as npt
from oslo_config import cfg

from ..objects import RequestSpec
from ..scheduler.errors import ConfigurationError
from ..scheduler.hosts import Group, HostBatch, Launches
from ..scheduler.request import Request
from .base import BaseHostWeigher, Weights
from .lifetime_model import LifetimeModel, group_of

#: Seconds for which the expected end of a host's instances is not computed again; all
#: requests in this time are weighed as at its beginning.
_PERIOD_S: Final = 60
_HOUR_S: Final = 3600.0
#: The extension, in hours, that weighs -1; longer ones do, too.
_LONGEST_H: Final = 24 * 365


class LifetimeWeigher(BaseHostWeigher):
    """Prefer hosts whose other instances are expected to outlive the instance.

    A host becomes empty with its last instance. The raw weight is 0 on a host whose
    last instance is expected to end later than the requested one, and the lower the
    longer the host would have to stay: the negative logarithm of these hours, so that
    an hour more counts on a host that is about to become empty, and not on one that
    stays for weeks. An empty host would have to stay for the whole lifetime. A host
    with unknown launch times weighs half as much as an empty one.

    Lifetimes are those of ``lifetime_model``, by project, CPUs and memory, and image.
    What instances on hosts are expected to live is computed again each minute from
    their age: an instance that lives longer than expected is expected to live on. A
    request to move an instance does not say its age: it is weighed like a new one. The
    rule is that of NILAS (Ling et al., LAVA, MLSys 2025).
    """

    MULTIPLIER = "lifetime_weight_multiplier"
    ROWWISE = True
    minval: ClassVar[float | None] = -1.0
    maxval: ClassVar[float | None] = 0.0
    _now: int | None = None

    def __init__(
        self, conf: cfg.ConfigOpts, *, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(conf, clock=clock)
        path: str = conf.filter_scheduler.lifetime_model
        self._model = LifetimeModel.read(Path(path)) if path else None
        if self._multiplier and self._model is None:
            raise ConfigurationError(
                f"[filter_scheduler] {self.MULTIPLIER} is {self._multiplier:g}, but "
                "lifetime_model is empty: `moorage lifetimes` prints the file"
            )
        if self._model is not None:
            n_groups = len(self._model.row_of)
            self.origin = f"{n_groups} groups, version {self._model.version}"

    def prepare(self, spec_obj: RequestSpec) -> Self:
        """Read the time, which is the same for all instances of the request."""
        prepared = copy.copy(self)
        prepared._now = self._minute()  # noqa: SLF001 - a copy of this weigher
        return prepared

    def _minute(self) -> int:
        return math.floor(self.clock() / _PERIOD_S) * _PERIOD_S

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return the negative logarithm of each host's extension, (n_hosts,)."""
        model = self._model
        if model is None:  # only aggregates have a multiplier
            return np.zeros(len(hosts))
        now = self._minute() if self._now is None else self._now
        lifetime_s = model.remaining(model.find(group_of(Request.of(spec_obj))), 0.0)
        arrays = hosts.value_arrays("launches", _LaunchArrays)
        ends = arrays.latest_ends(model, now)[hosts.codes("launches")]
        extension_s = np.maximum(now + lifetime_s - np.maximum(ends, now), 0.0)
        weights = _weight(extension_s)
        is_unknown = np.isnan(ends)
        if is_unknown.any():
            weights[is_unknown] = _weight(lifetime_s) / 2
        return weights


def _weight(extension_s: Weights) -> Weights:
    """Return the raw weight of extensions, -1 to 0."""
    weights: Weights = np.log1p(extension_s / _HOUR_S) / -np.log1p(_LONGEST_H)
    return np.maximum(weights, -1.0)


class _LaunchArrays:
    """The launches of hosts, one after the other: a segment for each host's state.

    Each segment begins with an element that is no launch, so that none is empty.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Where each segment begins, and where the last one ends.
        self._bounds = [0]
        #: Seconds since the epoch; of the element that is no launch, -inf, or NaN if
        #: the launches are unknown. The arrays have room for more elements.
        self._launched_at: Weights = np.zeros(0)
        #: Indices in `_rows`; -1: no launch.
        self._group_of: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        self._groups: dict[Group, int] = {}
        #: The version of the model and the time for which the next two are computed:
        #: the model's row of each group, and the latest end of each segment.
        self._computed_for: tuple[str, int] = "", 0
        self._rows: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        self._ends: Weights = np.zeros(0)

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def extend(self, values: Sequence[Launches | None]) -> None:
        """Add a segment for each host's launches; None: they are unknown."""
        times: list[float] = []
        groups: list[int] = []
        with self._lock:
            first, known = self._bounds[-1], self._groups
            for launches in values:
                times.append(math.nan if launches is None else -math.inf)
                groups.append(-1)
                for launch in launches or ():
                    times.append(launch[0])
                    groups.append(known.setdefault(launch[1:], len(known)))
                self._bounds.append(first + len(times))
            n = self._bounds[-1]
            if n > len(self._launched_at):
                self._launched_at = np.resize(self._launched_at, 2 * n)
                self._group_of = np.resize(self._group_of, 2 * n)
            self._launched_at[first:n], self._group_of[first:n] = times, groups

    def latest_ends(self, model: LifetimeModel, now: int) -> Weights:
        """Return when the last instance of each segment is expected to end, by code.

        -inf: there is no instance; NaN: launches are unknown. For the same `now`, only
        new segments are computed.
        """
        with self._lock:
            version, at = self._computed_for
            if version != model.version:
                self._rows = self._rows[:0]
            if version != model.version or at != now:
                self._computed_for, self._ends = (model.version, now), self._ends[:0]
            if len(self._rows) < len(self._groups):
                new_groups = itertools.islice(self._groups, len(self._rows), None)
                rows = np.array([model.find(group) for group in new_groups], np.intp)
                self._rows = np.concatenate([self._rows, rows])
            n_known = len(self._ends)
            if n_known < len(self):
                first = self._bounds[n_known]
                part = slice(first, self._bounds[-1])
                ends, groups = self._launched_at[part].copy(), self._group_of[part]
                is_launch = groups >= 0
                rows, ages_s = self._rows[groups[is_launch]], now - ends[is_launch]
                ends[is_launch] = now + model.remaining(rows, ages_s)
                starts = np.array(self._bounds[n_known:-1]) - first
                latest = np.maximum.reduceat(ends, starts)
                self._ends = np.concatenate([self._ends, latest])
            return self._ends
