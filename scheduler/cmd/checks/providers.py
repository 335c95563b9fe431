# SPDX-License-Identifier: Apache-2.0
"""Check that Placement's providers match the hosts and can be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from os_traits import MISC_SHARES_VIA_AGGREGATE
from oslo_config import cfg

from ...clock import now_s
from ...conf.keystoneauth import has_endpoint
from ...conf.moorage import MEMORY, PLACEMENT
from ...entry_points import load_plugin
from ...errors import ConfigurationError, PlacementError
from ...hosts import HostTable
from ...placement.adapter import make_adapter
from ...placement.client import PlacementClient
from ...placement.database import ProviderFollower, placement_engine
from ...sources.report_columns import load_columns
from .files import FileOptions
from .result import CheckResult, TimedCall

_HOSTS: Final = "Hosts and providers"
#: Names that a result lists.
_SHOWN: Final = 10
_DATABASE: Final = "Placement's database"
#: Time limit in seconds: reading 10,000 providers with 50 traits takes 2 s.
_READING_S: Final = 60.0
#: The share of root providers that may differ: some are created while the check runs.
_MAX_DIFFERING: Final = 0.1


def provider_findings(
    conf: cfg.ConfigOpts, files: FileOptions
) -> Iterator[CheckResult]:
    """Check that Placement's database is readable, and belongs to [placement]."""
    has_database = bool(conf.placement_database.connection)
    if conf.moorage.candidates == PLACEMENT or not has_endpoint(conf, "placement"):
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


def host_findings(conf: cfg.ConfigOpts, files: FileOptions) -> Iterator[CheckResult]:
    """Count the hosts without a resource provider, and the providers without a host.

    The hosts are read as the scheduler reads them at its start.
    """
    pending = TimedCall(lambda: _compare_hosts(conf))
    try:
        yield pending.result(_READING_S)
    except (ConfigurationError, PlacementError, TimeoutError) as e:
        yield CheckResult.failure(_HOSTS, files.redacted(e))


def _compare_hosts(conf: cfg.ConfigOpts) -> CheckResult:
    source = load_plugin("moorage.sources", conf.moorage.source)(conf)
    source.adopt(conf)
    table = HostTable(now_s, load_columns())
    try:
        source.start(table)
        troubles = " ".join(filter(None, source.troubles()))
    finally:
        source.stop()
    if troubles:
        return CheckResult.warning(_HOSTS, f"They are not compared: {troubles}")
    hosts = table.batch()
    names = dict(zip(hosts.uuid.tolist(), hosts.host.tolist(), strict=True))
    client = PlacementClient(make_adapter(conf))
    sharing = _roots(client, f"?required={MISC_SHARES_VIA_AGGREGATE}")
    roots = _roots(client)
    without_provider = sorted(name for uuid, name in names.items() if uuid not in roots)
    without_host = sorted(
        name
        for uuid, name in roots.items()
        if uuid not in names and uuid not in sharing
    )
    problems = []
    if without_provider:
        problems.append(
            f"{len(without_provider)} of {len(names)} hosts have no resource provider, "
            f"and get no instance: {_listed(without_provider)}"
        )
    if without_host:
        problems.append(
            f"{len(without_host)} root providers have no host, and their candidates "
            f"are rejected: {_listed(without_host)}"
        )
    if problems:
        return CheckResult.warning(_HOSTS, f"{'; '.join(problems)}.")
    return CheckResult.success(_HOSTS, f"{len(names)} hosts have a resource provider.")


def _listed(names: Sequence[str]) -> str:
    suffix = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + suffix


def _check_database(conf: cfg.ConfigOpts) -> CheckResult:
    engine = placement_engine(conf)
    try:
        follower = ProviderFollower(engine, timeout_s=_READING_S)
        follower.load()
    finally:
        engine.dispose()
    trees = follower.table.view().state.trees
    of_database = {str(uuid) for uuid in trees.uuids[trees.parents < 0] if uuid}
    of_api = _roots(PlacementClient(make_adapter(conf))).keys()
    differing = len(of_database ^ of_api)
    if differing > _MAX_DIFFERING * len(of_database | of_api):
        return CheckResult.failure(
            _DATABASE,
            f"It has {len(of_database)} root providers, and Placement's API "
            f"{len(of_api)}, of which {len(of_database & of_api)} are the same: "
            "[placement_database] connection and [placement] name two different "
            "Placements.",
        )
    return CheckResult.success(
        _DATABASE, f"Readable; it has the API's {len(of_api)} root providers."
    )


def _roots(client: PlacementClient, query: str = "") -> dict[str, str]:
    """Return the names of root providers by UUID."""
    body: Any = client.read(f"/resource_providers{query}")
    try:
        return {
            provider["uuid"]: provider["name"]
            for provider in body["resource_providers"]
            if provider["root_provider_uuid"] == provider["uuid"]
        }
    except (KeyError, TypeError) as e:
        raise ConfigurationError(
            f"GET /resource_providers returned no providers: {type(e).__name__}: {e}."
        ) from e
