# SPDX-License-Identifier: Apache-2.0
"""Our row among nova's services, and computes that are too old, as nova 34 has them."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from moorage.scheduler.conf import load
from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler.hosts import HostTable
from moorage.scheduler.sources.nova_db import NovaDBSource, ServiceRecord, from_conf

from ..fixtures.nova_databases import Kind, NovaDatabases
from ..fixtures.nova_peer import Peer
from ..fixtures.tcp_proxy import TcpProxy, Wrong
from ..fixtures.waiting import wait_until

HOST = "control"
N_PROCESSES = 6
N_CLOUDS = 20
WAIT_S = 30.0

pytestmark = [
    pytest.mark.deep,
    pytest.mark.peer,
    pytest.mark.xdist_group("nova_db"),
]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(kind, id=kind.value, marks=pytest.mark.database)
        for kind in (Kind.MARIADB, Kind.POSTGRESQL)
    ],
)
def databases(request: pytest.FixtureRequest) -> Iterator[NovaDatabases]:
    with NovaDatabases(request.param, n_cells=2, is_whole=False) as made:
        yield made


@pytest.fixture
def nova(peer: Peer, databases: NovaDatabases) -> Iterator[Peer]:
    """nova 34 over these databases, without services."""
    for url in (databases.main_url, *(cell.url for cell in databases.cells)):
        with databases.engine(url).begin() as connection:
            connection.execute(databases.tables["services"].delete())
    peer.ask(
        "open_databases", api_database=databases.api_url, database=databases.main_url
    )
    yield peer
    peer.ask("close_databases")


@pytest.fixture
def record(databases: NovaDatabases) -> ServiceRecord:
    return ServiceRecord(lambda: databases.engine(databases.main_url), HOST)


def ask(nova: Peer, host: str = HOST) -> dict[str, Any]:
    found: dict[str, Any] = nova.ask("service_record", host=host)
    return found


def conf_of(databases: NovaDatabases, main_url: str | None = None) -> cfg.ConfigOpts:
    conf = load([], config_files=[])
    conf.set_override("connection", databases.api_url, group="api_database")
    conf.set_override("connection", main_url or databases.main_url, group="database")
    return conf


# -- our row ---------------------------------------------------------------------------


def test_nova_lists_our_service_as_its_own(nova: Peer, record: ServiceRecord) -> None:
    for _ in range(3):
        assert record.report()
    nova.ask("start_service", host="novas", beats=3)
    ours, novas = ask(nova), ask(nova, "novas")
    assert ours["is_up"]
    assert ours["is_listed"]
    assert ours["rest"] == novas["rest"]
    assert str(uuid.UUID(ours["uuid"])) == ours["uuid"]


@pytest.mark.parametrize(("age_s", "is_up"), [(3600, False), (20, True)])
def test_nova_reports_a_service_without_heartbeats_as_down(
    nova: Peer, databases: NovaDatabases, age_s: float, is_up: bool
) -> None:
    engine = databases.engine(databases.main_url)
    ServiceRecord(lambda: engine, HOST, clock=lambda: time.time() - age_s).report()
    assert ask(nova)["is_up"] == is_up


def test_row_of_nova_scheduler_is_reused(nova: Peer, record: ServiceRecord) -> None:
    nova.ask("start_service", host=HOST, beats=2)
    nova.ask("disable_service", host=HOST)
    before = ask(nova)
    assert record.report()
    after = ask(nova)
    assert (after["id"], after["uuid"]) == (before["id"], before["uuid"])
    assert after["rest"] == before["rest"] | {"report_count": 3}
    assert after["rest"]["disabled"]


def test_nova_scheduler_reuses_our_row(nova: Peer, record: ServiceRecord) -> None:
    record.report()
    ours = ask(nova)
    nova.ask("start_service", host=HOST, beats=1)
    assert ask(nova)["rest"] == ours["rest"] | {"report_count": 2}
    assert ask(nova)["id"] == ours["id"]


def test_version_of_an_older_scheduler_is_put_right(
    nova: Peer, databases: NovaDatabases, record: ServiceRecord
) -> None:
    nova.ask("start_service", host=HOST, beats=0)
    version = ask(nova)["rest"]["version"]
    with databases.engine(databases.main_url).begin() as connection:
        connection.execute(databases.tables["services"].update().values(version=66))
    record.report()
    assert ask(nova)["rest"]["version"] == version


def test_deleted_row_is_made_again_by_the_next_start_only(
    nova: Peer, databases: NovaDatabases, record: ServiceRecord
) -> None:
    record.report()
    before = ask(nova)
    nova.ask("delete_service", host=HOST)
    assert not record.report()
    assert nova.ask("service_record", host=HOST) is None
    engine = databases.engine(databases.main_url)
    assert ServiceRecord(lambda: engine, HOST).report()
    after = ask(nova)
    assert after["id"] != before["id"]
    assert after["rest"] == before["rest"]


def test_all_processes_of_a_host_share_a_row(
    nova: Peer, databases: NovaDatabases
) -> None:
    engine = databases.engine(databases.main_url)
    records = [ServiceRecord(lambda: engine, HOST) for _ in range(N_PROCESSES)]
    with ThreadPoolExecutor(N_PROCESSES) as pool:
        assert all(pool.map(ServiceRecord.report, records))
    assert ask(nova)["rest"]["report_count"] == N_PROCESSES
    with engine.connect() as connection:
        count = sa.select(sa.func.count()).select_from(databases.tables["services"])
        assert connection.execute(count).scalar_one() == 1


@pytest.mark.parametrize("wrong", [Wrong.STOP, Wrong.HANG], ids=lambda w: w.name)
def test_heartbeats_go_on_when_the_database_is_back(
    nova: Peer, databases: NovaDatabases, wrong: Wrong, caplog: pytest.LogCaptureFixture
) -> None:
    url = sa.make_url(databases.main_url)
    assert url.port is not None
    caplog.set_level("INFO", "moorage.scheduler.sources.nova_db.service_record")
    with TcpProxy(url.port) as proxy:
        proxy.do(wrong)
        through = url.set(port=proxy.port).render_as_string(hide_password=False)
        conf = conf_of(databases, through)
        conf.set_override("register_service", True, group="moorage")
        conf.set_override("cell_timeout", 1.0, group="moorage")
        conf.set_override("refresh_interval", 0.0, group="moorage")
        conf.set_override("report_interval", 1)
        conf.set_override("host", HOST)
        source, table = from_conf(conf), HostTable()
        try:
            source.start(table)
            source.start_polling(table)
            wait_until(lambda: "cannot be written; retrying" in caplog.text)
            proxy.do(Wrong.NOTHING)
            wait_until(lambda: nova.ask("service_record", host=HOST) is not None)
            wait_until(lambda: ask(nova)["rest"]["report_count"] > 1)
        finally:
            source.stop()
    assert caplog.text.count("cannot be written") == 1
    assert caplog.text.count("is written again") == 1
    assert ask(nova)["is_up"]
    count = ask(nova)["rest"]["report_count"]
    time.sleep(1.2)
    assert ask(nova)["rest"]["report_count"] == count


# -- computes that are too old ---------------------------------------------------------


def _service(rng: random.Random, number: int) -> dict[str, Any]:
    """A row of services, mostly of a nova-compute that is new enough."""
    versions, weights = [None, 0, 66, 71, 72, 74, 90], [2, 1, 6, 6, 20, 20, 5]
    return {
        "uuid": str(uuid.uuid4()),
        "host": f"host{number}",
        "binary": rng.choice(["nova-compute"] * 5 + ["nova-conductor"]),
        "topic": "compute",
        "report_count": 1,
        "disabled": rng.random() < 0.3,
        "forced_down": rng.random() < 0.2,
        "version": rng.choices(versions, weights)[0],
        "deleted": number + 1 if rng.random() < 0.2 else 0,
    }


def test_start_is_refused_for_old_computes_where_nova_refuses_it(
    nova: Peer, databases: NovaDatabases
) -> None:
    rng, outcomes = random.Random(7), []
    for _ in range(N_CLOUDS):
        for cell in databases.cells:
            with databases.engine(cell.url).begin() as connection:
                connection.execute(databases.tables["services"].delete())
            rows = [_service(rng, n) for n in range(rng.randrange(6))]
            databases.insert(cell.url, "services", rows)
        source = NovaDBSource(databases.api, databases.engine, conf=conf_of(databases))
        source.start(HostTable())
        try:
            source.check()
        except ConfigurationError:
            outcomes.append(True)
        else:
            outcomes.append(False)
        source.stop()
        assert outcomes[-1] == (nova.ask("old_computes") is not None)
    assert 0.2 < sum(outcomes) / N_CLOUDS < 0.8
