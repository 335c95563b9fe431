# SPDX-License-Identifier: Apache-2.0
"""The dependencies of decisions, such as options, plugins, clients and host table.

A scheduler driver does not see them: it works with `DecisionSteps` only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import numpy as np
from oslo_config import cfg

from ...filters import BaseHostFilter
from ...weighers import BaseHostWeigher
from ..candidates import CandidatesQuery, Offer
from ..hosts import HostTable
from ..placement.allocations.journal import Journal
from ..placement.allocations.orphans import Orphans
from ..placement.candidates_source import CandidatesSource
from ..placement.client import PlacementClient
from ..prefilters import NetworkClient, Prefilter
from ..sources.base import BaseHostSource
from ..waiting import Waiter
from .attachment_finder import AttachmentFinder, FindsAttachments
from .base import BaseSchedulerDriver
from .claims.contention import Contention
from .claims.peer_claims import PublishClaims
from .decision_log import DecisionLog
from .record import TOP_HOSTS


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class DecisionInput:
    """What an attempt to decide has read, apart from options and plugins.

    Attributes
    ----------
    offer : Offer or None
        Placement's candidates; None: the request is a rebuild, or Placement had none.
    revision : int or None
        The revision of the host table; None: no host was read.
    """

    queries: Sequence[CandidatesQuery] = ()
    offer: Offer | None = None
    revision: int | None = None


class KeepsViews(Protocol):
    """Stores views, the inputs of some decisions, with which these can be replayed."""

    def capture(self, parts: Parts, read: DecisionInput, *, is_due: bool) -> str | None:
        """Store the view of a decision that has read its hosts, and return its id.

        Return None if no view is stored.

        Parameters
        ----------
        is_due : bool
            Whether the view must be stored; otherwise the views of only a share of all
            decisions are stored.
        """

    def capture_failed(self, parts: Parts, read: DecisionInput) -> str | None:
        """Return the id of the view of a decision that found no host; see `capture`.

        None: no view is stored.
        """


@dataclasses.dataclass(frozen=True, slots=True)
class Parts:
    """The dependencies of decisions; replaced as a whole when plugins are reloaded.

    Attributes
    ----------
    driver : BaseSchedulerDriver
        Chooses the hosts.
    journal : Journal
        Records claims before they are sent.
    prefilters : sequence of (name, prefilter)
        In the order in which they run.
    clock : callable
        Returns the current time, seconds since the epoch.
    rng : numpy.random.Generator
        Shuffles hosts, chooses within ``host_subset_size``, adds jitter to retries.
    tie_seed : int
        The seed of the order of hosts of equal weight, constant until the next start.
    network : NetworkClient or None
        The Neutron client for prefilters; None: not configured.
    waiter : Waiter
        Waits between retries.
    contention : Contention
        The rate at which Placement has refused recent claims.
    views : KeepsViews or None
        Stores the views on which some decisions are made; None: none are stored.
    attachments : FindsAttachments
        Finds where volumes and ports are.
    publish_claims : callable or None
        Publishes claims to the other schedulers; None: there are no others.
    n_top_hosts : int
        The number of best hosts that the record of a decision describes.
    review : callable
        Takes UUIDs of compute nodes; releases in the host table the claims on them that
        have ended, and returns whether there were any.
    """

    conf: cfg.ConfigOpts
    driver: BaseSchedulerDriver
    placement: PlacementClient
    orphans: Orphans
    journal: Journal
    candidates: CandidatesSource
    table: HostTable
    source: BaseHostSource
    prefilters: Sequence[tuple[str, Prefilter]]
    filters: Sequence[BaseHostFilter]
    weighers: Sequence[BaseHostWeigher]
    decisions: DecisionLog
    clock: Callable[[], float]
    rng: np.random.Generator
    tie_seed: int
    network: NetworkClient | None
    waiter: Waiter
    review: Callable[[Collection[str]], bool]
    contention: Contention = dataclasses.field(default_factory=Contention)
    views: KeepsViews | None = None
    publish_claims: PublishClaims | None = None
    attachments: FindsAttachments = dataclasses.field(default_factory=AttachmentFinder)
    n_top_hosts: int = TOP_HOSTS
