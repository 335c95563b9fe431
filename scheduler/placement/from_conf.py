# SPDX-License-Identifier: Apache-2.0
"""Create, from options, the access to Placement and the source of candidates."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from oslo_config import cfg

from ..conf.keystoneauth import has_endpoint
from ..conf.moorage import PLACEMENT
from ..errors import ConfigurationError
from ..waiting import Spawner, Waiter
from .cache import CandidatesCache
from .candidates_source import CandidatesSource
from .client import PlacementClient
from .database import ProviderFollower, placement_engine
from .embedded import EmbeddedPlacement
from .memory import Confirmations, Lag, ProviderCandidatesSource

LOG = logging.getLogger(__name__)

#: The only host source whose hosts are written to the embedded Placement.
_FILE: Final = "file"


def needs_embedded(conf: cfg.ConfigOpts) -> bool:
    """Return whether the embedded Placement is used: no option names another one."""
    return not has_endpoint(conf, "placement")


def check_embedded(conf: cfg.ConfigOpts) -> None:
    """Check that the embedded Placement, if used, has the hosts of the host source.

    Raises
    ------
    ConfigurationError
        The embedded Placement would not have these hosts.
    """
    if needs_embedded(conf) and conf.moorage.source != _FILE:
        raise ConfigurationError(
            "[placement] has none of auth_type, auth_section and endpoint_override: "
            "the embedded Placement would be used, which has no hosts of [moorage] "
            f"source = {conf.moorage.source}. Set [placement] as in nova.conf"
        )


def make_embedded(conf: cfg.ConfigOpts) -> EmbeddedPlacement | None:
    """Return the embedded Placement, if no option names another one."""
    if not needs_embedded(conf):
        return None
    LOG.warning(
        "[placement] has neither auth_type nor endpoint_override: using the embedded "
        "Placement, to which no compute service reports"
    )
    return EmbeddedPlacement(conf.moorage.embedded_placement_database)


def make_follower(
    conf: cfg.ConfigOpts,
    embedded: EmbeddedPlacement | None,
    clock: Callable[[], float],
    waiter: Waiter,
    spawner: Spawner,
) -> ProviderFollower | None:
    """Return the follower of Placement's database; None: no providers are in memory.

    Raises
    ------
    ConfigurationError
        Providers are to be kept in memory, and no option names Placement's database.
    """
    candidates = conf.moorage.candidates
    can_follow = embedded is not None or bool(conf.placement_database.connection)
    if candidates == PLACEMENT or not (candidates or can_follow):
        return None
    if not can_follow:
        raise ConfigurationError(
            "[moorage] candidates = memory needs [placement_database] connection, "
            "the URL of Placement's database."
        )
    return ProviderFollower(
        placement_engine(conf) if embedded is None else embedded.engine,
        timeout_s=conf.moorage.cell_timeout,
        clock=clock,
        waiter=waiter,
        spawner=spawner,
        run_work=None if embedded is None else embedded.run,
    )


def make_candidates(
    conf: cfg.ConfigOpts,
    cache: CandidatesCache,
    placement: PlacementClient,
    follower: ProviderFollower | None,
    *,
    clock: Callable[[], float],
    spawner: Spawner,
) -> CandidatesSource:
    """Return the source of candidates: the cache, if no providers are followed."""
    if follower is None:
        return cache
    options = conf.moorage
    return ProviderCandidatesSource(
        follower,
        cache,
        Confirmations(
            placement,
            max_per_s=lambda: float(options.confirmations_per_second),
            max_age_s=options.providers_max_age,
            clock=clock,
            spawner=spawner,
        ),
        Lag(placement, follower, clock=clock, spawner=spawner),
        max_age_s=lambda: float(options.providers_max_age),
        clock=clock,
    )
