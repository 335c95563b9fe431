# SPDX-License-Identifier: Apache-2.0
"""The hosts that pass the filters for an instance, in the order of their weights."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...filters import BaseHostFilter
from ..hosts import HostBatch
from ..request import Request
from .base import Weigh
from .filtering import collect_limits, filter_hosts
from .instances import spec_of_instance
from .parts import Parts
from .record import DecisionRecord
from .seen import Seen
from .together import Together
from .weighing import Ranking, checked_weights, is_random, rank_hosts


class HostRanker:
    """Runs the filters and weighers that a request needs.

    Parameters
    ----------
    record : DecisionRecord
        Gets the filters' steps, and the time that filters and weighers take.

    Attributes
    ----------
    seen : Seen
        What the current pass has read; each pass must set it.
    filters : sequence of BaseHostFilter
        Prepared for the request, in the order in which they run.
    passing : HostBatch or None
        The hosts that passed all of them, for the instance that was ranked last; None:
        they have not run in this pass.
    together : Together
        What they and the weighers say of several instances at once.
    eligible : HostBatch
        The hosts that the first filters passed, for the instance that was ranked last.
        A driver that claims several hosts at once sets it, with these counted on them.
    weigh : callable or None
        Weighs hosts instead of the weighers.
    """

    seen: Seen
    eligible: HostBatch
    passing: HostBatch | None

    def __init__(self, parts: Parts, request: Request, record: DecisionRecord) -> None:
        self._parts = parts
        self._request = request
        self._record = record
        spec_obj = request.spec_obj
        enabled = () if request.skips_filters else parts.filters
        prepared = [filter_.prepare(spec_obj) for filter_ in enabled]
        applied = [each for each in prepared if not each.is_idle]
        self.filters = sorted(applied, key=lambda each: each.may_pass_later)
        self._n_first = sum(not each.may_pass_later for each in applied)
        weighers = [weigher.prepare(spec_obj) for weigher in parts.weighers]
        self._weighers = [each for each in weighers if not each.is_idle]
        self.together = Together(request, self.filters, self._weighers, record)
        self.weigh: Weigh | None = None
        #: The number of the record's steps once the first filters have run.
        self._n_steps = 0

    def rank(self, hosts: HostBatch, uuid: str, number: int) -> Ranking:
        """Return the hosts that pass for an instance, in the order of their weights.

        Parameters
        ----------
        number : int
            That of the instance in the request.
        """
        return self.rank_passing(self.filter_hosts(hosts, uuid, number), uuid)

    def filter_hosts(self, hosts: HostBatch, uuid: str, number: int) -> HostBatch:
        """Return the hosts that pass for an instance; see `rank`."""
        first = self.filters[: self._n_first]
        self.eligible = self._run_filters(first, hosts, uuid, number)
        self._n_steps = len(self._record.steps)
        return self.filter_again(uuid, number)

    def filter_again(self, uuid: str, number: int) -> HostBatch:
        """Return the eligible hosts that also pass the filters that run last.

        Those depend on the instances that are counted on hosts.
        """
        last, passing = self.filters[self._n_first :], self.eligible
        if last and len(passing):
            del self._record.steps[self._n_steps :]
            passing = self._run_filters(last, passing, uuid, number)
        self.passing = passing
        return passing

    def _run_filters(
        self,
        filters: Sequence[BaseHostFilter],
        hosts: HostBatch,
        uuid: str,
        number: int,
    ) -> HostBatch:
        with self._record.timed("filters"):
            return filter_hosts(
                filters,
                hosts,
                spec_of_instance(self._request.spec_obj, uuid),
                index=number,
                is_rebuild=self._request.is_rebuild,
                steps=self._record.steps,
                instance=self._record.position_of(uuid, number),
            )

    def rank_passing(self, hosts: HostBatch, uuid: str) -> Ranking:
        """Return hosts in the order of the weights of `weigh`, or of the weighers."""
        if self.weigh is None:
            return self.rank_by_weighers(hosts, uuid)
        what = f"[moorage] driver: weigh of {type(self._parts.driver).__name__}"
        with self._record.timed("weighers"):
            compute = functools.partial(self.weigh, hosts, uuid)
            return Ranking(
                hosts, checked_weights(what, hosts, compute), self._ties(hosts)
            )

    def rank_by_weighers(self, hosts: HostBatch, uuid: str) -> Ranking:
        """Return hosts in the order of the weighers' weights for an instance."""
        conf, contention = self._parts.conf, self.seen.contention
        rng, n_choices = self._parts.rng, contention.n_choices
        if is_random(conf, n_choices):
            rng = self.rng
        with self._record.timed("weighers"):
            return rank_hosts(
                self._weighers,
                hosts,
                spec_of_instance(self._request.spec_obj, uuid),
                conf=conf,
                ties=self._ties(hosts),
                rng=rng,
                n_choices=n_choices,
                nearness=contention.nearness,
            )

    def _ties(self, hosts: HostBatch) -> npt.NDArray[np.float64]:
        """Return tie breakers, which are constant for a row until the next start."""
        n_rows = int(hosts.rows.max()) + 1 if len(hosts) else 0
        of_rows = _random_order(self._parts.tie_seed, 1 << n_rows.bit_length())
        ties: npt.NDArray[np.float64] = of_rows[hosts.rows]
        return ties

    @property
    def rng(self) -> np.random.Generator:
        """A random generator whose seed is that of the pass."""
        return self.seen.rng(self._parts.rng)

    def limits(self, hosts: HostBatch, index: int) -> dict[str, object]:
        """Return the limits of a host, as its compute service gets them."""
        return collect_limits(
            self.filters,
            hosts[index],
            self._request.spec_obj,
            is_rebuild=self._request.is_rebuild,
        )


@functools.lru_cache(maxsize=4)
def _random_order(seed: int, size: int) -> npt.NDArray[np.float64]:
    return np.random.default_rng(seed).random(size)
