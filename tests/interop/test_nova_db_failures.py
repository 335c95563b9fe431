# SPDX-License-Identifier: Apache-2.0
"""Behaviour of the source nova_db while one of nova's real databases is away."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator

import pytest

from moorage.scheduler.errors import ConfigurationError

from ..fixtures.nova_databases import Kind, NovaDatabases
from ..fixtures.nova_rows import THEN, fill
from ..fixtures.tcp_proxy import Wrong
from .proxied_source import CELL_GRACE_S, CELL_TIMEOUT_S, ProxiedSource

N_HOSTS = 60

pytestmark = [
    pytest.mark.deep,
    pytest.mark.peer,
    pytest.mark.database,
    pytest.mark.usefixtures("quiet"),
    pytest.mark.xdist_group("nova_db"),
]


@pytest.fixture(
    scope="module", params=[Kind.MARIADB, Kind.POSTGRESQL], ids=lambda kind: kind.value
)
def databases(request: pytest.FixtureRequest) -> Iterator[NovaDatabases]:
    with NovaDatabases(request.param, n_cells=2, is_whole=False) as made:
        fill(made, N_HOSTS)
        yield made


wrongs = pytest.mark.parametrize(
    "wrong", [w for w in Wrong if w is not Wrong.NOTHING], ids=lambda w: w.name.lower()
)


@wrongs
def test_hosts_of_a_cell_that_is_away_stay_for_a_while(
    databases: NovaDatabases, wrong: Wrong
) -> None:
    with ProxiedSource(databases) as proxied:
        proxied.source.start(proxied.table)
        hosts, others = proxied.hosts(), proxied.others()
        assert hosts
        proxied.proxy.do(wrong)
        proxied.until_it_is_noted()
        assert (proxied.hosts(), proxied.others()) == (hosts, others)
        proxied.poll(after_s=2 * CELL_GRACE_S)
        assert (proxied.hosts(), proxied.others()) == (set(), others)
        proxied.proxy.do(Wrong.NOTHING)
        proxied.until(lambda: proxied.hosts() == hosts)
        assert proxied.others() == others
        proxied.until(lambda: not proxied.source.notes())


@wrongs
def test_other_cells_are_followed_while_one_is_away(
    databases: NovaDatabases, wrong: Wrong
) -> None:
    other, services = databases.cells[1], databases.tables["services"]
    with ProxiedSource(databases) as proxied:
        proxied.source.start(proxied.table)
        proxied.proxy.do(wrong)
        proxied.until_it_is_noted()
        beat = THEN + datetime.timedelta(minutes=1 + list(Wrong).index(wrong))
        with databases.engine(other.url).begin() as connected:
            values = {"last_seen_up": beat, "updated_at": beat}
            connected.execute(services.update().values(values))
        proxied.poll(after_s=1.0)
        batch = proxied.table.batch(proxied.table.nodes_of(None, None, other.uuid))
        seen = beat.replace(tzinfo=datetime.UTC).timestamp()
        assert set(batch.last_seen_up) == {seen}


@wrongs
def test_cell_that_is_away_at_the_start_comes_later(
    databases: NovaDatabases, wrong: Wrong
) -> None:
    with ProxiedSource(databases) as proxied:
        proxied.proxy.do(wrong)
        proxied.source.start(proxied.table)
        assert not proxied.hosts()
        assert proxied.others()
        proxied.proxy.do(Wrong.NOTHING)
        proxied.until(lambda: bool(proxied.hosts()))


def test_polls_do_not_wait_for_a_cell_known_to_hang(
    databases: NovaDatabases,
) -> None:
    with ProxiedSource(databases) as proxied:
        proxied.source.start(proxied.table)
        proxied.proxy.do(Wrong.HANG)
        proxied.until_it_is_noted()
        started = time.monotonic()
        for _ in range(100):
            proxied.poll(after_s=0.01)
        # If only one poll in five waited for the cell, this would fail.
        assert time.monotonic() - started < 20 * CELL_TIMEOUT_S


@wrongs
def test_without_the_api_database_all_stays_and_cells_are_followed(
    databases: NovaDatabases, wrong: Wrong
) -> None:
    services = databases.tables["services"]
    with ProxiedSource(databases, is_api=True) as proxied:
        proxied.source.start(proxied.table)
        n_hosts, aggregates = len(proxied.table), set(proxied.table.aggregates)
        proxied.proxy.do(wrong)
        proxied.until_it_is_noted()
        beat = THEN + datetime.timedelta(hours=1 + list(Wrong).index(wrong))
        for cell in databases.cells:
            with databases.engine(cell.url).begin() as connected:
                values = {"last_seen_up": beat, "updated_at": beat}
                connected.execute(services.update().values(values))
        proxied.poll(after_s=2 * CELL_GRACE_S)
        assert (len(proxied.table), set(proxied.table.aggregates)) == (
            n_hosts,
            aggregates,
        )
        seen = beat.replace(tzinfo=datetime.UTC).timestamp()
        assert set(proxied.table.batch().last_seen_up) == {seen}
        proxied.proxy.do(Wrong.NOTHING)
        proxied.until(lambda: not proxied.source.notes())


@wrongs
def test_start_reports_that_the_api_database_is_away(
    databases: NovaDatabases, wrong: Wrong
) -> None:
    with ProxiedSource(databases, is_api=True) as proxied:
        proxied.proxy.do(wrong)
        with pytest.raises(ConfigurationError, match=r"\[api_database\] connection"):
            proxied.source.start(proxied.table)
