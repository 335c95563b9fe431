# SPDX-License-Identifier: Apache-2.0
"""A table of resource providers that follows Placement's database."""

from __future__ import annotations

import logging
import math
import threading
import uuid
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from moorage.scheduler.errors import ConfigurationError, DatabaseUnavailable
from moorage.scheduler.placement.database import ProviderFollower
from moorage.scheduler.placement.providers import ProviderQuery

from ....fixtures.hand_time import HandThreads
from .followed import ROUND_S, FollowedPlacement, engine_of, records

HOST, CHILD, OTHER = (str(uuid.UUID(int=i, version=4)) for i in range(3))
GUEST = str(uuid.UUID(int=9, version=4))


@pytest.fixture
def placement() -> Iterator[FollowedPlacement]:
    """Two hosts with 8 VCPU, one of which has a child."""
    with FollowedPlacement() as placement:
        placement.create(HOST, "host")
        placement.create(OTHER, "other")
        placement.create(CHILD, "child", HOST)
        placement.set_inventories(HOST, VCPU=8, MEMORY_MB=64)
        placement.set_inventories(OTHER, VCPU=8)
        placement.set_inventories(CHILD, SRIOV_NET_VF=4)
        yield placement


def used(follower: ProviderFollower, provider: str = HOST) -> dict[str, int]:
    return dict(records(follower)[provider].used)


def with_vcpus(follower: ProviderFollower, amount: int) -> set[str]:
    query = ProviderQuery.parse((("resources", f"VCPU:{amount}"),))
    return set(follower.table.view().match(query).uuids)


# -- what a poll sees ------------------------------------------------------------------


def test_claim_is_seen_by_a_poll(placement: FollowedPlacement) -> None:
    follower = placement.follower()
    revision = follower.revision
    placement.claim(GUEST, HOST, VCPU=3, MEMORY_MB=5)
    assert follower.poll()
    assert used(follower) == {"VCPU": 3, "MEMORY_MB": 5}
    assert follower.revision > revision
    assert with_vcpus(follower, 6) == {OTHER}


def test_poll_that_finds_nothing_changes_nothing(placement: FollowedPlacement) -> None:
    follower = placement.follower()
    revision, state = follower.revision, follower.table.view().state
    placement.time.pass_by(ROUND_S)
    assert follower.poll()
    assert follower.refresh([HOST])
    assert follower.revision == revision
    assert follower.table.view().state is state


def test_change_of_usage_keeps_the_trees(placement: FollowedPlacement) -> None:
    follower = placement.follower()
    trees = follower.table.view().state.trees
    placement.claim(GUEST, HOST, VCPU=3)
    placement.set_inventories(OTHER, VCPU=16)
    follower.poll()
    assert records(follower)[OTHER].inventories["VCPU"].total == 16
    assert follower.table.view().state.trees is trees


def test_reparented_provider_is_moved(placement: FollowedPlacement) -> None:
    follower = placement.follower()
    body = {"name": "child", "parent_provider_uuid": OTHER}
    placement.must("PUT", f"/resource_providers/{CHILD}", body)
    follower.poll()
    assert records(follower)[CHILD].parent_uuid == OTHER


def test_deleted_tree_is_removed(placement: FollowedPlacement) -> None:
    follower = placement.follower()
    placement.must("DELETE", f"/resource_providers/{CHILD}")
    placement.must("DELETE", f"/resource_providers/{HOST}")
    follower.poll()
    assert records(follower).keys() == {OTHER}


def test_recreated_provider_replaces_the_former(placement: FollowedPlacement) -> None:
    follower = placement.follower()
    placement.must("DELETE", f"/resource_providers/{CHILD}")
    placement.create(CHILD, "child again")
    follower.poll()
    assert records(follower)[CHILD].parent_uuid is None
    assert records(follower)[CHILD].inventories == {}


def test_only_names_of_the_database_are_known(placement: FollowedPlacement) -> None:
    placement.must("PUT", "/traits/CUSTOM_GONE")
    placement.must("PUT", "/resource_classes/CUSTOM_GONE")
    follower = placement.follower()
    placement.must("DELETE", "/traits/CUSTOM_GONE")
    placement.must("PUT", "/traits/CUSTOM_NEW")
    placement.must("DELETE", "/resource_classes/CUSTOM_GONE")
    revision = follower.revision
    follower.poll()
    view = follower.table.view()
    assert {"CUSTOM_NEW", "COMPUTE_NODE"} <= view.known_traits
    assert "CUSTOM_GONE" not in view.known_traits | view.known_classes
    assert follower.revision > revision


# -- what it sees later, or by evidence ------------------------------------------------


def test_freed_host_is_seen_within_a_round(placement: FollowedPlacement) -> None:
    threads = HandThreads(placement.time)
    for i in range(30):
        name = str(uuid.UUID(int=100 + i, version=4))
        placement.create(name, name)
        placement.set_inventories(name, VCPU=8)
        placement.claim(str(uuid.UUID(int=200 + i)), name, VCPU=8)
    follower = placement.follower(spawner=threads)
    follower.start()
    threads.run_for(1.5)
    for i in range(30):
        placement.free(str(uuid.UUID(int=200 + i)))
    threads.run_for(5)
    assert 0 < len(with_vcpus(follower, 8)) < 30  # some are compared by each poll
    threads.run_for(ROUND_S - 5)
    assert len(with_vcpus(follower, 8)) == 32
    follower.stop()


def test_freed_host_is_seen_by_a_refresh_at_once(placement: FollowedPlacement) -> None:
    placement.claim(GUEST, HOST, VCPU=3)
    follower = placement.follower()
    placement.free(GUEST)
    assert used(follower) == {"VCPU": 3}
    assert follower.refresh([HOST])
    assert used(follower) == {}


def test_evidence_is_followed_in_the_background(placement: FollowedPlacement) -> None:
    threads = HandThreads(placement.time)
    placement.claim(GUEST, HOST, VCPU=3)
    follower = placement.follower(spawner=threads)
    follower.start()
    threads.run_for(0.01)
    placement.free(GUEST)
    follower.mark_changed([HOST])
    threads.run_for(0.2)
    assert used(follower) == {}
    follower.stop()


def test_refresh_reads_a_provider_that_is_new(placement: FollowedPlacement) -> None:
    follower = placement.follower()
    new = str(uuid.UUID(int=77, version=4))
    placement.create(new, "new", HOST)
    assert follower.refresh([new, str(uuid.UUID(int=78, version=4))])
    assert records(follower)[new].parent_uuid == HOST


def test_aggregates_of_old_microversions_are_seen_within_a_round(
    placement: FollowedPlacement,
) -> None:
    follower = placement.follower()
    path = f"/resource_providers/{HOST}/aggregates"
    placement.must("PUT", path, [GUEST], "1.18")
    placement.time.pass_by(ROUND_S)
    follower.poll()
    assert records(follower)[HOST].aggregates == {GUEST}


# -- the order of counts and readings --------------------------------------------------


def test_own_claim_counts_at_once_and_only_once(placement: FollowedPlacement) -> None:
    follower = placement.follower()
    placement.claim(GUEST, HOST, VCPU=3)
    follower.count_claim([{HOST: {"VCPU": 3}}])
    assert used(follower) == {"VCPU": 3}
    follower.poll()
    assert used(follower) == {"VCPU": 3}


def test_claim_read_before_it_is_counted_is_corrected(
    placement: FollowedPlacement,
) -> None:
    follower = placement.follower()
    placement.claim(GUEST, HOST, VCPU=3)
    follower.poll()
    follower.count_claim([{HOST: {"VCPU": 3}}])
    assert used(follower) == {"VCPU": 6}  # less room than there is, never more
    follower.poll()
    assert used(follower) == {"VCPU": 3}


def test_reading_that_began_before_a_claim_does_not_replace_it(
    placement: FollowedPlacement,
) -> None:
    follower = placement.follower()
    placement.set_inventories(HOST, VCPU=32)
    during = _During(placement.engine, "FROM allocations")
    with during.call(lambda: follower.count_claim([{HOST: {"VCPU": 3}}])):
        follower.poll()
    assert used(follower) == {"VCPU": 3}
    assert records(follower)[HOST].inventories["VCPU"].total == 32
    follower.poll()  # it began after the claim, and Placement knows of none
    assert used(follower) == {}


def test_released_claim_is_subtracted_at_once(placement: FollowedPlacement) -> None:
    placement.claim(GUEST, HOST, VCPU=3)
    follower = placement.follower()
    placement.free(GUEST)
    follower.release([{HOST: {"VCPU": 3}}])
    assert used(follower) == {}
    follower.poll()
    assert used(follower) == {}


def test_count_ignores_what_is_unknown(placement: FollowedPlacement) -> None:
    follower = placement.follower()
    follower.count_claim([{HOST: {"PCPU": 1}, GUEST: {"VCPU": 1}}])
    assert used(follower) == {}
    assert follower.poll()


class _During:
    """Calls something while a statement is read."""

    def __init__(self, engine: sa.Engine, part: str) -> None:
        self._engine, self._part = engine, part

    def call(self, what: object) -> _During:
        self._what = what
        return self

    def __enter__(self) -> None:
        sa.event.listen(self._engine, "after_cursor_execute", self._on)

    def __exit__(self, *_: object) -> None:
        sa.event.remove(self._engine, "after_cursor_execute", self._on)

    def _on(self, _c: object, _cursor: object, statement: str, *_: object) -> None:
        if self._part in statement:
            self._what()  # type: ignore[operator]


# -- failures --------------------------------------------------------------------------


def test_unknown_schema_stops_the_start(placement: FollowedPlacement) -> None:
    def forge(version: str) -> None:
        def write() -> None:
            with placement.engine.begin() as connection:
                text = "UPDATE alembic_version SET version_num = :version"
                connection.execute(sa.text(text), {"version": version})

        placement.run_work(write)

    forge("0123456789ab")
    with pytest.raises(ConfigurationError) as raised:
        placement.follower()
    message = str(raised.value)
    assert "0123456789ab" in message
    assert "a082b8bb98d0" in message
    assert "\n" not in message
    assert "Unset the option" in message
    forge("a082b8bb98d0")
    assert records(placement.follower())


def test_database_without_tables_stops_the_start(tmp_path: object) -> None:
    follower = ProviderFollower(engine_of(f"sqlite:///{tmp_path}/empty.sqlite"))
    with pytest.raises(ConfigurationError, match=r"\[placement_database\] connection"):
        follower.load()
    assert follower.age_s() == math.inf
    assert not follower.poll()


def test_url_without_a_meaning_stops_the_start() -> None:
    with pytest.raises(ConfigurationError, match=r"\[placement_database\] connection"):
        engine_of("nonsense")


def test_age_is_that_of_the_last_complete_poll(placement: FollowedPlacement) -> None:
    follower = placement.follower()
    assert follower.age_s() == 0
    placement.time.pass_by(3)
    follower.refresh([HOST])
    assert follower.age_s() == 3
    follower.poll()
    assert follower.age_s() == 0


def test_readings_are_counted(placement: FollowedPlacement) -> None:
    follower = placement.follower()
    placement.time.pass_by(2)
    follower.refresh([HOST])

    def fail() -> None:
        raise OSError("the network is down")

    with _During(placement.engine, "FROM resource_providers").call(fail):
        follower.poll()
    stats = follower.stats()
    assert (stats.age_s, stats.n_read, stats.n_failed) == (2, 2, 1)


def test_database_is_read_again_soon_after_a_long_outage(
    placement: FollowedPlacement,
) -> None:
    follower = placement.follower(clock=placement.time)

    def fail() -> None:
        raise OSError("the network is down")

    with _During(placement.engine, "FROM resource_providers").call(fail):
        for _ in range(620):
            assert not follower.poll()
            placement.time.pass_by(1)
    placement.time.pass_by(10)
    assert follower.poll()


def test_failed_poll_is_logged_once_and_made_up_for(
    placement: FollowedPlacement, caplog: pytest.LogCaptureFixture
) -> None:
    clock = placement.time
    placement.claim(GUEST, CHILD, SRIOV_NET_VF=3)  # it is compared last
    follower = placement.follower(clock=clock)
    caplog.set_level(logging.INFO)

    def fail() -> None:
        raise OSError("the network is down")

    placement.time.pass_by(1)
    with _During(placement.engine, "FROM resource_providers").call(fail):
        assert not follower.poll()
        placement.time.pass_by(5)
        assert not follower.poll()
        assert not follower.refresh([HOST])
    assert follower.age_s() == 6
    placement.free(GUEST)  # no generation changes
    placement.time.pass_by(10)
    assert follower.poll()
    assert used(follower, CHILD) == {}
    lines = [r.getMessage() for r in caplog.records if "Placement's data" in r.message]
    assert len(lines) == 2, lines
    assert "cannot be read; retrying: the network is down" in lines[0]
    assert "answers again" in lines[1]


def test_poll_of_a_caller_does_not_wait_for_a_slow_one_in_the_background(
    placement: FollowedPlacement,
) -> None:
    is_polling, is_over = threading.Event(), threading.Event()

    def run_work(work: Callable[[], None]) -> None:
        if threading.current_thread().name == "moorage providers":
            is_polling.set()
            is_over.wait()
        placement.run_work(work)

    follower = placement.follower(run_work=run_work)
    follower.start()
    assert is_polling.wait(60)
    caller = threading.Thread(target=follower.poll, daemon=True)
    caller.start()
    caller.join(60)
    is_waiting = caller.is_alive()
    is_over.set()
    follower.stop()
    assert not is_waiting


@pytest.mark.parametrize("scheme", ["mysql+pymysql", "postgresql+psycopg2"])
def test_database_that_is_away_has_an_error_of_its_own(scheme: str) -> None:
    follower = ProviderFollower(engine_of(f"{scheme}://m@127.0.0.1:1/placement"))
    with pytest.raises(DatabaseUnavailable, match=r"\[placement_database\] connection"):
        follower.load()


def test_provider_that_was_created_again_during_an_outage_is_read(
    placement: FollowedPlacement,
) -> None:
    follower = placement.follower(clock=placement.time)
    generation = placement.generation(OTHER)

    def fail() -> None:
        raise OSError("the network is down")

    placement.must("DELETE", f"/resource_providers/{OTHER}")
    placement.create(OTHER, "other")
    placement.set_inventories(OTHER, VCPU=2)
    with _During(placement.engine, "FROM resource_provider_traits").call(fail):
        assert not follower.poll()
    assert placement.generation(OTHER) == generation
    placement.time.pass_by(10)
    assert follower.poll()
    assert with_vcpus(follower, 2) == {HOST, OTHER}
    assert with_vcpus(follower, 3) == {HOST}
