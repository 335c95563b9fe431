# SPDX-License-Identifier: Apache-2.0
"""The source nova_db and nova 34's own HostManager, on the same real databases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ..fixtures.nova_changes import Changes
from ..fixtures.nova_databases import Kind, NovaDatabases
from ..fixtures.nova_peer import Peer
from ..fixtures.nova_rows import Rows, fill
from .compared import Both

N_HOSTS = 170
#: Of the cells: small tables are read whole, large ones are not.
SHARES = (0.52, 0.41, 0.05, 0.02)
#: So that those of two cells are too many to be read whole.
INSTANCES_PER_HOST = 6
N_ROUNDS = {Kind.SQLITE: 15, Kind.MARIADB: 30, Kind.POSTGRESQL: 30}
MANY_HOSTS = 3_000

pytestmark = [
    pytest.mark.deep,
    pytest.mark.peer,
    pytest.mark.usefixtures("quiet"),
    pytest.mark.xdist_group("nova_db"),
]


def _kinds(*kinds: Kind) -> pytest.MarkDecorator:
    marks: dict[Kind, Any] = {
        kind: pytest.mark.database for kind in kinds if kind is not Kind.SQLITE
    }
    return pytest.mark.parametrize(
        "kind", [pytest.param(k, id=k.value, marks=marks.get(k, ())) for k in kinds]
    )


on_servers = _kinds(Kind.MARIADB, Kind.POSTGRESQL)
on_all = _kinds(*Kind)
on_one = _kinds(Kind.MARIADB)


@pytest.fixture
def databases(kind: Kind) -> Iterator[NovaDatabases]:
    with NovaDatabases(kind, is_whole=False) as made:
        yield made


@pytest.fixture
def rows(databases: NovaDatabases) -> Rows:
    return fill(
        databases,
        N_HOSTS,
        has_numa=0.15,
        instances_per_host=INSTANCES_PER_HOST,
        shares=SHARES,
    )


@on_one
def test_thousands_of_hosts_are_novas(peer: Peer, databases: NovaDatabases) -> None:
    fill(databases, MANY_HOSTS, instances_per_host=1)
    with Both(peer, databases) as both:
        assert both.differences() == []
        assert len(both.table) > 0.9 * MANY_HOSTS


@on_all
def test_table_follows_random_changes(
    peer: Peer, databases: NovaDatabases, rows: Rows
) -> None:
    seed = list(Kind).index(databases.kind)  # other changes on each kind
    changes = Changes(databases, rows, seed)
    with Both(peer, databases, clock=changes.clock) as both:
        for number in range(N_ROUNDS[databases.kind]):
            done = changes.round()
            both.poll()
            assert both.differences() == [], f"after round {number}: {done}"


@pytest.mark.usefixtures("rows")
@on_one
def test_instances_are_those_that_nova_reads_by_host(
    peer: Peer, databases: NovaDatabases
) -> None:
    with Both(peer, databases) as both:
        assert both.differences(instances="by host") == []


@pytest.mark.usefixtures("rows")
@on_one
def test_ratios_follow_the_options(peer: Peer, databases: NovaDatabases) -> None:
    ratios = {"cpu_allocation_ratio": 3.0, "initial_ram_allocation_ratio": 1.75}
    with Both(peer, databases, {"DEFAULT": ratios}) as both:
        assert both.differences() == []


@pytest.mark.usefixtures("rows")
@on_servers
def test_table_follows_a_nova_that_writes_ratios_back(
    peer: Peer, databases: NovaDatabases
) -> None:
    with Both(peer, databases) as both:
        both.novas(writes=True, options={"DEFAULT": {"cpu_allocation_ratio": 7.0}})
        both.poll()
        assert both.differences() == []
        assert 7.0 in both.table.batch().cpu_allocation_ratio
