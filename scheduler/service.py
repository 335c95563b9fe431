# SPDX-License-Identifier: Apache-2.0
"""The composition root: builds a scheduler from its parts."""

from __future__ import annotations

import contextlib
import functools
import logging
import random
from collections.abc import Callable, Collection

import numpy as np
from oslo_config import cfg

from .claim_reconciler import ClaimReconciler
from .clock import now_s
from .conf import register_opts
from .decision_store import DecisionStore
from .drivers.attachment_finder import AttachmentFinder
from .drivers.decision_log import DecisionLog
from .drivers.parts import KeepsViews, Parts
from .drivers.plugins import PluginSet, load_plugin_set
from .entry_points import load_plugin
from .explain import Explainer
from .hosts import HostTable
from .instances import InstanceLocation, InstanceState
from .kafka_peers import KafkaPeers
from .lifecycle import Lifecycle, claim_max_age_s
from .locality.following import PlaceFollower
from .notifications import (
    MessagingNotifier,
    Notifier,
    NotifierPair,
    make_publishers,
)
from .placement.adapter import PlacementAdapter, make_adapter
from .placement.allocations.journal import Journal
from .placement.allocations.orphans import Orphans
from .placement.cache import CandidatesCache
from .placement.client import PlacementClient
from .placement.embedded import EmbeddedPlacement
from .placement.from_conf import (
    check_embedded,
    make_candidates,
    make_embedded,
    make_follower,
)
from .placement.health import PlacementHealth
from .prefilters import NetworkClient
from .prefilters.networks import check_network
from .prefilters.neutron import make_network_client
from .rpc.endpoints import BaseAPIEndpoint, SchedulerEndpoint
from .selector import Selector
from .sources.base import BaseHostSource
from .sources.report_columns import load_columns
from .status import SchedulerStatus
from .views import ViewKeeper
from .waiting import Spawner, SystemWaiter, ThreadSpawner, Waiter

LOG = logging.getLogger(__name__)


def build(  # noqa: PLR0913 - every dependency can be passed in
    conf: cfg.ConfigOpts,
    *,
    settings: cfg.ConfigOpts | None = None,
    placement: PlacementAdapter | EmbeddedPlacement | None = None,
    source: BaseHostSource | None = None,
    notifier: MessagingNotifier | NotifierPair | None = None,
    network: NetworkClient | None = None,
    clock: Callable[[], float] | None = None,
    waiter: Waiter | None = None,
    spawner: Spawner | None = None,
    rng: np.random.Generator | None = None,
) -> Scheduler:
    """Return a scheduler; dependencies that are not given are created from `conf`.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts
        Moorage's or nova's; missing options of Moorage are registered.
    settings : oslo_config.cfg.ConfigOpts, optional
        The options that the driver and its plugins read, if not `conf`: a copy that
        does not change while decisions run. `Scheduler.reset` can switch to another.
    placement : keystoneauth1.adapter.Adapter, optional
        Or any object with the adapter's get, put, post and delete; or an
        EmbeddedPlacement, whose providers can be followed. The scheduler does not close
        it.
    source : BaseHostSource, optional
        The source of the hosts' state.
    notifier : MessagingNotifier or pair of MessagingNotifier, optional
        Publishes decisions: oslo.messaging's Notifier, or any object with its prepare
        and info. A pair has one notifier for legacy and one for versioned payloads.
    network : NetworkClient, optional
        Neutron: python-neutronclient's client, or any object with its show_port,
        show_subnet and list_subnets.
    clock : callable, optional
        Returns the current time, seconds since the epoch; `now_s` by default. A
        source has its own clock, and the age of its state is measured with both: pass
        a source that was created with this clock.
    waiter : Waiter, optional
        Waits, and measures ages; the system's clock by default.
    spawner : Spawner, optional
        Starts the threads that release claims, and creates their locks.
    rng : numpy.random.Generator, optional
        With the same seed, requests and hosts, the answers are the same.

    Raises
    ------
    ConfigurationError
        An option, a plugin or a file is invalid.
    """
    register_opts(conf)
    if source is None:
        make_source = load_plugin(
            "moorage.sources", conf.moorage.source, option="[moorage] source"
        )
        if placement is None:
            check_embedded(conf)
        source = make_source(conf)
    source.adopt(conf)
    return Scheduler(
        conf,
        settings=settings or conf,
        placement=placement,
        source=source,
        notifier=notifier,
        network=network or make_network_client(conf),
        clock=clock or now_s,
        waiter=waiter or SystemWaiter(),
        spawner=spawner or ThreadSpawner(),
        rng=rng or np.random.default_rng(conf.moorage.random_seed),
    )


class Scheduler(Selector):
    """Selects destinations with parts that it starts and stops; created by `build`.

    Attributes
    ----------
    table : HostTable
        All hosts, in the state that the source reported, with claims applied.
    decisions : DecisionLog
        The newest decision records.
    candidates_cache : CandidatesCache
        The cached answers of Placement; its `stats` has counts of them.
    candidates : CandidatesSource
        Answers queries for candidates: the cache, or providers in memory.
    journal : Journal
        The unsettled claims. The sender of answers reports the progress of each answer
        to the journal; without a sender, a request counts as answered once
        `select_destinations` returns.
    orphans : Orphans
        Allocations that may be held without an answered request.
    explainer : Explainer
        Explains requests and hosts; claims nothing.
    lifecycle : Lifecycle
        The steps of `start` and `reset`, for a process that forks workers.
    status : SchedulerStatus
        Readiness and counts.
    endpoints : list
        The endpoints for an oslo.messaging RPC server.
    source_endpoints : sequence
        The source's endpoints, to be served on Moorage's own topic.
    """

    def __init__(  # noqa: PLR0913 - as `build`
        self,
        conf: cfg.ConfigOpts,
        *,
        settings: cfg.ConfigOpts,
        placement: PlacementAdapter | EmbeddedPlacement | None,
        source: BaseHostSource,
        notifier: MessagingNotifier | NotifierPair | None,
        network: NetworkClient | None,
        clock: Callable[[], float],
        waiter: Waiter,
        spawner: Spawner,
        rng: np.random.Generator,
    ) -> None:
        with contextlib.ExitStack() as closing:
            self.table = HostTable(clock, load_columns(), waiter.monotonic)
            self.decisions = DecisionLog(conf.moorage.decision_records)
            check_network(conf, network)
            # Plugins first: a broken one must not leave anything open.
            plugins = load_plugin_set(settings, clock)
            embedded = make_embedded(conf) if placement is None else None
            if embedded is not None:
                closing.callback(embedded.close)
                placement = embedded
            followed_placement = None
            if isinstance(placement, EmbeddedPlacement):
                followed_placement, placement = placement, placement.adapter
            store = None
            if followed_placement is None or _is_store_named(conf):
                store = DecisionStore.open(conf, clock=clock, spawner=spawner)
            if store is not None:
                closing.callback(store.stop)
            closing.callback(source.stop)
            publishers = make_publishers(conf, notifier)
            decision_notifier = Notifier(
                publishers,
                self.table,
                lambda: bool(
                    conf.scheduler.query_placement_for_routed_network_aggregates
                ),
            )
            closing.callback(decision_notifier.stop)
            health = PlacementHealth(
                clock=waiter.monotonic,
                rng=random.Random(int(rng.integers(2**62))),
                spawner=spawner,
            )
            self.placement = PlacementClient(
                placement or make_adapter(conf), health=health
            )
            self.orphans = Orphans(
                self.placement,
                rng=random.Random(int(rng.integers(2**62))),
                locate=functools.partial(_locate, source, self.table),
                evidence_timeout_s=lambda: conf.moorage.orphan_evidence_timeout,
                waiter=waiter,
                spawner=spawner,
            )
            self.journal = Journal(self.orphans, spawner=spawner)
            closing.callback(self.journal.close)
            closing.callback(self.orphans.stop)
            closing.callback(health.stop)
            self.candidates_cache = CandidatesCache(
                self.placement,
                max_age_s=conf.moorage.candidates_max_age,
                max_requests=conf.moorage.candidates_cache_size,
                clock=waiter.monotonic,
                spawner=spawner,
            )
            self.candidates = make_candidates(
                conf,
                self.candidates_cache,
                self.placement,
                make_follower(conf, followed_placement, clock, waiter, spawner),
                clock=waiter.monotonic,
                spawner=spawner,
            )
            closing.callback(self.candidates.stop)
            reconciler = ClaimReconciler(
                self.table,
                self.placement,
                max_age_s=claim_max_age_s(conf, source),
                waiter=waiter,
                spawner=spawner,
            )
            closing.callback(reconciler.stop)
            places = PlaceFollower(
                conf,
                self.table,
                self.placement,
                self.candidates.provider_view,
                waiter=waiter,
                spawner=spawner,
            )
            closing.callback(places.stop)
            parts = Parts(
                conf=settings,
                driver=plugins.driver,
                placement=self.placement,
                orphans=self.orphans,
                journal=self.journal,
                candidates=self.candidates,
                table=self.table,
                source=source,
                prefilters=plugins.prefilters,
                filters=plugins.filters,
                weighers=plugins.weighers,
                decisions=self.decisions,
                clock=clock,
                waiter=waiter,
                rng=rng,
                tie_seed=int(rng.integers(2**62)),
                network=network,
                review=reconciler.review,
                views=_make_view_keeper(conf, store, waiter, spawner),
                attachments=AttachmentFinder.of(
                    conf, source.boot_volumes, waiter, spawner
                ),
            )
            super().__init__(conf, parts, decision_notifier if publishers else None)
            self.explainer = Explainer(
                lambda: self.parts, self.candidates.provider_view
            )
            peers = _make_peers(conf, self, clock, reconciler, spawner)
            if peers is not None:
                closing.callback(peers.stop)
            self.status = SchedulerStatus(conf, parts, store, peers)
            self.source_endpoints = source.endpoints
            self.endpoints = [SchedulerEndpoint(self), BaseAPIEndpoint()]
            self.lifecycle = Lifecycle(
                conf,
                parts,
                self,
                reconciler,
                places,
                store,
                peers,
                is_embedded=embedded is not None,
                # Closed by `stop`, or here if a later part cannot be created.
                closing=closing.pop_all(),
            )

    def start(self) -> None:
        """Read the hosts, and check whether Placement answers.

        If Placement is unreachable, rejects the credentials or is too old, a warning is
        logged and the check is repeated until it succeeds; see `SchedulerStatus`.

        Raises
        ------
        ConfigurationError
            The hosts cannot be read, or may not be served.
        """
        self.lifecycle.load()
        self.lifecycle.check()
        self.lifecycle.follow()

    def stop(self) -> None:
        """Stop all threads and close all connections; the scheduler cannot restart."""
        self.lifecycle.stop()

    def reset(self, plugins: PluginSet | None = None) -> None:
        """Reload plugins and hosts, as on SIGHUP.

        Decisions that begin later use the new driver, filters, weighers and
        prefilters; running decisions finish with the old ones.

        Parameters
        ----------
        plugins : PluginSet, optional
            Plugins to use instead of loading them.

        Raises
        ------
        PluginError
            A plugin is unknown or broken; plugins and hosts remain unchanged.
        ConfigurationError
            The source cannot be read; the hosts remain unchanged.
        """
        self.lifecycle.reload(plugins)


def _locate(
    source: BaseHostSource,
    table: HostTable,
    instance_uuid: str,
    providers: Collection[str],
) -> InstanceLocation:
    """Return an instance's location, as evidence that it uses some providers.

    While the instance may move, its location on another host says nothing about
    whether it uses these providers. If no host of theirs is in the table, as of one
    that was added after the table was read, no location says anything about them.
    """
    location = source.locate_instance(instance_uuid)
    hosts = {table.host_of(node_uuid) for node_uuid in providers} - {None}
    is_there = not hosts.isdisjoint((location.host, *location.also_on))
    if location.state is not InstanceState.ON_HOST or is_there:
        return location
    is_elsewhere = bool(hosts) and location.is_settled
    state = InstanceState.ELSEWHERE if is_elsewhere else InstanceState.UNKNOWN
    return InstanceLocation(state)


def _make_peers(
    conf: cfg.ConfigOpts,
    selector: Selector,
    clock: Callable[[], float],
    reconciler: ClaimReconciler,
    spawner: Spawner,
) -> KafkaPeers | None:
    """Return what exchanges claims through Kafka; None: no topic is configured."""
    if not conf.kafka.claims_topic:
        return None
    return KafkaPeers(
        conf,
        selector.apply_peer_claims,
        clock,
        lambda: reconciler.max_age_s,
        spawner=spawner,
    )


def _make_view_keeper(
    conf: cfg.ConfigOpts,
    store: DecisionStore | None,
    waiter: Waiter,
    spawner: Spawner,
) -> KeepsViews | None:
    """Return what stores the views of decisions; None: no views are stored."""
    if store is None or not conf.moorage.stored_views:
        return None
    return ViewKeeper(
        store.add_view,
        clock=waiter.monotonic,
        share=conf.moorage.view_share,
        spawner=spawner,
    )


def _is_store_named(conf: cfg.ConfigOpts) -> bool:
    """Return whether the store of decisions is configured, not just the default."""
    location = conf.get_location("decision_store_connection", group="moorage")
    return location is None or location.location is not cfg.Locations.opt_default
