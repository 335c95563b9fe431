# SPDX-License-Identifier: Apache-2.0
"""The parts of a scheduler on a stored view: without network, with a fixed time."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NoReturn

import numpy as np
from oslo_config import cfg

from ..candidates import AllocationRequest, CandidatesQuery, DerivedData, QueryOffer
from ..conf import load
from ..drivers.decision_log import DecisionLog
from ..drivers.parts import Parts
from ..drivers.plugins import Clock, PluginSet, load_plugin_set
from ..errors import PlacementUnavailable
from ..hosts import HostTable
from ..placement.adapter import Verb
from ..placement.allocations.journal import Journal
from ..placement.allocations.orphans import Orphans
from ..placement.cache import CachedOffer
from ..placement.candidates_source import (
    CacheStats,
    CandidatesSource,
    CountedClaim,
    FollowingStats,
)
from ..placement.client import PlacementClient
from ..placement.health import PlacementHealth
from ..placement.memory import TableOffer
from ..placement.providers import ProviderQuery, ProviderView, QueryNotCovered
from ..sources.base import BaseHostSource
from ..waiting import SystemWaiter
from .options import OptionValues, apply_options, code_paths, without_missing_files
from .view import StoredView


class OfflineParts:
    """The parts of a scheduler that decisions and explanations need, from a view alone.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts, optional
        Options that it sets replace those of the view. The other options of the view
        are set on `conf`.

    Attributes
    ----------
    parts : Parts
    now : float
        The time that `clock` returns, seconds since the epoch: at first the time of the
        view.
    left_out : sequence of str
        The plugins that the view names by a path of code, and that are not loaded; and
        the files that its options name, and that are not on this machine.

    Raises
    ------
    UnreadableView
        The view is damaged.
    PluginError
        A plugin that the options name is not installed here.
    """

    def __init__(self, view: StoredView, conf: cfg.ConfigOpts | None = None) -> None:
        self.view = view
        self.now = view.at
        conf = load([], config_files=[]) if conf is None else conf
        paths = code_paths(conf, view.options)
        plugins, missing = _plugins(view.options, conf, self.clock)
        self.left_out = [*paths, *missing]
        providers = view.providers
        placement = NoPlacement(
            is_empty=providers is not None and not len(providers.state.generations)
        )
        orphans = Orphans(placement, rng=random.Random(0))
        self.parts = Parts(
            conf=plugins.conf,
            driver=plugins.driver,
            placement=placement,
            orphans=orphans,
            journal=Journal(orphans),
            candidates=ViewCandidates(view.providers, view.offers),
            table=view.table(self.clock),
            source=ViewSource(plugins.conf, view, missing),
            prefilters=plugins.prefilters,
            filters=plugins.filters,
            weighers=plugins.weighers,
            decisions=DecisionLog(1),
            clock=self.clock,
            rng=np.random.default_rng(view.tie_seed),
            tie_seed=view.tie_seed,
            network=None,
            waiter=SystemWaiter(),
            review=lambda _nodes: False,
        )

    def clock(self) -> float:
        """Return `now`."""
        return self.now

    def providers(self) -> ProviderView | None:
        """Return the providers of the view; None: the view has none."""
        return self.view.providers


def _plugins(
    values: OptionValues, conf: cfg.ConfigOpts, clock: Clock
) -> tuple[PluginSet, list[str]]:
    """Return the plugins of a view, and a text for each file that they lack."""
    options, missing = without_missing_files(conf, values)
    if not apply_options(conf, options):
        # Loading plugins registers their own options, which can be set only afterwards.
        load_plugin_set(conf, clock)
        options, missing = without_missing_files(conf, values)
        apply_options(conf, options)
    return load_plugin_set(conf, clock), missing


class ViewSource(BaseHostSource):
    """A host source whose hosts come from a view and never change.

    Parameters
    ----------
    missing : collection of str
        The files that the options of the view name, and that are not on this machine.
    """

    def __init__(
        self, conf: cfg.ConfigOpts, view: StoredView, missing: Collection[str] = ()
    ) -> None:
        super().__init__(conf)
        self.are_zones_checked = view.are_zones_checked
        self.is_reporting = view.is_reporting
        self.has_aggregates = view.has_aggregates
        self._unknowns = (
            *view.unknowns,
            *(
                f"{file} is not on this machine: what it says does not count; name a "
                "copy with --config-file"
                for file in missing
            ),
        )

    def start(self, table: HostTable) -> None:
        """Do nothing: the table was created from the view."""

    def unknowns(self) -> Sequence[str]:
        """Return what the source did not know when the view was made, or here."""
        return self._unknowns


class NoPlacement(PlacementClient):
    """A client that has no Placement to call: each call raises PlacementUnavailable."""

    def __init__(self, *, is_empty: bool) -> None:
        self.health = PlacementHealth()
        self._is_empty = is_empty

    def is_empty(self) -> bool:
        """Return whether the view has no providers."""
        return self._is_empty

    def _read(self, url: str, *_args: object, **_keywords: object) -> NoReturn:
        raise PlacementUnavailable(
            f"A view has no Placement that could answer GET {url.partition('?')[0]}: "
            "it was made without a copy of the providers ([moorage] candidates = "
            "memory)"
        )

    def write(
        self, verb: Verb, url: str, *_args: object, **_keywords: object
    ) -> NoReturn:
        """Raise PlacementUnavailable."""
        raise PlacementUnavailable(f"A view has no Placement for {verb} {url}")


class ViewCandidates(CandidatesSource):
    """Candidates from the answers of a view, otherwise from its providers."""

    def __init__(
        self, providers: ProviderView | None, offers: Collection[CachedOffer]
    ) -> None:
        self._providers = providers
        self._offers = {offer.query: offer for offer in offers}
        self._derived = DerivedData()

    def load(self) -> None:
        """Do nothing."""

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def next_sequence(self) -> int:
        """Return 0: the offers of a view do not change."""
        return 0

    def invalidate_older_than(self, supply_revision: int) -> None:
        """Do nothing."""

    def get(
        self,
        query: CandidatesQuery,
        *,
        since: int | None = None,  # noqa: ARG002 - of the interface
        max_age_s: float = math.inf,  # noqa: ARG002
        rejected: QueryOffer | None = None,  # noqa: ARG002
        n_instances: int = 1,  # noqa: ARG002
        project_id: str | None = None,  # noqa: ARG002
        global_request_id: str | None = None,  # noqa: ARG002
    ) -> QueryOffer:
        """Return the candidates for a query.

        Raises
        ------
        PlacementUnavailable
            The view has neither Placement's answer to the query, nor providers with
            which the query can be answered.
        """
        if query in self._offers:
            return self._offers[query]
        if self._providers is None:
            raise PlacementUnavailable(
                "Placement's part is missing: the view has its answers to the stored "
                "request alone, as [moorage] candidates was not memory"
            )
        try:
            matches = self._providers.match(ProviderQuery.parse(query.params))
        except QueryNotCovered as e:
            raise PlacementUnavailable(
                f"Placement would have been asked, and a view has none: {e}"
            ) from e
        return TableOffer(query, matches, self._derived, began=0, began_at=0.0)

    def count_claim(
        self,
        requests: Iterable[AllocationRequest],  # noqa: ARG002 - of the interface
        *,
        began: int | None = None,
        age_s: float | None = None,  # noqa: ARG002
    ) -> CountedClaim:
        """Return a claim that changes no counts."""
        return CountedClaim({}, began or 0, 0)

    def release(self, claim: CountedClaim) -> None:
        """Do nothing."""

    def exclude(self, offer: QueryOffer, number: int) -> None:
        """Do nothing: the next decision on the view reads the same candidates."""

    def mark_changed(self, node_uuids: Collection[str]) -> None:
        """Do nothing."""

    def age_s(self, offer: QueryOffer) -> float:  # noqa: ARG002 - of the interface
        """Return 0."""
        return 0.0

    def lift_limit(self, offer: QueryOffer) -> bool:  # noqa: ARG002 - of the interface
        """Return False: there is no newer answer."""
        return False

    def set_limits(self, max_age_s: float, max_requests: int) -> None:
        """Do nothing."""

    def stats(self) -> CacheStats:
        """Return zeros."""
        return CacheStats()

    def query_counts(self) -> Mapping[str, int]:
        """Return an empty mapping: queries are not counted."""
        return {}

    def provider_view(self) -> ProviderView | None:
        """Return the providers of the view; None: the view has none."""
        return self._providers

    def following_stats(self) -> FollowingStats | None:
        """Return None: no changes of Placement are followed."""
        return None
