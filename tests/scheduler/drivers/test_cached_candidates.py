# SPDX-License-Identifier: Apache-2.0
"""A decision on cached candidates is as right as on fresh ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from moorage.scheduler.conf import load
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.placement.allocations.claims import Claim, ClaimResult
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.inventory import read_inventory
from moorage.testing import PlacementFixture
from moorage.testing.builders import node_uuid

from ...fixtures.allocations import claim_one, release_all, request_of
from ...fixtures.clouds import (
    CONTEXT,
    claimed,
    host,
    new_uuids,
    request,
    usages,
    write_inventory,
)


class Counted:
    """An adapter to Placement that records what is sent."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self.sent: list[str] = []
        #: The queries for candidates.
        self.urls: list[str] = []
        self.before_put: Callable[[], object] | None = None
        self.before_post: Callable[[], object] | None = None
        self.before_question: Callable[[], object] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def get(self, url: str, **options: Any) -> Any:
        self.sent.append(f"GET {url.partition('?')[0]}")
        if self.sent[-1] == "GET /allocation_candidates":
            self.urls.append(url)
            rush, self.before_question = self.before_question, None
            if rush is not None:
                rush()
        return self._adapter.get(url, **options)

    def put(self, url: str, **options: Any) -> Any:
        self.sent.append("PUT")
        rush, self.before_put = self.before_put, None
        if rush is not None:
            rush()
        return self._adapter.put(url, **options)

    def post(self, url: str, **options: Any) -> Any:
        self.sent.append("POST")
        rush, self.before_post = self.before_post, None
        if rush is not None:
            rush()
        return self._adapter.post(url, **options)

    @property
    def n_queries(self) -> int:
        return self.sent.count("GET /allocation_candidates")


class Cloud:
    """A scheduler of hosts with 8 vCPUs each, and its Placement, which others use."""

    def __init__(self, path: Path, placement: PlacementFixture, **moorage: Any) -> None:
        conf = load([], config_files=[])
        conf.set_override("inventory_file", str(path), group="moorage")
        for name, value in moorage.items():
            conf.set_override(name, value, group=moorage_group(name))
        self.path = path
        self.placement: PlacementClient = placement.client
        self.adapter = Counted(placement.embedded.adapter)
        seed(self.placement, providers(read_inventory(path)))
        self.scheduler: Scheduler = build(conf, placement=self.adapter)
        self.scheduler.start()

    def select(self, vcpus: int = 8, uuids: list[str] | None = None) -> list[str]:
        """Return the hosts of instances, after a check that they are claimed."""
        uuids = uuids or new_uuids()
        answer: Any = self.scheduler.select_destinations(
            CONTEXT,
            request(vcpus=vcpus, num_instances=len(uuids)),
            uuids,
            return_objects=True,
            return_alternates=False,
        )
        for uuid, [chosen] in zip(uuids, answer, strict=True):
            assert self.placement.allocations(uuid).resources == claimed(chosen)
        return [chosen.service_host for [chosen] in answer]

    def read_again(self, *hosts: dict[str, Any]) -> None:
        """Have other hosts, in Placement and in the scheduler."""
        write_inventory(self.path.parent, *hosts)
        seed(self.placement, providers(read_inventory(self.path)))
        self.scheduler.reset()

    def take(self, name: str, vcpus: int = 8) -> Mapping[str, Claim]:
        """Claim as another scheduler would; return what was claimed."""
        [uuid] = new_uuids()
        wanted = request_of(node_uuid(name), VCPU=vcpus)
        answer = claim_one(self.placement, uuid, wanted)
        assert answer.result is ClaimResult.CLAIMED
        return answer.claims


def moorage_group(name: str) -> str:
    return "scheduler" if name == "max_placement_results" else "moorage"


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    """Make a cloud of hosts, with options."""
    made: list[Cloud] = []
    with PlacementFixture() as placement:

        def make(*names: str, **options: Any) -> Cloud:
            hosts = [host(name, uuid=node_uuid(name)) for name in names]
            path = write_inventory(tmp_path, *hosts)
            made.append(Cloud(path, placement, **options))
            return made[-1]

        yield make
        for cloud in made:
            cloud.scheduler.stop()


def test_answer_is_kept_for_the_next_request(make: Any) -> None:
    cloud = make("a", "b", "c")
    assert sorted(cloud.select() for _ in range(3)) == [["a"], ["b"], ["c"]]
    assert cloud.adapter.n_queries == 1
    assert cloud.adapter.sent.count("PUT") == 3  # none was refused
    assert cloud.scheduler.candidates_cache.stats().hits == 2


def test_age_0_queries_placement_each_time(make: Any) -> None:
    cloud = make("a", "b", candidates_max_age=0.0)
    cloud.select()
    cloud.select()
    assert cloud.adapter.n_queries == 2


@pytest.mark.parametrize("change", [{"vcpus": 16}, {"disabled": True}])
def test_answer_is_of_no_use_once_hosts_are_others(
    make: Any, change: dict[str, Any]
) -> None:
    cloud = make("a", "b")
    cloud.select(vcpus=1)
    a, b = (host(name, uuid=node_uuid(name)) for name in "ab")
    cloud.read_again(a, b)
    cloud.select(vcpus=1)
    assert cloud.adapter.n_queries == 1, "nothing is new"
    cloud.read_again(a, {**b, **change})
    cloud.select(vcpus=1)
    assert cloud.adapter.n_queries == 2
    cloud.read_again(a)
    assert cloud.select(vcpus=1) == ["a"]
    assert cloud.adapter.n_queries == 3


def test_placement_is_queried_again_before_no_valid_host(make: Any) -> None:
    cloud = make("a")
    rival = cloud.take("a")
    with pytest.raises(NoValidHost):
        cloud.select()
    release_all(cloud.placement, rival)
    assert cloud.select() == ["a"]
    with pytest.raises(NoValidHost):
        cloud.select()
    assert cloud.adapter.n_queries == 3


def test_host_that_others_filled_is_found_out_by_the_claim(make: Any) -> None:
    cloud = make("a", "b", "c")
    [first] = cloud.select()
    for name in {"a", "b", "c"} - {first}:
        cloud.take(name)
    with pytest.raises(NoValidHost):
        cloud.select()
    [newest, *_] = cloud.scheduler.decisions.newest()
    assert len(newest.claims) == 2
    assert cloud.adapter.n_queries == 2


def test_host_that_others_left_is_found_before_there_is_no_host(make: Any) -> None:
    cloud = make("a", "b")
    rival = cloud.take("a")
    assert cloud.select() == ["b"]
    release_all(cloud.placement, rival)
    assert cloud.select() == ["a"]
    assert cloud.adapter.n_queries == 2


def test_claims_of_a_request_that_fails_are_counted_no_more(make: Any) -> None:
    cloud = make("a", "b")
    with pytest.raises(NoValidHost):
        cloud.select(uuids=new_uuids(3))
    assert cloud.scheduler.decisions.newest()[0].claims == []
    assert sorted(cloud.select(uuids=new_uuids(2))) == ["a", "b"]


def test_truncated_answer_is_queried_whole_when_it_is_used_up(
    make: Any,
) -> None:
    cloud = make("a", "b", "c", max_placement_results=1)
    assert sorted(cloud.select() for _ in range(3)) == [["a"], ["b"], ["c"]]
    with pytest.raises(NoValidHost):
        cloud.select()


def test_what_is_refused_of_several_moves_and_the_others_stay(make: Any) -> None:
    names = [f"h{i}" for i in range(8)]
    cloud = make(*names)

    def rush() -> None:
        # A rival claims on half of the hosts, after some of these were chosen.
        for name in names[:4]:
            cloud.take(name, vcpus=1)

    cloud.adapter.before_post = rush
    assert sorted(cloud.select(uuids=new_uuids(4))) == names[4:]
    [newest] = cloud.scheduler.decisions.newest()
    granted = [a for a in newest.claims if a.result == "claimed"]
    assert sorted(u for each in granted for u in each.instance_uuids) == sorted(
        newest.instance_uuids
    )
    used = usages(cloud.placement, map(node_uuid, names))
    assert [each["VCPU"] for each in used.values()] == [1] * 4 + [8] * 4


def test_claim_that_counts_twice_is_no_reason_for_no_valid_host(make: Any) -> None:
    cloud = make("a")

    def rush() -> None:
        # Another decision of this scheduler claims while Placement is being asked.
        cache, root = cloud.scheduler.candidates_cache, node_uuid("a")
        began = cache.next_sequence()
        cloud.take("a", vcpus=4)
        cache.count_claim(
            [{"allocations": {root: {"resources": {"VCPU": 4}}}}], began=began
        )

    cloud.adapter.before_question = rush
    assert cloud.select(vcpus=4) == ["a"]
    assert cloud.adapter.n_queries == 1


def test_record_describes_the_answer_that_was_used(make: Any) -> None:
    cloud = make("a", "b", max_placement_results=1)
    cloud.select(vcpus=1)
    [kept] = [
        n
        for n in "ab"
        if "VCPU" in usages(cloud.placement, [node_uuid(n)])[node_uuid(n)]
    ]
    cloud.take(kept, vcpus=7)
    [other] = {"a", "b"} - {kept}
    assert cloud.select(vcpus=1) == [other]
    record = cloud.scheduler.decisions.newest()[0]
    assert [c.result for c in record.claims] == ["refused", "claimed"]
    assert len(record.queries) == 2, "both queries"
    assert (record.n_candidates, record.n_hosts, record.is_truncated) == (1, 1, False)
    assert len([s for s in record.steps if s.name == "ComputeFilter"]) == 1


def test_what_was_granted_and_given_back_is_in_the_record(make: Any) -> None:
    cloud = make("a", "b")
    uuids = new_uuids(2)
    cloud.adapter.before_post = lambda: cloud.take("b", vcpus=1)
    with pytest.raises(NoValidHost):
        cloud.select(uuids=uuids)
    [newest, *_] = cloud.scheduler.decisions.newest()
    results = [each.result for each in newest.claims]
    assert sorted(results) == ["claimed", "refused", "refused", "released"]
    assert results[-1] == "released"
    claimed, released = (
        next(a for a in newest.claims if a.result == result)
        for result in ("claimed", "released")
    )
    assert released.instance_uuids == claimed.instance_uuids
    assert all(cloud.placement.allocations(u).resources == {} for u in uuids)
