# SPDX-License-Identifier: Apache-2.0
"""The lifecycle of a scheduler: load, check, follow, reload, stop.

load ─▶ check ─▶ [fork workers ─▶ reseed] ─▶ follow ─▶ reload … ─▶ stop
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Final

from oslo_config import cfg

from ..objects import RequestSpec
from .claim_reconciler import ClaimReconciler
from .conf.presets import is_given
from .database import StoreUnavailable
from .decision_store import DecisionQuery, DecisionStore
from .display import listed
from .drivers.parts import Parts
from .drivers.plugins import PluginSet, load_plugin_set
from .errors import InvalidRequest
from .explain import requests_of_decisions
from .kafka_peers import KafkaPeers
from .locality import conflicts_of_table
from .locality.following import PlaceFollower, places_of_conf
from .seeding import seed_from_file
from .selector import Selector
from .sources.base import BaseHostSource

LOG = logging.getLogger(__name__)

#: The maximum number of conflicts of places that are logged; the upgrade check lists
#: more.
_MAX_CONFLICTS: Final = 10
#: The newest decisions whose flavors are compared with the hosts at the start, and the
#: large flavors that are named.
_MAX_DECISIONS: Final = 200
_MAX_NAMED: Final = 3
#: The weighers of free amounts, which pack where their multiplier is negative.
_SPREADING: Final = frozenset({"CPUWeigher", "RAMWeigher", "DiskWeigher"})


class Lifecycle:
    """Starts, reloads and stops the parts of a scheduler.

    Parameters
    ----------
    store : DecisionStore or None
        None: decisions are only in memory.
    peers : KafkaPeers or None
        None: claims are not announced through Kafka.
    is_embedded : bool
        Whether Placement runs in this process.
    closing : contextlib.ExitStack
        Closes all parts.
    """

    def __init__(  # noqa: PLR0913 - it starts all of them
        self,
        conf: cfg.ConfigOpts,
        parts: Parts,
        selector: Selector,
        reconciler: ClaimReconciler,
        places: PlaceFollower,
        store: DecisionStore | None,
        peers: KafkaPeers | None,
        *,
        is_embedded: bool,
        closing: contextlib.ExitStack,
    ) -> None:
        self._conf = conf
        self._parts = parts
        self._selector = selector
        self._reconciler = reconciler
        self._places = places
        self._store = store
        self.peers = peers
        self._is_embedded = is_embedded
        self._closing = closing

    @property
    def must_not_fork(self) -> bool:
        """Whether forking is impossible because of the embedded Placement."""
        return self._is_embedded

    def load(self) -> None:
        """Read the hosts; starts no thread, so that the process may be forked after.

        Raises
        ------
        ConfigurationError
            The hosts, or Placement's database, cannot be read, the store of decisions
            has a newer version, or the topic of claims does not exist.
        """
        if self._store is not None:
            self._store.prepare()
        if self.peers is not None:
            self.peers.check()
        self._parts.source.start(self._parts.table)
        self._seed()
        self._parts.candidates.load()
        self._places.load()
        if not self._places.is_waiting:
            self._log_conflicts()

    def check(self) -> None:
        """Check that the hosts may be served; called once, before workers are forked.

        Raises
        ------
        ConfigurationError
            The source refuses, for example because a nova-compute is too old.
        """
        self._parts.source.check()
        self._warn_of_large_flavors()

    def _warn_of_large_flavors(self) -> None:
        """Log a warning if no weigher keeps hosts empty for large flavors.

        A flavor is large if it needs more than half of the CPUs or memory of the
        largest host. The flavors are those of recent decisions: nova may have more. An
        operator who has set the preset has decided.
        """
        hosts = self._parts.table.batch()
        if not len(hosts) or is_given(self._parts.conf, "moorage", "preset"):
            return
        if any(
            type(weigher).__name__ in _SPREADING
            and (weigher.multipliers(hosts) < 0).any()
            for weigher in self._parts.weighers
        ):
            return
        usable_mb = hosts.total_usable_ram_mb * hosts.ram_allocation_ratio
        memory_mb = float(usable_mb.max())
        vcpus = float((hosts.vcpus_total * hosts.cpu_allocation_ratio).max())
        large_flavors = sorted(
            {
                flavor.name or "(no name)"
                for flavor in requests_of_decisions(self._recent_requests())
                if memory_mb / 2 < flavor.sizes[0] <= memory_mb
                or vcpus / 2 < flavor.sizes[1] <= vcpus
            }
        )
        if large_flavors:
            LOG.warning(
                "Recent requests were for %d flavor(s) that need more than half of the "
                "largest host (%s), and no weigher packs: once each host has some "
                "instances, such a request fails, however much is free in all. "
                "[moorage] preset = pack keeps hosts empty; preset = nova keeps the "
                "weighers and ends this warning",
                len(large_flavors),
                listed(large_flavors, _MAX_NAMED),
            )

    def _recent_requests(self) -> list[RequestSpec]:
        """Return the newest stored requests; none if they cannot be read."""
        if self._store is None or self._store.failure:
            return []
        try:
            decisions = self._store.page(DecisionQuery(limit=_MAX_DECISIONS)).decisions
        except StoreUnavailable as e:
            LOG.info("Flavors are not compared with the hosts: %s", e)
            return []
        finally:
            self._store.disconnect()  # the process may be forked
        requests = []
        for decision in decisions:
            with contextlib.suppress(InvalidRequest):  # such as one of another release
                if (request := decision.request) is not None:
                    requests.append(request)
        return requests

    def follow(self, *, claims_directory: Path | None = None) -> None:
        """Start the background threads; called in each process that decides.

        The threads keep the hosts up to date, check Placement, release stale claims and
        store decisions.

        Parameters
        ----------
        claims_directory : Path, optional
            The folder of unsettled claims if ``[moorage] claims_directory`` is unset.

        Raises
        ------
        ConfigurationError
            Unsettled claims cannot be recorded in the folder.
        """
        option = self._conf.moorage.claims_directory
        if folder := Path(option) if option else claims_directory:
            self._parts.journal.open(folder)
        if self.peers is not None:
            self._selector.publish_claims = self.peers.start()
        self._parts.source.start_polling(self._parts.table)
        self._parts.candidates.start()
        self._parts.placement.health.start(self._parts.placement.probe)
        self._reconciler.start()
        is_waiting = self._places.is_waiting
        self._places.start()
        if is_waiting:
            self._log_conflicts()
        if self._store is not None:
            self._parts.decisions.subscribe(self._store.add)
            self._store.start()

    def load_plugins(self, settings: cfg.ConfigOpts | None = None) -> PluginSet:
        """Return the plugins that options name, for `reload`, without using them yet.

        Parameters
        ----------
        settings : oslo_config.cfg.ConfigOpts, optional
            By default, the `conf` of `build`.

        Raises
        ------
        PluginError
            A plugin is unknown or broken.
        ConfigurationError
            A file that `reload` will read is invalid.
        """
        places_of_conf(settings or self._conf)
        return load_plugin_set(settings or self._conf, self._parts.clock)

    def reload(self, plugins: PluginSet | None = None) -> None:
        """Reload plugins and hosts; see `Scheduler.reset`."""
        plugins = plugins or self.load_plugins()
        self._selector.use(plugins)
        options = self._conf.moorage
        self._parts.candidates.set_limits(
            options.candidates_max_age, options.candidates_cache_size
        )
        self._reconciler.max_age_s = claim_max_age_s(self._conf, self._parts.source)
        self._places.reload()
        self._parts.source.refresh(self._parts.table)
        self._log_conflicts()
        self._seed()

    def _log_conflicts(self) -> None:
        options = self._conf.locality
        conflicts = conflicts_of_table(
            self._parts.table, options.levels, options.distance_file
        )
        for conflict in conflicts[:_MAX_CONFLICTS]:
            LOG.warning("Places of hosts: %s", conflict)

    def release_leftover_claims(self, claims_directory: Path) -> None:
        """Release the claims of killed processes, as far as Placement answers.

        Called by the parent process of the workers before it stops.

        Raises
        ------
        ConfigurationError
            The folder cannot be used.
        """
        self._parts.journal.open(claims_directory)
        self._parts.orphans.stop()
        self._parts.journal.close()

    def stop(self) -> None:
        """Stop all threads and close all connections."""
        self._closing.close()

    def _seed(self) -> None:
        if self._is_embedded:
            seed_from_file(self._parts.placement, self._parts.source)


def claim_max_age_s(conf: cfg.ConfigOpts, source: BaseHostSource) -> float | None:
    """Return the age at which reports should include a claim; None: no reports."""
    age_s: float = conf.moorage.claim_max_age
    return age_s if source.is_reporting else None
