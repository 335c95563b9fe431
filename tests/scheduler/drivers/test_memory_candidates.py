# SPDX-License-Identifier: Apache-2.0
"""A decision on providers in memory is as right as on Placement's own answers."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from moorage.objects import ImageMeta, ImageMetaProps
from moorage.scheduler.conf import load
from moorage.scheduler.errors import ConfigurationError, NoValidHost
from moorage.scheduler.placement.allocations.claims import Claim, ClaimResult
from moorage.scheduler.placement.allocations.limits import MAX_REFUSED
from moorage.scheduler.placement.database import ProviderFollower
from moorage.scheduler.placement.memory import ProviderCandidatesSource
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.inventory import read_inventory
from moorage.scheduler.waiting import Spawner
from moorage.testing.builders import node_uuid

from ...fixtures.allocations import claim_one, release_all, request_of
from ...fixtures.clouds import (
    CONTEXT,
    claimed,
    host,
    new_uuids,
    request,
    write_inventory,
)
from ...fixtures.hand_time import HandThreads, HandTime
from ...fixtures.notification_listener import Listener
from ...fixtures.placement_servers import EmbeddedPlacementFixture
from ...fixtures.waiting import wait_until
from .test_cached_candidates import Counted

ARM = [["aarch64", "kvm", "hvm"]]
X86 = ImageMeta(properties=ImageMetaProps(hw_architecture="x86_64"))


def follower_of(scheduler: Scheduler) -> ProviderFollower:
    """Return what keeps a scheduler's table of providers up to date."""
    assert isinstance(scheduler.candidates, ProviderCandidatesSource)
    return scheduler.candidates.follower


class FollowedCloud:
    """Schedulers of hosts with 8 vCPUs, and a Placement whose database they follow."""

    def __init__(self, folder: Path, placement: EmbeddedPlacementFixture) -> None:
        self.folder = folder
        self.url: str | None = f"sqlite:///{folder / 'placement.sqlite'}"
        self.placement = placement.client
        self.adapter = Counted(placement.adapter)
        self.notifier: Any = None
        self.schedulers: list[Scheduler] = []

    def seed(self, *hosts: dict[str, Any]) -> None:
        """Have these hosts, in an inventory and in Placement."""
        hosts = tuple({"uuid": node_uuid(each["host"]), **each} for each in hosts)
        self.path = write_inventory(self.folder, *hosts)
        seed(self.placement, providers(read_inventory(self.path)))

    def scheduler(
        self,
        time: HandTime | None = None,
        threads: Spawner | None = None,
        **moorage: Any,
    ) -> Scheduler:
        conf = load([], config_files=[])
        options = {"candidates": "memory", "inventory_file": str(self.path), **moorage}
        for name, value in options.items():
            conf.set_override(name, value, group="moorage")
        conf.set_override("connection", self.url, group="placement_database")
        made = build(
            conf,
            placement=self.adapter,
            notifier=self.notifier,
            clock=time,
            waiter=time,
            spawner=threads,
        )
        self.schedulers.append(made)
        made.start()
        return made

    @property
    def questions(self) -> list[str]:
        """The queries for candidates that were sent."""
        return self.adapter.urls

    def take(self, name: str, vcpus: int = 8) -> Mapping[str, Claim]:
        """Claim as another scheduler would; return what was claimed."""
        [uuid] = new_uuids()
        wanted = request_of(node_uuid(name), VCPU=vcpus)
        answer = claim_one(self.placement, uuid, wanted)
        assert answer.result is ClaimResult.CLAIMED
        return answer.claims

    def copy_to_replica(self) -> None:
        """Have the replica that schedulers follow from now on be what Placement is."""
        replica = self.folder / "replica.sqlite"
        self.url = f"sqlite:///{replica}"
        with (
            contextlib.closing(
                sqlite3.connect(self.folder / "placement.sqlite")
            ) as source,
            contextlib.closing(sqlite3.connect(replica)) as target,
        ):
            source.backup(target)

    def used_in(self, scheduler: Scheduler, name: str) -> int:
        """Return the vCPUs that a scheduler believes to be in use on a host."""
        table: Any = follower_of(scheduler).table
        record = table.view().state.record(node_uuid(name))
        return int(record.used.get("VCPU", 0))

    def corrupt(self, scheduler: Scheduler, name: str) -> None:
        """Have a scheduler believe that a host has one vCPU, which no poll finds."""
        table: Any = follower_of(scheduler).table
        record = table.view().state.record(node_uuid(name))
        small = record.inventories["VCPU"]._replace(total=1)
        inventories = {**record.inventories, "VCPU": small}
        table.put([dataclasses.replace(record, inventories=inventories)])

    def select(
        self,
        scheduler: Scheduler,
        uuids: list[str] | None = None,
        project_id: str = "project",
        **changes: Any,
    ) -> list[str]:
        """Return the hosts of instances, once it is checked that they are claimed."""
        uuids = uuids or new_uuids()
        answer: Any = scheduler.select_destinations(
            {**CONTEXT, "project_id": project_id},
            request(**{"vcpus": 8, "num_instances": len(uuids), **changes}),
            uuids,
            return_objects=True,
        )
        for uuid, [chosen] in zip(uuids, answer, strict=True):
            assert self.placement.allocations(uuid).resources == claimed(chosen)
        return [chosen.service_host for [chosen] in answer]


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[FollowedCloud]:
    with EmbeddedPlacementFixture(str(tmp_path / "placement.sqlite")) as placement:
        made = FollowedCloud(tmp_path, placement)
        yield made
        for scheduler in made.schedulers:
            scheduler.stop()


def test_no_query_is_sent_while_hosts_fit(cloud: FollowedCloud) -> None:
    cloud.seed(host("a"), host("b"), host("c"))
    scheduler = cloud.scheduler()
    chosen = [cloud.select(scheduler)[0] for _ in range(3)]
    assert sorted(chosen) == ["a", "b", "c"]
    assert cloud.adapter.n_queries == 0
    assert scheduler.candidates.query_counts()["memory"] == 3


def test_start_without_the_database_serves_by_queries(
    cloud: FollowedCloud, caplog: pytest.LogCaptureFixture
) -> None:
    cloud.seed(host("a"))
    cloud.url = "mysql+pymysql://m@127.0.0.1:1/placement"
    scheduler = cloud.scheduler()
    assert cloud.select(scheduler) == ["a"]
    assert cloud.adapter.n_queries == 1
    lines = [r.getMessage() for r in caplog.records if ":1/placement" in r.message]
    assert len(lines) == 1, lines
    assert "until it answers" in lines[0]


def test_freed_room_is_found_for_a_later_instance(cloud: FollowedCloud) -> None:
    cloud.seed(host("a"))
    taken = cloud.take("a", 4)
    scheduler = cloud.scheduler()
    release_all(cloud.placement, taken)  # no generation changes
    assert cloud.select(scheduler, new_uuids(2), vcpus=4) == ["a", "a"]


def test_own_claims_and_releases_count_at_once(cloud: FollowedCloud) -> None:
    cloud.seed(host("a"), host("b"))
    scheduler = cloud.scheduler()
    follower_of(scheduler).stop()
    assert sorted(cloud.select(scheduler, new_uuids(2))) == ["a", "b"]
    assert cloud.used_in(scheduler, "a") == cloud.used_in(scheduler, "b") == 8
    with pytest.raises(NoValidHost):
        cloud.select(scheduler, new_uuids(1), vcpus=1)
    # The conductor would have to release what a failed request had claimed.
    assert cloud.adapter.sent.count("POST") == 1


def test_host_that_was_freed_unnoticed_is_found_without_a_query(
    cloud: FollowedCloud,
) -> None:
    cloud.seed(host("a"))
    claims = cloud.take("a")
    scheduler = cloud.scheduler()
    release_all(cloud.placement, claims)  # Placement changes no generation for it
    assert cloud.used_in(scheduler, "a") == 8
    assert cloud.select(scheduler) == ["a"]
    assert cloud.adapter.n_queries == 0


def test_lack_of_candidates_is_confirmed_once_for_like_requests(
    cloud: FollowedCloud,
) -> None:
    cloud.seed(host("a"))
    cloud.take("a")
    scheduler = cloud.scheduler()
    for _ in range(3):
        with pytest.raises(NoValidHost):
            cloud.select(scheduler)
    [asked] = cloud.questions
    assert "limit=1&" in asked
    counts = scheduler.candidates.query_counts()
    assert (counts["confirmed"], counts["confirmed_shared"]) == (1, 2)
    with pytest.raises(NoValidHost):
        cloud.select(scheduler, vcpus=7)
    assert len(cloud.questions) == 2


def test_change_of_a_provider_ends_a_shared_confirmation(cloud: FollowedCloud) -> None:
    cloud.seed(host("a"), host("b"))
    cloud.take("a")
    cloud.take("b", vcpus=4)
    scheduler = cloud.scheduler()
    with pytest.raises(NoValidHost):
        cloud.select(scheduler)
    cloud.take("b", 1)
    assert follower_of(scheduler).poll()

    def is_confirmed_again() -> bool:
        with pytest.raises(NoValidHost):
            cloud.select(scheduler)
        return len(cloud.questions) == 2

    wait_until(is_confirmed_again)


def test_like_requests_share_a_confirmation_while_providers_change(
    cloud: FollowedCloud,
) -> None:
    cloud.seed(host("full"), *(host(f"h{i}", vcpus=16) for i in range(4)))
    scheduler = cloud.scheduler()
    for i in range(4):
        with pytest.raises(NoValidHost):
            cloud.select(scheduler, vcpus=17)
        cloud.take(f"h{i}", 1)
        assert follower_of(scheduler).poll()
    assert len(cloud.questions) <= 2  # one a second, on a slow machine


def test_like_requests_share_the_confirmation_in_flight(cloud: FollowedCloud) -> None:
    cloud.seed(host("a"))
    scheduler = cloud.scheduler()
    is_asked, may_answer = threading.Event(), threading.Event()

    def hold() -> None:
        is_asked.set()
        assert may_answer.wait(60)

    cloud.adapter.before_question = hold

    def fail() -> None:
        with pytest.raises(NoValidHost):
            cloud.select(scheduler, vcpus=9)

    threads = [threading.Thread(target=fail) for _ in range(4)]
    threads[0].start()
    assert is_asked.wait(60)
    for thread in threads[1:]:
        thread.start()
    counts = scheduler.candidates.query_counts
    wait_until(lambda: counts()["memory"] >= 8)  # all have read the table twice
    may_answer.set()
    for thread in threads:
        thread.join(60)
    assert len(cloud.questions) == 1
    assert (counts()["confirmed"], counts()["confirmed_shared"]) == (1, 3)


@pytest.mark.deep
@pytest.mark.parametrize("n_flavors", [1, 1000])
def test_project_is_served_beside_83_impossible_requests_a_second_of_another(
    cloud: FollowedCloud, n_flavors: int
) -> None:
    cloud.seed(host("a", vcpus=64, memory_mb=65536, local_gb=1000))
    time = HandTime()
    scheduler = cloud.scheduler(time, HandThreads(time))
    sizes = itertools.cycle(range(100, 100 + n_flavors))
    began_s, n_seconds, n_sent = time.elapsed_s, 3, 0
    for _ in range(4 * n_seconds):
        while n_sent < 83 * (time.elapsed_s - began_s):
            with pytest.raises(NoValidHost):
                cloud.select(scheduler, project_id="loud", vcpus=next(sizes))
            n_sent += 1
        cloud.corrupt(scheduler, "a")
        assert cloud.select(scheduler, project_id="quiet", vcpus=2) == ["a"]
        time.pass_by(0.25)
        assert follower_of(scheduler).poll()
    counts = scheduler.candidates.query_counts()
    if n_flavors == 1:  # a question a second, and none is left out
        assert counts["unconfirmed"] == 0
        assert counts["confirmed"] <= n_seconds + 1
    else:
        assert counts["unconfirmed"] > 0
        assert counts["confirmed"] <= 10 * (n_seconds + 1)


def test_confirmations_are_limited(cloud: FollowedCloud) -> None:
    cloud.seed(host("a"))
    scheduler = cloud.scheduler(confirmations_per_second=1)
    for vcpus in (9, 10, 11, 12):
        with pytest.raises(NoValidHost):
            cloud.select(scheduler, vcpus=vcpus)
    counts = scheduler.candidates.query_counts()
    assert counts["confirmed"] >= 1
    assert counts["unconfirmed"] >= 1
    assert counts["confirmed"] + counts["unconfirmed"] == 4
    assert len(cloud.questions) == counts["confirmed"]


def test_no_confirmation_is_sent_where_none_is_allowed(cloud: FollowedCloud) -> None:
    cloud.seed(host("a"))
    scheduler = cloud.scheduler(confirmations_per_second=0)
    with pytest.raises(NoValidHost):
        cloud.select(scheduler, vcpus=9)
    assert cloud.questions == []
    assert scheduler.candidates.query_counts()["unconfirmed"] == 1


def test_placement_is_believed_where_it_disagrees(
    cloud: FollowedCloud, caplog: pytest.LogCaptureFixture
) -> None:
    cloud.seed(host("a"))
    scheduler = cloud.scheduler()
    cloud.corrupt(scheduler, "a")
    assert cloud.select(scheduler) == ["a"]
    assert ["limit=1&" in asked for asked in cloud.questions] == [True, False]
    assert scheduler.candidates.query_counts()["disagreed"] == 1
    [warning] = [r.getMessage() for r in caplog.records if "believed" in r.message]
    assert "/allocation_candidates?" in warning
    assert warning.count("'VCPU': {'capacity': 8,") == 1
    assert warning.count("'VCPU': {'capacity': 1,") == 1


def test_provider_of_a_refused_claim_is_read_at_once(cloud: FollowedCloud) -> None:
    cloud.seed(host("best", memory_mb=65536), host("b"))
    scheduler = cloud.scheduler()
    follower_of(scheduler).stop()
    cloud.take("best")
    assert cloud.used_in(scheduler, "best") == 0
    assert cloud.select(scheduler) == ["b"]
    assert cloud.adapter.sent.count("PUT") == 2
    assert cloud.used_in(scheduler, "best") == 8
    assert cloud.questions == []


def test_hosts_that_have_cpus_or_memory_left_but_not_both_are_refused(
    cloud: FollowedCloud,
) -> None:
    cloud.seed(host("a"), host("b"))
    cpus = cloud.take("a", 4)
    cloud.take("b")
    scheduler = cloud.scheduler()
    follower_of(scheduler).stop()
    release_all(cloud.placement, cpus)  # a has more CPUs than it had, but no memory
    [other] = new_uuids()
    memory = request_of(node_uuid("a"), MEMORY_MB=16384)
    assert claim_one(cloud.placement, other, memory).result is ClaimResult.CLAIMED
    with pytest.raises(NoValidHost):
        cloud.select(scheduler, vcpus=1)


def test_refused_candidates_are_not_claimed_again(cloud: FollowedCloud) -> None:
    taken = [f"taken-{i}" for i in range(MAX_REFUSED + 2)]
    cloud.seed(*(host(name, memory_mb=65536) for name in taken), host("free"))
    scheduler = cloud.scheduler()
    follower_of(scheduler).stop()
    for name in taken:
        cloud.take(name)
    assert cloud.select(scheduler) == ["free"]
    assert cloud.adapter.sent.count("PUT") == MAX_REFUSED + 1


def test_hosts_and_providers_are_read_again_if_filters_reject_all(
    cloud: FollowedCloud,
) -> None:
    cloud.seed(host("a", supported_instances=ARM), host("b"))
    claims = cloud.take("b")
    scheduler = cloud.scheduler()
    release_all(cloud.placement, claims)
    assert cloud.select(scheduler, image=X86) == ["b"]
    assert cloud.questions == []


def test_old_table_is_not_used(cloud: FollowedCloud) -> None:
    cloud.seed(host("a"), host("b"))
    scheduler = cloud.scheduler(providers_max_age=0.2)
    follower: Any = follower_of(scheduler)
    follower.stop()
    wait_until(lambda: follower.age_s() > 0.2)
    cloud.select(scheduler)
    assert scheduler.candidates.query_counts()["stale"] == 1
    assert len(cloud.questions) == 1
    assert "limit=1&" not in cloud.questions[0]


def test_query_that_is_not_covered_goes_to_placement(cloud: FollowedCloud) -> None:
    cloud.seed(host("a"))
    scheduler = cloud.scheduler()
    extra_specs = {"trait:CUSTOM_UNHEARD_OF": "required"}
    with pytest.raises(NoValidHost, match="Placement rejected the query"):
        cloud.select(scheduler, vcpus=1, extra_specs=extra_specs)
    assert scheduler.candidates.query_counts()["not_covered"] == 1
    assert len(cloud.questions) == 1


def test_claims_of_peers_count_at_once(cloud: FollowedCloud) -> None:
    cloud.seed(host("a"), host("b"))
    one, other = cloud.scheduler(), cloud.scheduler()
    one.publish_claims = lambda claims: other.apply_peer_claims(
        [claim.to_wire() for claim in claims]
    )
    follower_of(other).stop()
    [chosen] = cloud.select(one)
    assert cloud.used_in(other, chosen) == 8
    [left] = cloud.select(other)
    assert {chosen, left} == {"a", "b"}
    assert cloud.adapter.sent.count("PUT") == 2  # none was refused
    assert cloud.questions == []


def test_option_for_placement_leaves_the_database_alone(cloud: FollowedCloud) -> None:
    cloud.seed(host("a"))
    scheduler = cloud.scheduler(candidates="placement")
    assert scheduler.candidates is scheduler.candidates_cache
    assert cloud.select(scheduler) == ["a"]
    assert cloud.adapter.n_queries == 1


def test_memory_is_used_where_the_database_is_known(cloud: FollowedCloud) -> None:
    cloud.seed(host("a"))
    assert cloud.select(cloud.scheduler(candidates=None)) == ["a"]
    assert cloud.questions == []


def test_memory_without_a_database_is_refused(cloud: FollowedCloud) -> None:
    cloud.seed(host("a"))
    cloud.url = None
    with pytest.raises(ConfigurationError, match=r"\[placement_database\] connection"):
        cloud.scheduler()


def test_placement_serves_while_its_database_is_away(cloud: FollowedCloud) -> None:
    cloud.seed(host("a"))
    claims = cloud.take("a")
    database = cloud.folder / "seen_by_the_scheduler"
    database.symlink_to(cloud.folder / "placement.sqlite")
    cloud.url = f"sqlite:///{database}"
    scheduler = cloud.scheduler()
    follower_of(scheduler).stop()
    release_all(cloud.placement, claims)
    database.unlink()
    database.write_text("no database")
    assert cloud.select(scheduler) == ["a"]
    [asked] = cloud.questions
    assert "limit=1&" not in asked
    assert scheduler.candidates.query_counts()["stale"] == 1


def test_no_connection_is_open_when_workers_fork(cloud: FollowedCloud) -> None:
    cloud.seed(host("a"))
    engine = sa.create_engine(str(cloud.url))
    follower = ProviderFollower(engine)
    follower.load()
    pool: Any = engine.pool
    assert pool.checkedin() == 0
    assert follower.poll()
    assert pool.checkedin() == 1
    follower.stop()
    assert pool.checkedin() == 0


def test_hosts_that_instances_left_are_read_again(cloud: FollowedCloud) -> None:
    cloud.seed(host("a"), host("b"))
    claims = cloud.take("a")
    scheduler = cloud.scheduler()
    [uuid] = claims
    scheduler.table.set_instances("a", [uuid])
    release_all(cloud.placement, claims)
    scheduler.table.set_instances("a", [])
    cloud.select(scheduler, vcpus=1)
    # It is read in the background, long before its turn in the minute.
    wait_until(lambda: cloud.used_in(scheduler, "a") < 8)


def test_embedded_placement_is_followed_in_process(tmp_path: Path) -> None:
    path = write_inventory(tmp_path, host("a", uuid=node_uuid("a")))
    conf = load([], config_files=[])
    conf.set_override("inventory_file", str(path), group="moorage")
    with EmbeddedPlacementFixture() as embedded:
        seed(embedded.client, providers(read_inventory(path)))
        scheduler = build(conf, placement=embedded.placement)
        scheduler.start()
        try:
            [uuid] = new_uuids()
            scheduler.select_destinations(CONTEXT, request(), [uuid])
            counts = scheduler.candidates.query_counts()
        finally:
            scheduler.stop()
        assert embedded.client.allocations(uuid).resources  # it was not closed
    assert (counts["memory"], counts["sent"]) == (1, 0)


# -- a database that is behind Placement ---------------------------------------------


@pytest.mark.parametrize("n_instances", [1, 3])
def test_useless_candidate_does_not_hide_what_the_database_lacks(
    cloud: FollowedCloud, n_instances: int, caplog: pytest.LogCaptureFixture
) -> None:
    cloud.seed(host("useless", supported_instances=ARM), *map(host, "abc"))
    taken = [cloud.take(name) for name in "abc"]
    cloud.copy_to_replica()
    scheduler = cloud.scheduler()
    for each in taken:
        release_all(cloud.placement, each)  # no generation changes
    for _ in range(3 // n_instances):
        chosen = cloud.select(scheduler, new_uuids(n_instances), image=X86)
        assert set(chosen) <= set("abc")
    assert cloud.questions[0].startswith("/allocation_candidates?limit=2&")
    assert not scheduler.status.is_ready
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len([r for r in warnings if "has been behind" in r.getMessage()]) == 1


def test_more_room_for_several_instances_is_not_missed(cloud: FollowedCloud) -> None:
    cloud.seed(host("a"))
    taken = cloud.take("a", 4)
    cloud.copy_to_replica()
    scheduler = cloud.scheduler()
    release_all(cloud.placement, taken)
    assert cloud.select(scheduler, new_uuids(2), vcpus=4) == ["a", "a"]


def test_host_that_the_database_does_not_have_yet_is_found(
    cloud: FollowedCloud,
) -> None:
    cloud.seed(host("useless", supported_instances=ARM))
    cloud.copy_to_replica()
    cloud.seed(host("useless", supported_instances=ARM), host("new"))
    scheduler = cloud.scheduler()
    assert cloud.select(scheduler, image=X86) == ["new"]
    assert not scheduler.status.is_ready


def test_filters_decide_on_candidates_that_placement_has_confirmed(
    cloud: FollowedCloud,
) -> None:
    cloud.seed(*(host(name, supported_instances=ARM) for name in "abc"))
    scheduler = cloud.scheduler()
    for _ in range(3):
        with pytest.raises(NoValidHost):
            cloud.select(scheduler, image=X86)
    [asked] = cloud.questions
    assert asked.startswith("/allocation_candidates?limit=4&")
    counts = scheduler.candidates.query_counts()
    assert (counts["confirmed"], counts["confirmed_shared"]) == (1, 2)
    assert counts["disagreed"] == 0
    assert scheduler.status.is_ready


def test_refusals_that_the_database_cannot_explain_end_its_use(
    cloud: FollowedCloud, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"h{i}" for i in range(3 * MAX_REFUSED)]
    cloud.seed(*(host(name, memory_mb=65536) for name in names), host("free"))
    cloud.copy_to_replica()
    for name in names:
        cloud.take(name)
    scheduler = cloud.scheduler()
    assert cloud.select(scheduler) == ["free"]
    assert cloud.adapter.sent.count("PUT") <= MAX_REFUSED + 1
    assert not scheduler.status.is_ready
    note = scheduler.status.readiness_note
    assert "[placement_database] connection has been behind Placement" in note
    assert "generation" in note
    assert "nothing in use in the database" in note
    assert scheduler.candidates.provider_view() is None
    cloud.adapter.sent.clear()
    with pytest.raises(NoValidHost):
        cloud.select(scheduler)
    assert "PUT" not in cloud.adapter.sent
    cloud.copy_to_replica()
    wait_until(lambda: scheduler.status.is_ready)
    assert scheduler.status.readiness_note == ""
    assert scheduler.candidates.provider_view() is not None
    assert "has caught up with Placement" in caplog.text


def test_refusal_that_the_database_explains_leaves_it_in_use(
    cloud: FollowedCloud,
) -> None:
    cloud.seed(host("best", memory_mb=65536), host("b"))
    scheduler = cloud.scheduler()
    follower_of(scheduler).stop()
    cloud.take("best")
    assert cloud.select(scheduler) == ["b"]
    assert [each for each in cloud.adapter.sent if "/usages" in each] == []
    assert scheduler.status.is_ready


def test_database_that_catches_up_without_a_change_of_generation_is_used_again(
    cloud: FollowedCloud,
) -> None:
    cloud.seed(host("a"), host("b"))
    taken = [cloud.take(name) for name in "ab"]
    cloud.copy_to_replica()
    scheduler = cloud.scheduler()
    for each in taken:
        release_all(cloud.placement, each)
    cloud.select(scheduler, vcpus=1)
    assert not scheduler.status.is_ready
    cloud.copy_to_replica()

    def is_used_again() -> bool:
        """Return whether memory answers; what is claimed is not in the replica."""
        before = scheduler.candidates.query_counts()["memory"]
        with pytest.raises(NoValidHost):
            cloud.select(scheduler, vcpus=1000)
        return scheduler.candidates.query_counts()["memory"] > before

    wait_until(is_used_again)
    assert scheduler.status.is_ready


def test_host_that_was_just_disabled_is_none_before_the_decision_starts(
    cloud: FollowedCloud,
) -> None:
    cloud.seed(host("a"))
    cloud.notifier = Listener()
    scheduler = cloud.scheduler(user_reasons="nova")
    follower_of(scheduler).stop()
    cloud.select(scheduler, vcpus=1)
    cloud.seed(host("a", disabled=True))
    scheduler.reset()
    with pytest.raises(NoValidHost) as raised:
        cloud.select(scheduler, vcpus=1)
    assert raised.value.reason == ""
    scheduler.stop()
    kinds = [each.event_type.rpartition(".")[2] for each in cloud.notifier.received]
    assert kinds == ["start", "end"]
