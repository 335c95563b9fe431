# SPDX-License-Identifier: Apache-2.0
"""Following Placement on MariaDB and PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from moorage.scheduler.placement.database import ProviderFollower
from moorage.scheduler.placement.providers import ProviderQuery

from ....fixtures.database_servers import (
    Database,
    DatabaseServer,
    database_server,
)
from ....fixtures.placement_servers import PlacementServer
from ....fixtures.tcp_proxy import TcpProxy, Wrong
from ....fixtures.waiting import wait_until
from .followed import FollowedPlacement, engine_of, records

pytestmark = pytest.mark.database


@pytest.fixture(scope="module", params=Database, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Database:
    return request.param


@pytest.fixture(scope="module")
def placement(kind: Database) -> Iterator[FollowedPlacement]:
    with FollowedPlacement(kind) as placement:
        yield placement


@pytest.fixture
def host(placement: FollowedPlacement) -> str:
    """A host with 8 VCPU."""
    made = str(uuid.uuid4())
    placement.create(made, made)
    placement.set_inventories(made, VCPU=8)
    return made


@pytest.fixture
def guest(placement: FollowedPlacement, host: str) -> str:
    """An instance with 3 of them."""
    made = str(uuid.uuid4())
    placement.claim(made, host, VCPU=3)
    return made


@pytest.mark.deep
def test_privilege_to_select_suffices(
    placement: FollowedPlacement, kind: Database, host: str, guest: str
) -> None:
    user = f"reader_{uuid.uuid4().hex[:8]}"
    url = sa.make_url(placement.url)
    if kind is Database.MARIADB:
        account = f"'{user}'@'%'"
        begin = [
            f"CREATE USER {account} IDENTIFIED BY 'secret'",
            f"GRANT SELECT ON {url.database}.* TO {account}",
        ]
        end = [f"DROP USER {account}"]
    else:
        begin = [
            f"CREATE ROLE {user} LOGIN PASSWORD 'secret'",
            f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {user}",
        ]
        end = [f"DROP OWNED BY {user}", f"DROP ROLE {user}"]
    _execute_all(placement.url, begin)
    try:
        reader = url.set(username=user, password="secret")
        engine = engine_of(reader.render_as_string(hide_password=False))
        with pytest.raises(Exception, match="denied"), engine.begin() as connection:
            connection.execute(sa.text("DELETE FROM allocations"))
        follower = ProviderFollower(engine, waiter=placement.time)
        follower.load()
        placement.free(guest)
        placement.time.pass_by(60)
        assert follower.poll()
        assert records(follower)[host].used == {}
        engine.dispose()
    finally:
        _execute_all(placement.url, end)


def _execute_all(url: str, statements: list[str]) -> None:
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    engine.dispose()


def test_ratio_decides_as_in_placements_own_sql(
    placement: FollowedPlacement, host: str
) -> None:
    """MariaDB computes with 0.9 as a FLOAT, which is a little less."""
    body = {
        "resource_provider_generation": placement.generation(host),
        "inventories": {
            "VCPU": {"total": 10, "allocation_ratio": 0.9},
            "MEMORY_MB": {"total": 10, "allocation_ratio": 1.1},
            "DISK_GB": {"total": 30, "allocation_ratio": 2.3},
        },
    }
    placement.must("PUT", f"/resource_providers/{host}/inventories", body)
    view = placement.follower().table.view()
    for name, amounts in {
        "VCPU": (5, 6, 7),
        "MEMORY_MB": (10, 11, 12),
        "DISK_GB": (68, 69, 70),
    }.items():
        for amount in amounts:
            resources = f"{name}:{amount}"
            theirs = placement.get(
                f"/allocation_candidates?resources={resources}&in_tree={host}"
            )
            query = ProviderQuery.parse((("resources", resources), ("in_tree", host)))
            ours = view.match(query).answer()
            assert ours["allocation_requests"] == theirs["allocation_requests"]


@pytest.mark.deep
def test_follower_catches_up_once_the_database_answers_again(
    placement: FollowedPlacement, host: str, guest: str
) -> None:
    url = sa.make_url(placement.url)
    assert url.port is not None
    with TcpProxy(url.port) as proxy:
        engine = engine_of(
            url.set(port=proxy.port).render_as_string(hide_password=False)
        )
        time = placement.time
        follower = ProviderFollower(engine, waiter=time, clock=time)
        follower.load()
        for wrong in (Wrong.CUT, Wrong.STOP):
            proxy.do(wrong)
            placement.free(guest)
            assert not follower.poll()
            time.pass_by(100)
            assert follower.age_s() == 100
            proxy.do(Wrong.NOTHING)
            assert follower.poll()
            assert records(follower)[host].used == {}
            placement.claim(guest, host, VCPU=3)
            assert follower.poll()
            assert records(follower)[host].used == {"VCPU": 3}
        engine.dispose()


@pytest.mark.deep
@pytest.mark.parametrize("own", Database, ids=lambda kind: kind.name)
def test_restart_of_the_database_is_survived(own: Database) -> None:
    host = str(uuid.uuid4())
    database_server(own)  # skips the test where there is none
    with DatabaseServer(own) as server, PlacementServer(server.url) as placement:
        engine = engine_of(placement.database_url)
        follower = ProviderFollower(engine)
        follower.load()
        follower.start()
        server.kill()
        assert not follower.poll()
        server.start()
        body = {"uuid": host, "name": "host"}
        wait_until(lambda: _post(placement, body) in (200, 409))
        wait_until(lambda: host in records(follower))
        follower.stop()
        engine.dispose()


def _post(placement: PlacementServer, body: dict[str, str]) -> int:
    headers = {"OpenStack-API-Version": "placement 1.39"}
    path = "/resource_providers"
    answer = placement.adapter.post(path, json=body, headers=headers, raise_exc=False)
    return int(answer.status_code)
