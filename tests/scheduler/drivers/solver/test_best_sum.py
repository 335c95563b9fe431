# SPDX-License-Identifier: Apache-2.0
"""The sum of weights of "solver" is the highest of all placings, tried one by one."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.objects import InstanceGroup, RequestSpec
from moorage.scheduler.conf import load
from moorage.scheduler.drivers.plugins import load_driver
from moorage.scheduler.drivers.prepared import Caller
from moorage.scheduler.drivers.record import DecisionRecord, Outcome
from moorage.scheduler.explain.dry_run import dry_run
from moorage.scheduler.waiting import SystemWaiter
from moorage.testing import SchedulerFixture, group

from ....fixtures.clouds import request
from ....fixtures.property_tests import examples
from ....fixtures.racked_hosts import GIB, GROUP, OPTIONS, RACKS, racked_host


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """What the brute force knows of a host."""

    vcpus: int
    gib: int
    n_instances: int

    def room(self, vcpus: int, gib: int) -> int:
        by_filter = 6 - self.n_instances
        return max(0, min(self.vcpus // vcpus, self.gib // gib, by_filter))


#: Heterogeneous: none is the largest in both, and the filter stops b and d early.
MACHINES = {
    "a": Machine(8, 6, 0),
    "b": Machine(3, 16, 5),
    "c": Machine(6, 12, 0),
    "d": Machine(4, 20, 4),
    "e": Machine(2, 9, 1),
}


@pytest.fixture(scope="module")
def cloud() -> Iterator[SchedulerFixture]:
    hosts = [
        racked_host(name, each.vcpus, each.gib, num_instances=each.n_instances)
        for name, each in MACHINES.items()
    ]
    with SchedulerFixture(*hosts, options=OPTIONS) as running:
        yield running


RULES = {
    "none": (None, {}),
    "anti-affinity": ("anti-affinity", {}),
    "two a host": ("anti-affinity", {"max_server_per_host": "2"}),
    "affinity": ("affinity", {}),
    "soft-affinity": ("soft-affinity", {}),
    "soft-anti-affinity": ("soft-anti-affinity", {}),
}
HINTS: dict[str, dict[str, list[str]]] = {
    "anywhere": {},
    "different_rack": {"different_rack": [GROUP]},
    "same_rack": {"same_rack": [GROUP]},
    "max_server_per_rack": {"max_server_per_rack": ["2"]},
    "spread_level": {"spread_level": ["rack"], "max_skew": ["1"]},
    "in_rack": {"in_rack": ["r1", "r3"]},
}


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """A request for several instances."""

    n: int
    vcpus: int
    gib: int
    rule: str
    hint: str

    def spec(self) -> RequestSpec:
        return request(
            num_instances=self.n,
            vcpus=self.vcpus,
            memory_mb=self.gib * GIB,
            root_gb=0,
            scheduler_hints=HINTS[self.hint],
            instance_group=self._group(),
        )

    def _group(self) -> InstanceGroup:
        # A policy that is not known has members, and no rule of its own.
        policy, rules = RULES[self.rule]
        return group(policy or "none", uuid=GROUP, rules=rules)

    def allows(self, on: Counter[str]) -> bool:
        """Return whether the instances may be on these hosts, so many on each."""
        if any(MACHINES[h].room(self.vcpus, self.gib) < n for h, n in on.items()):
            return False
        racks = Counter[str]()
        for name, n in on.items():
            racks[RACKS[name]] += n
        by_rule = {
            "anti-affinity": max(on.values()) == 1,
            "two a host": max(on.values()) <= 2,
            "affinity": len(on) == 1,
        }
        counts = [racks[r] for r in self._racks_that_count()]
        by_hint = {
            "different_rack": max(racks.values()) == 1,
            "same_rack": len(racks) == 1,
            "max_server_per_rack": max(racks.values()) <= 2,
            "spread_level": max(racks.values()) <= min(counts, default=0) + 1,
            "in_rack": "r2" not in racks,
        }
        return by_rule.get(self.rule, True) and by_hint.get(self.hint, True)

    def _racks_that_count(self) -> set[str]:
        """Return the racks with a host that has a candidate and passes the filters."""
        fits = (n for n, m in MACHINES.items() if m.room(self.vcpus, self.gib))
        return {RACKS[name] for name in fits}

    def bonus(self, n_hosts: int) -> float:
        """Return what the soft policy adds for so many different hosts."""
        return {"soft-affinity": -1.0, "soft-anti-affinity": 1.0}.get(
            self.rule, 0.0
        ) * n_hosts


wanted = st.builds(
    Wanted,
    n=st.integers(2, 5),
    vcpus=st.integers(1, 4),
    gib=st.integers(1, 6),
    rule=st.sampled_from(sorted(RULES)),
    hint=st.sampled_from(sorted(HINTS)),
)


def _decided(
    cloud: SchedulerFixture, driver: str, asked: Wanted, **parts_changes: Any
) -> DecisionRecord:
    conf = load([], config_files=[])
    conf.set_override("driver", driver, group="moorage")
    conf.set_override("time_limit", 60.0, group="solver")
    parts = dataclasses.replace(
        cloud.scheduler.parts, driver=load_driver(conf), **parts_changes
    )
    caller = Caller(project_id="project", user_id="user")
    return dry_run(parts, caller, asked.spec(), asked.n)


def _weights(record: DecisionRecord) -> dict[str, float]:
    return {top.host: top.weight for top in record.instances[0].top_hosts}


def _sum(asked: Wanted, weights: dict[str, float], on: Counter[str]) -> float:
    return sum(weights[h] * n for h, n in on.items()) + asked.bonus(len(on))


@examples(1)
@given(wanted)
def test_sum_of_weights_is_the_highest_of_all_placings(
    cloud: SchedulerFixture, asked: Wanted
) -> None:
    every = map(Counter, itertools.combinations_with_replacement(MACHINES, asked.n))
    allowed = [on for on in every if asked.allows(on)]
    solved = _decided(cloud, "solver", asked)
    one_by_one = _decided(cloud, "filter_scheduler", asked)
    if not allowed:
        assert "no placing of all instances" in solved.note
        # One by one, a rack whose hosts a filter rejects by then does not count.
        assert solved.outcome is one_by_one.outcome
        is_spread = asked.hint == "spread_level"
        assert is_spread or solved.outcome is Outcome.NO_VALID_HOST
        return
    assert solved.outcome is Outcome.SELECTED, asked
    assert "highest" in solved.note
    on = Counter(each.host for each in solved.instances)
    assert asked.allows(on)
    weights = _weights(solved)
    assert _sum(asked, weights, on) == pytest.approx(
        max(_sum(asked, weights, each) for each in allowed), abs=1e-6
    )
    if one_by_one.outcome is Outcome.SELECTED:
        other = Counter(each.host for each in one_by_one.instances)
        assert _sum(asked, weights, on) >= _sum(asked, weights, other) - 1e-6
        if asked.hint != "spread_level":
            # It has no first round in which all places count.
            assert weights == pytest.approx(_weights(one_by_one))


# -- without an answer -----------------------------------------------------------------


class _Racing(SystemWaiter):
    """A clock on which a minute passes each time it is read."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        self._now += 60.0
        return self._now


def test_no_time_left_is_the_answer_of_filter_scheduler(
    cloud: SchedulerFixture, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Wanted(3, 1, 1, "none", "anywhere")
    caplog.set_level(logging.INFO)
    late = _decided(cloud, "solver", asked, waiter=_Racing())
    plain = _decided(cloud, "filter_scheduler", asked)
    chosen = [[each.host for each in record.instances] for record in (late, plain)]
    assert chosen[0] == chosen[1]
    reason = "the time limit was reached"
    assert late.note == f"solver: {reason}; filter_scheduler placed 3 of 3 instance(s)"
    line = f"Placing 3 of 3 instance(s) as filter_scheduler does: {reason}"
    assert line in caplog.messages
