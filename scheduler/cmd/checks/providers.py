# SPDX-License-Identifier: Apache-2.0
"""Check that Placement's providers can be followed in its database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oslo_config import cfg

from ...conf.moorage import MEMORY, PLACEMENT
from ...errors import ConfigurationError, PlacementError
from ...placement.adapter import make_adapter
from ...placement.client import PlacementClient
from ...placement.database import ProviderFollower, placement_engine
from .files import FileOptions
from .result import CheckResult
from .timed_call import TimedCall

_DATABASE: Final = "Placement's database"
#: Of 10,000 providers with 50 traits, reading all takes 2 s.
_READING_S: Final = 60.0
#: The share of root providers that may differ: some are created while this runs.
_MAX_DIFFERING: Final = 0.1


def provider_findings(
    conf: cfg.ConfigOpts, files: FileOptions
) -> Iterator[CheckResult]:
    """Check whether the database is readable, and that of the same Placement."""
    has_database = bool(conf.placement_database.connection)
    options = conf.placement
    has_placement = bool(
        options.auth_type or options.auth_section or options.endpoint_override
    )
    if conf.moorage.candidates == PLACEMENT or not has_placement:
        return
    if not has_database:
        if conf.moorage.candidates == MEMORY:
            yield CheckResult.failure(
                _DATABASE,
                "[moorage] candidates = memory needs [placement_database] connection: "
                "the scheduler would not start.",
            )
        return
    pending = TimedCall(lambda: _check_database(conf))
    try:
        yield pending.result(_READING_S)
    except (ConfigurationError, PlacementError, TimeoutError) as e:
        yield CheckResult.failure(_DATABASE, files.redacted(e))


def _check_database(conf: cfg.ConfigOpts) -> CheckResult:
    engine = placement_engine(conf)
    try:
        follower = ProviderFollower(engine, timeout_s=_READING_S)
        follower.load()
    finally:
        engine.dispose()
    trees = follower.table.view().state.trees
    own = {str(uuid) for uuid in trees.uuids[trees.parents < 0] if uuid}
    theirs = _roots(PlacementClient(make_adapter(conf)))
    differing = len(own ^ theirs)
    if differing > _MAX_DIFFERING * len(own | theirs):
        return CheckResult.failure(
            _DATABASE,
            f"It has {len(own)} root providers, and Placement's API {len(theirs)}, of "
            f"which {len(own & theirs)} are the same: [placement_database] connection "
            "and [placement] name two different Placements.",
        )
    return CheckResult.success(
        _DATABASE, f"Readable; it has the API's {len(theirs)} root providers."
    )


def _roots(client: PlacementClient) -> set[str]:
    body: Any = client.read("/resource_providers")
    try:
        return {each["root_provider_uuid"] for each in body["resource_providers"]}
    except (KeyError, TypeError) as e:
        raise ConfigurationError(
            f"GET /resource_providers returned no providers: {type(e).__name__}: {e}."
        ) from e
