# SPDX-License-Identifier: Apache-2.0
"""The interface of scheduler drivers, and the parts that a driver receives."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Collection, Sequence

import numpy as np
from oslo_config import cfg

from ...filters import BaseHostFilter
from ...objects import RequestSpec, Selection
from ...weighers import BaseHostWeigher
from ..hosts import HostTable
from ..placement.allocations.journal import Journal
from ..placement.allocations.orphans import Orphans
from ..placement.cache import CandidatesCache
from ..placement.client import PlacementClient
from ..prefilters import NetworkClient, Prefilter
from ..sources.base import BaseHostSource
from ..waiting import SystemWaiter, Waiter
from .caller import Caller
from .contention import Contention
from .peer_claims import PublishClaims, publish_nothing
from .record import DecisionLog


def none_has_ended(_node_uuids: Collection[str]) -> bool:
    """Return False: the default of `Parts.review`."""
    return False


@dataclasses.dataclass(frozen=True, slots=True)
class Parts:
    """The dependencies of a driver; none of them is global.

    Attributes
    ----------
    journal : Journal
        Records claims before they are sent.
    prefilters : sequence of (name, prefilter)
        In the order in which they run.
    clock : callable
        Returns the current time, seconds since the epoch.
    rng : numpy.random.Generator
        Shuffles, chooses within ``host_subset_size``, adds jitter to retries.
    tie_seed : int
        Orders hosts of equal weight, the same way until the next start.
    network : NetworkClient or None
        The Neutron client for prefilters; None: not configured.
    waiter : Waiter
        Waits between retries.
    contention : Contention
        The rate at which Placement has refused recent claims.
    publish_claims : callable
        Publishes claims to the other schedulers.
    review : callable
        Checks whether claims on these compute nodes have ended; returns whether some
        have, and were released in the host table.
    """

    conf: cfg.ConfigOpts
    placement: PlacementClient
    orphans: Orphans
    journal: Journal
    candidates_cache: CandidatesCache
    table: HostTable
    source: BaseHostSource
    prefilters: Sequence[tuple[str, Prefilter]]
    filters: Sequence[BaseHostFilter]
    weighers: Sequence[BaseHostWeigher]
    decisions: DecisionLog
    clock: Callable[[], float]
    rng: np.random.Generator
    tie_seed: int
    network: NetworkClient | None = None
    waiter: Waiter = dataclasses.field(default_factory=SystemWaiter)
    contention: Contention = dataclasses.field(default_factory=Contention)
    publish_claims: PublishClaims = publish_nothing
    review: Callable[[Collection[str]], bool] = none_has_ended


class BaseSchedulerDriver(abc.ABC):
    """Selects hosts for instances; must be thread-safe.

    Attributes
    ----------
    parts : Parts
        Replaced as a whole when plugins are reloaded: a decision reads it once.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    @abc.abstractmethod
    def select_destinations(
        self,
        caller: Caller,
        spec_obj: RequestSpec,
        instance_uuids: Sequence[str] | None,
        *,
        return_alternates: bool,
    ) -> list[list[Selection]]:
        """Select a host, and alternates, for each instance.

        Parameters
        ----------
        instance_uuids : sequence of str, optional
            None: an old conductor, which claims the resources itself.

        Returns
        -------
        list of list of Selection
            One list an instance, in the order of `instance_uuids`: the chosen host,
            which is claimed, then alternates of its cell, which are not.

        Raises
        ------
        NoValidHost
            At least one instance fits nowhere. No claim of the request remains.
        InvalidRequest
            The request is malformed or contradictory.
        PlacementError
            Placement failed.
        """
