# SPDX-License-Identifier: Apache-2.0
"""Requests that all differ, with Placement's providers in memory, and nova's calls.

Placement is on MariaDB, over HTTP, and the scheduler follows its database. Claims are
included on both sides; nova's own work between its calls is not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from rich.console import Console

from moorage.scheduler.conf import load
from moorage.scheduler.hosts import HostAggregate
from moorage.scheduler.placement.memory import ProviderCandidatesSource
from moorage.scheduler.service import Scheduler, build
from tests.fixtures.placement_servers import PlacementServer

from .clouds import Cloud, CloudSource, stable_uuid
from .decisions import daemon_gc_thresholds
from .filtering import filled_placement, providers_of, used_cloud
from .real_placement import CountedAdapter
from .requests import CONTEXT, BenchRequest, of_flavor
from .stream import LIMIT, Rate, nova_calls
from .tables import make_table
from .timing import Percentiles, elapsed_ms, format_number, format_percentiles

_HOSTS_PER_TENANT: Final = 156
_N_FLAVORS: Final = 16
#: Requests for which nova's calls are measured.
_N_NOVA: Final = 16
#: Milliseconds that a decision is to take without its claim, on two idle cores.
_TARGET: Final = "≤ 3 / ≤ 6"


@dataclass(frozen=True, slots=True)
class MemoryStreamRow:
    """One stream.

    Attributes
    ----------
    decisions : Rate
        Whole calls, with claims.
    without_claim : sequence of float
        Milliseconds of the decisions without the PUT or POST.
    n_matching : float
        Mean number of hosts with candidates.
    """

    n_hosts: int
    requests: str
    decisions: Rate
    without_claim: Sequence[float]
    n_matching: float
    nova: Rate


def memory_stream_rows(
    n_hosts: int, n_requests: int, say: Callable[[str], None]
) -> Iterator[MemoryStreamRow]:
    """Yield the streams: for the whole cloud, and for tenants with hosts of their own.

    Raises
    ------
    LookupError
        MariaDB is not installed.
    """
    n_tenants = max(1, n_hosts // _HOSTS_PER_TENANT)
    cloud = _with_tenants(used_cloud(n_hosts), n_tenants)
    say(f"{n_hosts:,} hosts: filling Placement's database")
    aggregates = {
        host: frozenset([each.uuid])
        for each in cloud.aggregates[-n_tenants:]
        for host in each.hosts
    }
    providers = [
        replace(provider, aggregates=aggregates[record.host])
        for provider, record in zip(providers_of(cloud), cloud.records, strict=True)
    ]
    streams = {
        "all hosts": [_request(cloud, i, None) for i in range(n_requests)],
        f"{n_tenants} tenants, {_N_FLAVORS} flavors": [
            _request(cloud, i % _N_FLAVORS, i // _N_FLAVORS)
            for i in range(_N_FLAVORS * n_tenants)
        ],
    }
    with filled_placement(providers) as (server, _costs):
        for name, requests in streams.items():
            say(f"{n_hosts:,} hosts: {name}")
            is_isolated = name != "all hosts"
            yield _measured(cloud, server, name, requests, is_isolated=is_isolated)


def _with_tenants(cloud: Cloud, n_tenants: int) -> Cloud:
    names = [record.host for record in cloud.records]
    isolated = [
        HostAggregate(
            id=1_000 + tenant,
            uuid=stable_uuid(f"tenant{tenant}"),
            name=f"tenant{tenant}",
            hosts=frozenset(names[tenant::n_tenants]),
            metadata={"filter_tenant_id": _tenant(tenant)},
        )
        for tenant in range(n_tenants)
    ]
    return replace(cloud, aggregates=[*cloud.aggregates, *isolated])


def _tenant(number: int) -> str:
    return stable_uuid(f"project{number}").replace("-", "")


def _request(cloud: Cloud, flavor: int, tenant: int | None) -> BenchRequest:
    """Return a request; all flavors differ."""
    request = of_flavor(cloud, (1 + flavor % 4, 512 + 16 * flavor, 1 + flavor % 8))
    if tenant is not None:
        request.primitive["nova_object.data"]["project_id"] = _tenant(tenant)
    return request


def _measured(
    cloud: Cloud,
    server: PlacementServer,
    name: str,
    requests: Sequence[BenchRequest],
    *,
    is_isolated: bool,
) -> MemoryStreamRow:
    adapter = CountedAdapter(server.adapter)
    scheduler = _scheduler(cloud, server, adapter, is_isolated=is_isolated)
    times, without_claim, queries, n_matching = [], [], [], []
    try:
        with daemon_gc_thresholds():
            _decide(scheduler, _request(cloud, 0, 0 if is_isolated else None))
            n_gets = adapter.n_gets()
            for request in requests:
                times.append(elapsed_ms(functools.partial(_decide, scheduler, request)))
                record = scheduler.decisions.newest(1)[0]
                without_claim.append(
                    record.times_ms["total"] - record.times_ms["claim"]
                )
                queries.append(record.queries[0])
                n_matching.append(record.n_candidates or 0)
            n_gets = adapter.n_gets() - n_gets
    finally:
        scheduler.stop()
    step = max(1, len(queries) // _N_NOVA)
    nova = nova_calls(adapter, queries[::step][:_N_NOVA])
    return MemoryStreamRow(
        len(cloud), name, Rate(tuple(times), n_gets), without_claim,
        float(np.mean(n_matching)), nova,
    )  # fmt: skip


def _scheduler(
    cloud: Cloud, server: PlacementServer, adapter: CountedAdapter, *, is_isolated: bool
) -> Scheduler:
    conf = load(config_files=[])
    conf.set_override("max_placement_results", LIMIT, group="scheduler")
    conf.set_override(
        "limit_tenants_to_placement_aggregate", is_isolated, group="scheduler"
    )
    conf.set_override("random_seed", 1, group="moorage")
    url = server.database_url
    conf.set_override("connection", url, group="placement_database")
    scheduler = build(conf, placement=adapter, source=CloudSource(conf, cloud))
    assert isinstance(scheduler.candidates, ProviderCandidatesSource)
    scheduler.start()
    return scheduler


def _decide(scheduler: Scheduler, request: BenchRequest) -> Any:  # noqa: ANN401 - not read
    return scheduler.select_destinations(
        CONTEXT,
        spec_obj=request.spec(),
        instance_uuids=request.instance_uuids,
        return_objects=True,
        return_alternates=True,
    )


def print_memory_stream(console: Console, rows: Sequence[MemoryStreamRow]) -> None:
    """Print the streams, compared with nova's calls."""
    table = make_table(
        "Requests that all differ, providers in memory, Placement on MariaDB, ms",
        "hosts|requests",
        "n|candidates|decision|target|less its claim|worst|GETs a request|nova's calls"
        "|runs|ratio",
        "One after the other, one instance each; decoding the request and the "
        "claim are included, and polls of Placement's database run. less its claim: "
        "without PUT and decoding. nova: its calls to Placement for each request (GET "
        "/allocation_candidates with limit 1,000, GET of the consumer, PUT), without "
        "its own work.",
    )
    for row in rows:
        own, nova = row.decisions, row.nova
        table.add_row(
            f"{row.n_hosts:,}", row.requests, f"{own.n_requests:,}",
            f"{row.n_matching:,.0f}",
            format_percentiles(Percentiles.of(own.latencies_ms)),
            _TARGET, format_percentiles(Percentiles.of(row.without_claim)),
            format_number(max(row.without_claim)), f"{own.gets_per_request:.3g}",
            format_percentiles(Percentiles.of(nova.latencies_ms)),
            str(nova.n_requests), f"{own.per_s / nova.per_s:.1f} x",
        )  # fmt: skip
    console.print(table)
