# SPDX-License-Identifier: Apache-2.0
"""The one place where a scheduler's parts are wired together."""

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
from .drivers.asking import questions, required
from .drivers.base import BaseSchedulerDriver, Parts
from .drivers.caller import Caller
from .drivers.peer_claims import PeerClaim, PublishClaims, publish_nothing
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
from .placement.circuit import Circuit
from .placement.client import PlacementAdapter, PlacementClient, make_adapter
from .placement.diagnosis import diagnose
from .placement.embedded import EmbeddedPlacement
from .placement.findings import Diagnosis
from .placement.kept import KeptCandidates
from .placement.readiness import Readiness
from .placement.seed import seed
from .prefilters import NetworkClient
from .prefilters.networks import check_network
from .prefilters.neutron import make_network_client
from .rpc.endpoints import Answer, BaseAPIEndpoint, SchedulerEndpoint
from .seeding import providers
from .sources.base import BaseHostSource
from .sources.file import FileSource
from .waiting import Spawner, SystemWaiter, ThreadSpawner, Waiter

LOG = logging.getLogger(__name__)

#: The source whose hosts the embedded Placement is told of.
_FILE: Final = "file"
#: Seconds between two lines in the log about how far seeding is.
_PROGRESS_EVERY_S: Final = 2.0


def build(  # noqa: PLR0913 - every dependency can be handed in
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
    """Return a scheduler; what is not handed in is made as `conf` says.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts
        Ours or nova's own; options of ours that it lacks are registered.
    settings : oslo_config.cfg.ConfigOpts, optional
        The options that the driver and its plugins read, if not `conf`: a copy that
        does not change while decisions run. `Scheduler.reset` can switch to another.
    placement : keystoneauth1.adapter.Adapter, optional
        Or anything with its get, put, post and delete.
    source : BaseHostSource, optional
        Where the state of hosts comes from.
    notifier : MessagingNotifier or pair of MessagingNotifier, optional
        Publishes decisions: oslo.messaging's Notifier, or anything with its prepare
        and info; a pair has one for legacy and one for versioned payloads.
    network : NetworkClient, optional
        Neutron: python-neutronclient's client, or anything with its show_port,
        show_subnet and list_subnets.
    clock : callable, optional
        Returns now, seconds since the epoch; `now_s` by default. A source
        keeps its own, and the age of what it has read is the difference of the two:
        hand in one that was made with this clock.
    waiter : Waiter, optional
        Waits, and measures ages: the system's time by default.
    spawner : Spawner, optional
        Starts the threads that release claims, and makes their locks.
    rng : numpy.random.Generator, optional
        The same seed, requests and hosts give the same answers.

    Raises
    ------
    ConfigurationError
        An option, a plugin or a file cannot be used.
    """
    register_opts(conf)
    if source is None:
        if placement is None:
            _check_embedded(conf)
        source = load_plugin(
            "moorage.sources", conf.moorage.source, option="[moorage] source"
        )(conf)
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
    """Select destinations for instances; made by `build`.

    Attributes
    ----------
    conf : oslo_config.cfg.ConfigOpts
    table : HostTable
        All hosts, as the source reported them and claims changed them.
    decisions : DecisionLog
        The newest decision records.
    kept : KeptCandidates
        What Placement answered of late; `stats` tells how much that is.
    journal : Journal
        The unsettled claims. The sender of answers reports their progress to it;
        otherwise a request is answered once `select_destinations` returns.
    endpoints : list
        What an oslo.messaging RPC server serves.
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
            # Plugins first: one that is broken leaves nothing open.
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
            self.kept = KeptCandidates(
                self.placement,
                max_age_s=conf.moorage.candidates_max_age,
                max_requests=conf.moorage.candidates_max_kept,
                clock=waiter.monotonic,
            )
            closing.callback(self.kept.stop)
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
                    kept=self.kept,
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
            self._needs: list[Callable[[], str]] = []
            #: What the source wants served on the topic of Moorage's own.
            self.source_endpoints = source.endpoints
            self.endpoints = [SchedulerEndpoint(self), BaseAPIEndpoint()]
            # All of it is let go of by `stop`, or now if some part cannot be made.
            self._closing = closing.pop_all()

    def start(self) -> None:
        """Read the hosts, and see whether Placement answers.

        A Placement that is away, does not accept the credentials or is too old is only
        warned of, and asked on until it can do its part: `is_ready` tells.

        Raises
        ------
        ConfigurationError
            The hosts cannot be read, or `check` says no.
        """
        self.load()
        self.check()
        self.follow()

    def load(self) -> None:
        """Read the hosts, the first half of `start`; no thread is left behind.

        A process may be forked after it, and each child calls `follow`.

        Raises
        ------
        ConfigurationError
            The hosts cannot be read.
        """
        self._source.start(self.table)
        if self._embedded is not None:
            self._seed()

    def check(self) -> None:
        """Refuse to serve hosts that it must not; part of `start`, after `load`.

        Raises
        ------
        ConfigurationError
            As of the source, such as a nova-compute that is too old.
        """
        self._source.check()

    def reseed_for_worker(self, number: int) -> None:
        """Break ties and choose pauses differently from the process that was forked.

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
        """Keep up with the hosts and with Placement, the second half of `start`.

        Parameters
        ----------
        claims_directory : Path, optional
            Used where the option of that name is not set.

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
        """Release the claims that killed processes left there, where Placement answers.

        For the parent process of the workers, before it stops.

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
        """Whether the process must not be forked: it has the embedded Placement."""
        return self._embedded is not None

    def need(self, trouble: Callable[[], str]) -> None:
        """Count something outside as needed to be ready.

        Parameters
        ----------
        trouble : callable
            Returns why it cannot be used, or an empty text; it asks nobody.
        """
        self._needs.append(trouble)

    @property
    def is_ready(self) -> bool:
        """Return whether requests can be served.

        That needs Placement, hosts whose state is known well enough, a source that can
        do its part, and what `need` has named. It asks nobody.
        """
        return self._readiness.is_ready and not any(self._troubles())

    @property
    def readiness_note(self) -> str:
        """Return why it is not ready, since when, or what else to know; or ""."""
        notes = (self._readiness.note, *self._troubles(), *self._source.notes())
        return " ".join(dict.fromkeys(note for note in notes if note))

    def _troubles(self) -> Iterator[str]:
        """Yield what else than Placement keeps it from being ready, or empty texts."""
        yield self._staleness()
        yield from self._source.troubles()
        for trouble in self._needs:
            yield trouble()

    @property
    def view_age_s(self) -> float | None:
        """Seconds since the oldest part of the hosts' state was read.

        None: the source vouches for it.
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
        """How many reports of hosts came to what; none where the source takes none."""
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
            self.kept.claimed([peer.allocation_request], age_s=age_s)
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
        """Return where an instance is, as evidence of who uses some providers.

        An instance on another host, as while it is moved, is no evidence.
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
            LOG.info(
                "The embedded Placement was told of %d new or changed hosts", count
            )

    def stop(self) -> None:
        """Let go of everything; the scheduler cannot be used any more."""
        self._closing.close()

    @property
    def n_orphans(self) -> int:
        """How many allocations may be held without having been answered."""
        return len(self._orphans)

    @property
    def suspected_orphans(self) -> Sequence[str]:
        """Instances whose allocations no evidence explains; see `Orphans`."""
        return self._orphans.suspected

    def load_plugins(self, settings: cfg.ConfigOpts | None = None) -> PluginSet:
        """Return the plugins that options name, for `reset`; none is in use yet.

        Parameters
        ----------
        settings : oslo_config.cfg.ConfigOpts, optional
            `conf` by default.

        Raises
        ------
        PluginError
            One of them cannot be used.
        """
        return load_plugin_set(settings or self.conf, self._clock)

    def reset(self, plugins: PluginSet | None = None) -> None:
        """Load plugins and read the hosts again, as SIGHUP asks.

        Decisions that begin later use the new filters, weighers and prefilters;
        decisions under way go on with those they began with.

        Parameters
        ----------
        plugins : PluginSet, optional
            What to use instead of loading them.

        Raises
        ------
        PluginError
            A plugin cannot be used; plugins and hosts remain unchanged.
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
        self.kept.bound(options.candidates_max_age, options.candidates_max_kept)
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
    ) -> Answer:
        """Select a host, and alternates, for each instance of a request.

        Parameters
        ----------
        context : mapping or object
            The request context: the dict of the wire, or nova's RequestContext.
        spec_obj : RequestSpec
        instance_uuids : sequence of str, optional
            One an instance; None: an old conductor, which claims by itself.
        return_objects : bool
            Whether to answer Selection objects; else dicts with host, nodename and
            limits, without alternates.
        return_alternates : bool
            Whether to answer alternates, too.

        Returns
        -------
        list of list of Selection, or list of dict

        Raises
        ------
        NoValidHost
            Some instance fits nowhere; nothing is left claimed.
        InvalidRequest
            The request cannot be asked.
        PlacementError
            Placement could not do its part.
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
                    starting=notifications.start,
                    placing=notifications.record_placement,
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
        """Tell why Placement has no allocation candidates for a request.

        It is dear, about a GET a constraint, and never done while deciding.

        Returns
        -------
        tuple of Diagnosis
            One a question; a guest with dedicated CPUs has two, the second one for
            hosts that do not report PCPU yet. ``str()`` of one is for people.

        Raises
        ------
        NoValidHost
            Placement is not even asked: a prefilter rejects the request, or no host
            has the name that is wanted.
        InvalidRequest
            The request cannot be asked.
        PlacementError
            Placement could not do its part.
        """
        caller, parts = Caller.of(context), self._driver.parts
        unread = DecisionRecord(caller.request_id, (), 0, parts.clock())
        requirements = required(parts, caller, spec_obj, unread)
        return tuple(
            diagnose(
                self.placement,
                question,
                is_host=self.table.has_node,
                global_request_id=caller.global_request_id,
            )
            for question in questions(parts, spec_obj, requirements)
        )


def _logged_progress() -> Callable[[int, int], None]:
    """Return what logs now and then how many of all hosts are done."""
    logged_at = time.monotonic()

    def log(n_done: int, n_hosts: int) -> None:
        nonlocal logged_at
        if time.monotonic() - logged_at >= _PROGRESS_EVERY_S:
            logged_at = time.monotonic()
            LOG.info(
                "The embedded Placement is told of hosts: %d of %d", n_done, n_hosts
            )

    return log


def _needs_embedded(conf: cfg.ConfigOpts) -> bool:
    """Return whether nothing says how another Placement is reached."""
    options = conf.placement
    return not (options.auth_type or options.auth_section or options.endpoint_override)


def _check_embedded(conf: cfg.ConfigOpts) -> None:
    """Raise ConfigurationError for a source whose hosts it would not know."""
    if _needs_embedded(conf) and conf.moorage.source != _FILE:
        raise ConfigurationError(
            "[placement] has none of auth_type, auth_section and endpoint_override: "
            "the embedded Placement would be used, which knows no hosts of [moorage] "
            f"source = {conf.moorage.source}. Set [placement] as in nova.conf"
        )


def _embedded(conf: cfg.ConfigOpts) -> EmbeddedPlacement | None:
    """Return the embedded Placement where nothing is said of another one."""
    if not _needs_embedded(conf):
        return None
    LOG.warning(
        "[placement] has neither auth_type nor endpoint_override: the embedded "
        "Placement is used, which no compute service reports to"
    )
    return EmbeddedPlacement(conf.moorage.embedded_placement_database)
