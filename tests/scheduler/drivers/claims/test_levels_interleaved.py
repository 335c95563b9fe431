# SPDX-License-Identifier: Apache-2.0
"""Rules about places hold, and all that fit are placed, in any order of events.

Requests for members of one group run in turns, a call of Placement each, in an order
that a seed sets. No scheduler knows of the claims of another one.
"""

from __future__ import annotations

import functools
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.objects import InstanceGroup
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.errors import SchedulerError
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.inventory import read_inventory

from ....fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory
from ....fixtures.faulty_placement import FaultyAdapter
from ....fixtures.placement_servers import EmbeddedPlacementFixture
from ....fixtures.property_tests import examples
from ....fixtures.turns import Turns

N_RACKS = 3
N_SCHEDULERS = 8
RACK_OF = {f"h{i}": f"r{i % N_RACKS}" for i in range(2 * N_RACKS)}
LARGE = {"vcpus": 4096, "memory_mb": 1 << 24, "local_gb": 100_000}


@dataclass(frozen=True)
class Rule:
    """The hints of all members; how many fit, and what holds at the end."""

    hints: dict[str, list[str]]
    policy: str = "soft-anti-affinity"
    most: int = 1
    skew: int | None = None

    @property
    def n_fit(self) -> int:
        return 8 if self.skew else N_RACKS * self.most

    def is_kept(self, counts: Sequence[int]) -> bool:
        if self.skew is not None:
            return max(counts) - min(counts) <= self.skew
        return max(counts) <= self.most


GROUP = "the UUID of the group"
RULES = {
    "different_rack": Rule({"different_rack": [GROUP]}),
    "group_level": Rule({"group_level": ["rack"]}, "anti-affinity"),
    "max_server": Rule({"group_level": ["rack"], "max_server_per_rack": ["2"]}, most=2),
    "spread": Rule({"spread_level": ["rack"]}, skew=1),
    "max_skew": Rule({"spread_level": ["rack"], "max_skew": ["2"]}, skew=2),
}


@dataclass(frozen=True)
class Cloud:
    """Schedulers of one Placement, and the turns that they take."""

    turns: Turns
    schedulers: Sequence[Scheduler]

    def place(self, rule: Rule, drawn: int, n_members: int) -> list[Any]:
        """Request all members at once; return the rack or error of each."""
        rng = random.Random(drawn)
        self.turns.reseed(rng)
        # New ones, as the tables know those of earlier examples, in an order by seed.
        uuid, *members = sorted(new_uuids(n_members + 1))
        rng.shuffle(members)
        group = InstanceGroup(
            uuid=uuid, policy=rule.policy, policies=[rule.policy], members=members
        )
        hints = {
            name: [uuid if value == GROUP else value for value in values]
            for name, values in rule.hints.items()
        }
        try:
            return self.turns.run(
                [
                    functools.partial(self._rack, number, each, hints, group)
                    for number, each in enumerate(members)
                ]
            )
        finally:
            for each in members:
                self.schedulers[0].placement.delete_allocations(each)

    def _rack(
        self,
        number: int,
        uuid: str,
        hints: dict[str, list[str]],
        group: InstanceGroup,
    ) -> str:
        spec = request(instance_group=group, instance_uuid=uuid, scheduler_hints=hints)
        scheduler = self.schedulers[number % len(self.schedulers)]
        answer: Any = scheduler.select_destinations(
            CONTEXT, spec, [uuid], return_objects=True
        )
        return RACK_OF[answer[0][0].service_host]


@contextmanager
def _cloud(folder: Path) -> Iterator[Cloud]:
    hosts = [host(n, places={"rack": rack}, **LARGE) for n, rack in RACK_OF.items()]
    path = write_inventory(folder, *hosts)
    turns = Turns(random.Random(0), real_sleep=time.sleep)
    with EmbeddedPlacementFixture() as placement:
        seed(placement.client, providers(read_inventory(path)))
        schedulers = []
        for number in range(N_SCHEDULERS):
            conf = moorage_conf.load([], config_files=[])
            conf.set_override("inventory_file", str(path), group="moorage")
            conf.set_override("random_seed", number, group="moorage")
            conf.set_override("levels", ["rack"], group="locality")
            adapter = FaultyAdapter(placement.adapter, step=turns.step)
            schedulers.append(build(conf, placement=adapter, waiter=turns))
            schedulers[-1].start()
        yield Cloud(turns, schedulers)
        for scheduler in schedulers:
            scheduler.stop()


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with _cloud(tmp_path_factory.mktemp("cloud")) as cloud:
        yield cloud


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(rule, id=name, marks=[pytest.mark.deep] if rule.n_fit > 3 else [])
        for name, rule in RULES.items()
    ],
)
@examples(0.1)
@given(data=st.data())
def test_members_requested_at_once_are_all_placed_by_the_rule(
    cloud: Cloud, rule: Rule, data: st.DataObject
) -> None:
    drawn = data.draw(st.integers(0, 10**9), "seed")
    n_members = data.draw(st.integers(2, rule.n_fit), "members")
    racks = cloud.place(rule, drawn, n_members)
    assert not [r for r in racks if isinstance(r, SchedulerError)], racks
    counts = Counter({f"r{i}": 0 for i in range(N_RACKS)})
    counts.update(racks)
    assert rule.is_kept([*counts.values()]), racks


def test_hundred_instances_of_one_request_are_spread_over_three_racks(
    cloud: Cloud,
) -> None:
    scheduler, uuids = cloud.schedulers[0], new_uuids(100)
    spec = request(
        instance_uuid=uuids[0],
        num_instances=len(uuids),
        scheduler_hints={"spread_level": ["rack"]},
    )
    answer: Any = scheduler.select_destinations(
        CONTEXT, spec, uuids, return_objects=True
    )
    racks = Counter(RACK_OF[mine[0].service_host] for mine in answer)
    assert sorted(racks.values()) == [33, 33, 34]
