# SPDX-License-Identifier: Apache-2.0
"""The composition root: builds a scheduler from its parts."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from oslo_config import cfg

from ..objects import RequestSpec
from . import logs, tracing
from .claim_reconciler import ClaimReconciler
from .clock import now_s
from .conf import register_opts
from .drivers.base import BaseSchedulerDriver, Parts
from .drivers.caller import Caller
from .drivers.peer_claims import PeerClaim, PublishClaims, publish_nothing
from .drivers.placement_queries import build_queries, build_requirements
from .drivers.plugins import PluginSet, load_plugin_set
from .drivers.record import DecisionLog, DecisionRecord
from .entry_points import load_plugin
from .errors import ConfigurationError
from .hosts import HostTable
from .instances import InstanceLocation, InstanceState
from .notifications import (
    MessagingNotifier,
    Notifier,
    NotifierPair,
    make_publishers,
)
from .placement.allocations.journal import Journal
from .placement.allocations.orphans import Orphans
from .placement.cache import CandidatesCache
from .placement.circuit import Circuit
from .placement.client import PlacementAdapter, PlacementClient, make_adapter
from .placement.diagnosis import diagnose
from .placement.embedded import EmbeddedPlacement
from .placement.findings import Diagnosis
from .placement.readiness import Readiness
from .placement.seed import seed
from .prefilters import NetworkClient
from .prefilters.networks import check_network
from .prefilters.neutron import make_network_client
from .request import Request
from .rpc.endpoints import BaseAPIEndpoint, Destinations, SchedulerEndpoint
from .seeding import providers
from .sources.base import BaseHostSource
from .sources.file import FileSource
from .waiting import Spawner, SystemWaiter, ThreadSpawner, Waiter

LOG = logging.getLogger(__name__)

#: The source whose hosts are seeded into the embedded Placement.
_FILE: Final = "file"
#: Seconds between two log lines about the progress of seeding.
_PROGRESS_EVERY_S: Final = 2.0


def build(  # noqa: PLR0913 - every dependency can be passed in
    conf: cfg.ConfigOpts,
    *,
    settings: cfg.ConfigOpts | None = None,
    placement: PlacementAdapter | None = None,
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
        Or any object with its get, put, post and delete.
    source : BaseHostSource, optional
        The source of the hosts' state.
    notifier : MessagingNotifier or pair of MessagingNotifier, optional
        Publishes decisions: oslo.messaging's Notifier, or any object with its prepare
        and info; a pair has one for legacy and one for versioned payloads.
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
        With the same seed, requests and hosts the answers are the same.

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
            _check_embedded(conf)
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


class Scheduler:
    """Selects destinations for instances; created by `build`.

    Attributes
    ----------
    conf : oslo_config.cfg.ConfigOpts
    table : HostTable
        All hosts, in the state that the source reported, with claims applied.
    decisions : DecisionLog
        The newest decision records.
    candidates_cache : CandidatesCache
        The cached answers of Placement; `stats` has their numbers.
    journal : Journal
        The unsettled claims. The sender of answers reports their progress to it;
        otherwise a request is answered once `select_destinations` returns.
    endpoints : list
        The endpoints for an oslo.messaging RPC server.
    """

    def __init__(  # noqa: PLR0913 - as `build`
        self,
        conf: cfg.ConfigOpts,
        *,
        settings: cfg.ConfigOpts,
        placement: PlacementAdapter | None,
        source: BaseHostSource,
        notifier: MessagingNotifier | NotifierPair | None,
        network: NetworkClient | None,
        clock: Callable[[], float],
        waiter: Waiter,
        spawner: Spawner,
        rng: np.random.Generator,
    ) -> None:
        with contextlib.ExitStack() as closing:
            self.conf = conf
            self.table = HostTable(clock)
            self.decisions = DecisionLog(conf.moorage.decision_records)
            self._source = source
            check_network(conf, network)
            # Plugins first: a broken one must not leave anything open.
            plugins = load_plugin_set(settings, clock)
            driver = load_plugin(
                "moorage.drivers", conf.moorage.driver, option="[moorage] driver"
            )
            self._embedded = _embedded(conf) if placement is None else None
            if self._embedded is not None:
                closing.callback(self._embedded.close)
            closing.callback(source.stop)
            self._notifier = Notifier(
                make_publishers(conf, notifier),
                self.table,
                lambda: bool(
                    conf.scheduler.query_placement_for_routed_network_aggregates
                ),
            )
            closing.callback(self._notifier.stop)
            adapter = placement or (
                self._embedded.adapter if self._embedded else make_adapter(conf)
            )
            circuit = Circuit(
                clock=waiter.monotonic,
                rng=random.Random(int(rng.integers(2**62))),
                spawner=spawner,
            )
            self.placement = PlacementClient(adapter, circuit=circuit)
            self._orphans = Orphans(
                self.placement,
                rng=random.Random(int(rng.integers(2**62))),
                locate=self._locate,
                evidence_timeout_s=lambda: conf.moorage.orphan_evidence_timeout,
                waiter=waiter,
                spawner=spawner,
            )
            self.journal = Journal(self._orphans, spawner=spawner)
            closing.callback(self.journal.close)
            closing.callback(self._orphans.stop)
            self._readiness = Readiness(self.placement)
            closing.callback(self._readiness.stop)
            self.candidates_cache = CandidatesCache(
                self.placement,
                max_age_s=conf.moorage.candidates_max_age,
                max_requests=conf.moorage.candidates_max_kept,
                clock=waiter.monotonic,
                spawner=spawner,
            )
            closing.callback(self.candidates_cache.stop)
            self._reconciler = ClaimReconciler(
                self.table,
                self.placement,
                max_age_s=self._claim_max_age_s(),
                waiter=waiter,
                spawner=spawner,
            )
            closing.callback(self._reconciler.stop)
            self._driver: BaseSchedulerDriver = driver(
                Parts(
                    conf=settings,
                    placement=self.placement,
                    orphans=self._orphans,
                    journal=self.journal,
                    candidates_cache=self.candidates_cache,
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
                    publish_claims=self._publish_claims,
                    review=self._reconciler.review,
                )
            )
            self._clock = clock
            self._publish: PublishClaims = publish_nothing
            self._readiness_checks: list[Callable[[], str]] = []
            #: The source's endpoints, to be served on Moorage's own topic.
            self.source_endpoints = source.endpoints
            self.endpoints = [SchedulerEndpoint(self), BaseAPIEndpoint()]
            # Closed by `stop`, or by `closing` if a later part cannot be created.
            self._closing = closing.pop_all()

    def start(self) -> None:
        """Read the hosts, and check whether Placement answers.

        If Placement is unreachable, rejects the credentials or is too old, a warning is
        logged and the check is repeated until it succeeds; see `is_ready`.

        Raises
        ------
        ConfigurationError
            The hosts cannot be read, or `check` fails.
        """
        self.load()
        self.check()
        self.follow()

    def load(self) -> None:
        """Read the hosts, the first half of `start`; starts no thread.

        The process may be forked after this; each child calls `follow`.

        Raises
        ------
        ConfigurationError
            The hosts cannot be read.
        """
        self._source.start(self.table)
        if self._embedded is not None:
            self._seed()

    def check(self) -> None:
        """Check that the hosts may be served; part of `start`, after `load`.

        Raises
        ------
        ConfigurationError
            The source refuses, for example because a nova-compute is too old.
        """
        self._source.check()

    def reseed_for_worker(self, number: int) -> None:
        """Use other tie breakers and retry delays than the parent process.

        Parameters
        ----------
        number : int
            0 or more, unique in each process. With ``random_seed`` the same number
            gives the same answers.
        """
        rng = self._driver.parts.rng.spawn(number + 1)[number]
        self._driver.parts = dataclasses.replace(
            self._driver.parts, rng=rng, tie_seed=int(rng.integers(2**62))
        )

    def follow(self, *, claims_directory: Path | None = None) -> None:
        """Start the background threads, the second half of `start`.

        They keep the hosts up to date, check Placement and release stale claims.

        Parameters
        ----------
        claims_directory : Path, optional
            Used if the option of that name is not set.

        Raises
        ------
        ConfigurationError
            Unsettled claims cannot be recorded there.
        """
        option = self.conf.moorage.claims_directory
        if folder := Path(option) if option else claims_directory:
            self.journal.open(folder)
        self._source.start_polling(self.table)
        self._readiness.start()
        self._reconciler.start()

    def release_leftover_claims(self, claims_directory: Path) -> None:
        """Release the claims of killed processes, as far as Placement answers.

        Called by the parent process of the workers before it stops.

        Raises
        ------
        ConfigurationError
            The folder cannot be used.
        """
        self.journal.open(claims_directory)
        self._orphans.stop()
        self.journal.close()

    @property
    def must_not_fork(self) -> bool:
        """Whether forking is impossible because of the embedded Placement."""
        return self._embedded is not None

    def add_readiness_check(self, check: Callable[[], str]) -> None:
        """Add a condition for being ready.

        Parameters
        ----------
        check : callable
            Returns the problem, or an empty text; must return at once, without I/O.
        """
        self._readiness_checks.append(check)

    @property
    def is_ready(self) -> bool:
        """Whether requests can be served.

        Placement must answer, the state of hosts must be recent enough, the source must
        report no problem, and the added checks must succeed. Does no I/O.
        """
        return self._readiness.is_ready and not any(self._problems())

    @property
    def readiness_note(self) -> str:
        """Why the scheduler is not ready and since when, with other notes; or ""."""
        notes = (self._readiness.note, *self._problems(), *self._source.notes())
        return " ".join(dict.fromkeys(note for note in notes if note))

    def _problems(self) -> Iterator[str]:
        """Yield the problems other than Placement's, or empty texts."""
        yield self._staleness()
        yield from self._source.troubles()
        for check in self._readiness_checks:
            yield check()

    @property
    def view_age_s(self) -> float | None:
        """Seconds since the oldest part of the hosts' state was read.

        None: the source's state does not age.
        """
        return self._source.age_s(self._clock())

    def _staleness(self) -> str:
        age_s, limit_s = self.view_age_s, self.conf.moorage.max_view_age
        if age_s is None or not limit_s or age_s <= limit_s:
            return ""
        return (
            f"The state of hosts is {age_s:.0f} s old, more than [moorage] "
            f"max_view_age, {limit_s:.0f} s."
        )

    @property
    def report_counts(self) -> Mapping[str, int]:
        """The numbers of host reports by outcome; empty if the source takes none."""
        return self._source.report_counts()

    def publish_claims_to(self, publish: PublishClaims) -> None:
        """Set how claims are published; see `moorage.scheduler.rpc.Peers`."""
        self._publish = publish

    def _publish_claims(self, claims: Sequence[PeerClaim]) -> None:
        self._publish(claims)

    def apply_peer_claims(self, claims: Sequence[dict[str, Any]]) -> None:
        """Apply the claims of another scheduler; log and skip malformed ones."""
        for claim in claims:
            try:
                peer = PeerClaim.from_wire(claim, self.conf)
            except (KeyError, TypeError, ValueError) as e:
                LOG.warning(
                    "Skipping a claim of another scheduler that cannot be read: %r", e
                )
                continue
            age_s = max(0.0, self._clock() - peer.claimed_at)
            self.candidates_cache.count_claim([peer.allocation_request], age_s=age_s)
            self.table.consume(
                peer.node_uuid,
                peer.instance_uuid,
                peer.consumption,
                peer.claimed_at,
            )
            self._orphans.forget_claimed([peer.instance_uuid])

    def _locate(
        self, instance_uuid: str, providers: Collection[str]
    ) -> InstanceLocation:
        """Return an instance's location, as evidence that it uses some providers.

        A location on another host, as during a move, counts as unknown.
        """
        location = self._source.locate_instance(instance_uuid)
        hosts = {self.table.host_of(node_uuid) for node_uuid in providers} - {None}
        is_elsewhere = bool(hosts) and location.host not in hosts
        if location.state is InstanceState.ON_HOST and is_elsewhere:
            return InstanceLocation(InstanceState.UNKNOWN)
        return location

    def _seed(self) -> None:
        if isinstance(self._source, FileSource):
            count = seed(
                self.placement,
                providers(self._source.inventory),
                progress=_logged_progress(),
            )
            LOG.info("Seeded the embedded Placement: %d new or changed hosts", count)

    def stop(self) -> None:
        """Stop all threads and close all connections; the scheduler cannot restart."""
        self._closing.close()

    @property
    def n_orphans(self) -> int:
        """The number of allocations that may be held without an answered request."""
        return len(self._orphans)

    @property
    def suspected_orphans(self) -> Sequence[str]:
        """Instances whose allocations no evidence explains; see `Orphans`."""
        return self._orphans.suspected

    def load_plugins(self, settings: cfg.ConfigOpts | None = None) -> PluginSet:
        """Return the plugins that options name, for `reset`, without using them yet.

        Parameters
        ----------
        settings : oslo_config.cfg.ConfigOpts, optional
            `conf` by default.

        Raises
        ------
        PluginError
            One of them is unknown or broken.
        """
        return load_plugin_set(settings or self.conf, self._clock)

    def reset(self, plugins: PluginSet | None = None) -> None:
        """Reload plugins and hosts, as on SIGHUP.

        Decisions that begin later use the new filters, weighers and prefilters;
        running decisions finish with the old ones.

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
        plugins = plugins or self.load_plugins()
        self._driver.parts = dataclasses.replace(
            self._driver.parts,
            conf=plugins.conf,
            prefilters=plugins.prefilters,
            filters=plugins.filters,
            weighers=plugins.weighers,
        )
        options = self.conf.moorage
        self.candidates_cache.set_limits(
            options.candidates_max_age, options.candidates_max_kept
        )
        self._reconciler.max_age_s = self._claim_max_age_s()
        self._source.refresh(self.table)
        if self._embedded is not None:
            self._seed()

    def _claim_max_age_s(self) -> float | None:
        age_s: float = self.conf.moorage.claim_max_age
        return age_s if self._source.is_reporting else None

    def select_destinations(
        self,
        context: object,
        spec_obj: RequestSpec,
        instance_uuids: Sequence[str] | None = None,
        return_objects: bool = False,
        return_alternates: bool = False,
    ) -> Destinations:
        """Select a host, and alternates, for each instance of a request.

        Parameters
        ----------
        context : mapping or object
            The request context: the dict of the wire, or nova's RequestContext.
        spec_obj : RequestSpec
        instance_uuids : sequence of str, optional
            One an instance; None: an old conductor, which claims the resources itself.
        return_objects : bool
            Whether to return Selection objects; otherwise dicts with host, nodename
            and limits, without alternates.
        return_alternates : bool
            Whether to return alternates, too.

        Returns
        -------
        list of list of Selection, or list of dict

        Raises
        ------
        NoValidHost
            At least one instance fits nowhere; no claim remains.
        InvalidRequest
            The request is malformed or contradictory.
        PlacementError
            Placement failed.
        """
        uuids = tuple(instance_uuids or ())
        caller = Caller.of(context)

        def attributes() -> Mapping[str, tracing.AttributeValue]:
            return {
                "openstack.request_id": caller.request_id or "",
                "openstack.project_id": caller.project_id or "",
                "moorage.instances": uuids,
            }

        with (
            logs.request(context, uuids),
            tracing.request("select_destinations", context, attributes),
            self.journal.answer_on_return(),
        ):
            notifications = self._notifier.for_call(context, spec_obj)
            if notifications is not None:
                caller = dataclasses.replace(
                    caller,
                    on_start=notifications.start,
                    on_placed=notifications.record_placement,
                )
            selections = self._driver.select_destinations(
                caller,
                spec_obj,
                instance_uuids,
                return_alternates=return_objects and return_alternates,
            )
            if notifications is not None:
                notifications.end(instance_uuids, selections)
            if return_objects:
                return selections
            return [mine[0].to_dict() for mine in selections]

    def diagnose(self, context: object, spec_obj: RequestSpec) -> tuple[Diagnosis, ...]:
        """Explain why Placement has no allocation candidates for a request.

        It is expensive, about a GET a constraint, and no decision calls it.

        Returns
        -------
        tuple of Diagnosis
            One a query; a guest with dedicated CPUs has two, the second one for hosts
            that do not report PCPU yet. ``str()`` of one is for people.

        Raises
        ------
        NoValidHost
            There is no query: a prefilter rejects the request, or no host has the
            requested name.
        InvalidRequest
            The request is malformed or contradictory.
        PlacementError
            Placement failed.
        """
        caller, parts = Caller.of(context), self._driver.parts
        request = Request.validated(spec_obj)
        unread = DecisionRecord(caller.request_id, (), 0, parts.clock())
        requirements = build_requirements(parts, caller, request, unread)
        return tuple(
            diagnose(
                self.placement,
                query,
                is_host=self.table.has_node,
                global_request_id=caller.global_request_id,
            )
            for query in build_queries(parts, request, requirements)
        )


def _logged_progress() -> Callable[[int, int], None]:
    """Return a callback that logs the progress of seeding at intervals."""
    logged_at = time.monotonic()

    def log(n_done: int, n_hosts: int) -> None:
        nonlocal logged_at
        if time.monotonic() - logged_at >= _PROGRESS_EVERY_S:
            logged_at = time.monotonic()
            LOG.info("Seeding the embedded Placement: %d of %d hosts", n_done, n_hosts)

    return log


def _needs_embedded(conf: cfg.ConfigOpts) -> bool:
    """Return whether no option names another Placement."""
    options = conf.placement
    return not (options.auth_type or options.auth_section or options.endpoint_override)


def _check_embedded(conf: cfg.ConfigOpts) -> None:
    """Raise ConfigurationError for a source whose hosts it would not have."""
    if _needs_embedded(conf) and conf.moorage.source != _FILE:
        raise ConfigurationError(
            "[placement] has none of auth_type, auth_section and endpoint_override: "
            "the embedded Placement would be used, which has no hosts of [moorage] "
            f"source = {conf.moorage.source}. Set [placement] as in nova.conf"
        )


def _embedded(conf: cfg.ConfigOpts) -> EmbeddedPlacement | None:
    """Return the embedded Placement, if no option names another one."""
    if not _needs_embedded(conf):
        return None
    LOG.warning(
        "[placement] has neither auth_type nor endpoint_override: using the embedded "
        "Placement, to which no compute service reports"
    )
    return EmbeddedPlacement(conf.moorage.embedded_placement_database)
