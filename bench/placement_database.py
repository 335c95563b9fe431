# SPDX-License-Identifier: Apache-2.0
"""Following Placement's database on MariaDB: a start, and polls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from rich.console import Console

from moorage.scheduler.conf import load
from moorage.scheduler.placement.database import ProviderFollower, placement_engine
from tests.fixtures.database_servers import Database, DatabaseServer
from tests.fixtures.hand_time import HandTime
from tests.fixtures.placement_servers import PlacementServer

from .costs import Costs
from .tables import make_table
from .timing import Percentiles, Plan, format_number, format_percentiles, repeated

_N_TRAITS: Final = 50
_N_CHANGED: Final = 100
#: Seconds between two polls.
_INTERVAL_S: Final = 1.0

_FILL: Final = (
    "INSERT INTO traits (id, name) SELECT 100000 + seq, CONCAT('CUSTOM_BENCH_', seq) "
    "FROM seq_0_to_50",
    "INSERT INTO placement_aggregates (id, uuid) SELECT seq, "
    "CONCAT(LPAD(HEX(seq), 8, '0'), '-0000-4000-8000-00000000000a') "
    "FROM seq_1_to_{n_aggregates}",
    "INSERT INTO resource_providers (id, uuid, name, generation, root_provider_id, "
    "created_at, updated_at) SELECT seq, "
    "CONCAT(LPAD(HEX(seq), 8, '0'), '-0000-4000-8000-000000000000'), "
    "CONCAT('host', seq), 1, seq, '2024-01-01', '2024-01-02' FROM seq_1_to_{n}",
    "INSERT INTO inventories (resource_provider_id, resource_class_id, total, "
    "reserved, min_unit, max_unit, step_size, allocation_ratio) SELECT p.seq, c.seq, "
    "IF(c.seq = 1, 262144 + p.seq % 1000, 2000), 0, 1, 262144, 1, IF(c.seq, 1.5, 4) "
    "FROM seq_1_to_{n} p JOIN seq_0_to_2 c",
    "INSERT INTO allocations (resource_provider_id, resource_class_id, consumer_id, "
    "used) SELECT p.seq, c.seq, CONCAT(LPAD(HEX(p.seq * 16 + i.seq), 8, '0'), "
    "'-0000-4000-8000-000000000001'), IF(c.seq = 1, 2048, 2 + i.seq) "
    "FROM seq_1_to_{n} p JOIN seq_1_to_10 i JOIN seq_0_to_2 c",
    # 50 of 51 traits.
    "INSERT INTO resource_provider_traits (resource_provider_id, trait_id) SELECT "
    "p.seq, 100000 + t.seq FROM seq_1_to_{n} p JOIN seq_0_to_50 t "
    "WHERE t.seq <> p.seq % 51",
    "INSERT INTO resource_provider_aggregates (resource_provider_id, aggregate_id) "
    "SELECT seq, 1 + seq % {n_aggregates} FROM seq_1_to_{n}",
    "ANALYZE TABLE allocations, inventories, resource_providers",
)
_CLAIMS: Final = (
    "INSERT INTO allocations (resource_provider_id, resource_class_id, consumer_id, "
    "used) SELECT seq, 0, '{consumer}', 1 FROM seq_1_to_{n}",
    "UPDATE resource_providers SET generation = generation + 1, "
    "updated_at = UTC_TIMESTAMP() WHERE id <= {n}",
)


@dataclass(frozen=True, slots=True)
class FollowingRow:
    """One step: milliseconds of wall time, and of CPU here and in MariaDB."""

    n_providers: int
    what: str
    wall: Percentiles
    ours: Percentiles
    theirs: Percentiles


def following_rows(sizes: tuple[int, ...], plan: Plan) -> Iterator[FollowingRow]:
    """Yield the costs for clouds of these sizes.

    Raises
    ------
    LookupError
        MariaDB is not installed.
    """
    for n_providers in sizes:
        with _filled(n_providers) as (url, costs):
            yield from _rows(n_providers, url, costs, plan)


@contextmanager
def _filled(n_providers: int) -> Iterator[tuple[str, Costs]]:
    n_aggregates = max(1, n_providers // 100)
    with (
        DatabaseServer(Database.MARIADB) as server,
        PlacementServer(server.url) as placement,
    ):
        for statement in _FILL:
            text = statement.format(n=n_providers, n_aggregates=n_aggregates)
            _execute(placement.database_url, text)
        yield placement.database_url, Costs(server.pid)


def _execute(url: str, statement: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text(statement))
    engine.dispose()


def _rows(
    n_providers: int, url: str, costs: Costs, plan: Plan
) -> Iterator[FollowingRow]:
    conf = load([], config_files=[])
    conf.set_override("connection", url, group="placement_database")
    engine, elapsed = placement_engine(conf), HandTime()

    def row(what: str, runs: list[tuple[float, ...]]) -> FollowingRow:
        columns = (Percentiles.of(column) for column in zip(*runs, strict=True))
        return FollowingRow(n_providers, what, *columns)

    def start() -> tuple[float, ...]:
        return costs.of(ProviderFollower(engine, waiter=elapsed).load)

    few = Plan(runs=min(plan.runs, 3), budget_s=plan.budget_s, warm_ups=1)
    yield row("start", repeated(few, start))
    follower = ProviderFollower(engine, waiter=elapsed)
    follower.load()
    polls = Plan(runs=max(plan.runs, 5), budget_s=plan.budget_s)
    yield row("nothing", repeated(polls, lambda: costs.of(follower.poll)))

    def next_range() -> tuple[float, ...]:
        elapsed.pass_by(_INTERVAL_S)
        return costs.of(follower.poll)

    yield row("nothing, and the next range", repeated(polls, next_range))

    n_changed = min(_N_CHANGED, n_providers // 2)
    consumers = iter(range(1 << 30))

    def changed() -> tuple[float, ...]:
        consumer = f"{next(consumers):08x}-0000-4000-8000-000000000002"
        for statement in _CLAIMS:
            _execute(url, statement.format(n=n_changed, consumer=consumer))
        elapsed.pass_by(_INTERVAL_S)
        return costs.of(follower.poll)

    yield row(f"{n_changed} providers, and the next range", repeated(polls, changed))
    some = [f"{i:08X}-0000-4000-8000-000000000000" for i in range(1, 11)]
    yield row(
        "10 providers by evidence",
        repeated(polls, lambda: costs.of(lambda: follower.refresh(some))),
    )
    engine.dispose()


def print_following(console: Console, sizes: tuple[int, ...], plan: Plan) -> None:
    """Print what a start and polls cost."""
    table = make_table(
        "Following Placement's database on MariaDB, ms",
        "providers|changed",
        "wall|CPU here|CPU of MariaDB|CPU of both",
        f"Providers with {_N_TRAITS} traits, 3 inventories and 10 instances. "
        "start: everything is read. The others are polls, by what has changed.",
    )
    for row in following_rows(sizes, plan):
        table.add_row(
            f"{row.n_providers:,}", row.what, format_percentiles(row.wall),
            format_percentiles(row.ours), format_percentiles(row.theirs),
            format_number(row.ours.median + row.theirs.median),
        )  # fmt: skip
    console.print(table)
