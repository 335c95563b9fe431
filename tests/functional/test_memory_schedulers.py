# SPDX-License-Identifier: Apache-2.0
"""Eight schedulers with providers in memory: no overcommitment, no false NoValidHost.

One cloud is filled by them alone. In the other, a writer on Placement's API takes and
frees what they need, and no other message says so.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from moorage.scheduler.conf import load
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.placement.adapter import Verb
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.service import Scheduler, build

from ..fixtures.clouds import CONTEXT, host, request
from ..fixtures.database_servers import Database
from ..fixtures.placement_servers import adapter_to
from .claimer import Load
from .claimers import (
    N_SCHEDULERS,
    Claimers,
    Cloud,
    cloud_of,
    expect_held_is_answered,
    most_used,
)

#: Requests of each scheduler in the cloud that is filled.
N_REQUESTS = int(os.environ.get("MOORAGE_STRESS_REQUESTS", "19"))
VCPUS_A_HOST = 20

#: Of the cloud with a writer: few enough that it is full most of the time.
N_HOSTS = 6
#: Whichever comes first: so many refusals, or so many seconds.
N_REFUSALS = 40
MAX_S = 20.0
#: Claims of the writer between two checks of what is held.
N_WRITES = 20

pytestmark = [
    pytest.mark.deep,
    pytest.mark.database,
    pytest.mark.xdist_group("functional"),
    pytest.mark.timeout(600),
]


def test_cloud_is_filled_to_95_percent_with_few_refusals(tmp_path: Path) -> None:
    task = Load(N_REQUESTS)
    n_hosts = round(N_SCHEDULERS * N_REQUESTS / (0.95 * VCPUS_A_HOST))
    hosts = [host(f"h{i}", vcpus=VCPUS_A_HOST) for i in range(n_hosts)]
    with (
        cloud_of(Database.MARIADB, tmp_path, hosts) as cloud,
        Claimers(cloud, tmp_path, task, timeout_s=120, in_memory=True) as claimers,
    ):
        claimers.start_all()
        outcome = claimers.finished()
        print(f"\n{outcome}")  # pytest shows it with -s or -rP
        expect_held_is_answered(cloud, outcome)
        assert most_used(cloud) <= VCPUS_A_HOST
    assert outcome.n_placed == N_SCHEDULERS * N_REQUESTS, "there was room for all"
    # On two busy cores 0.08 of all claims here, and 0.03 on six times the hosts.
    assert outcome.claims["refused"] <= 0.3 * outcome.n_placed


@dataclass(slots=True)
class Held:
    """What a consumer may have held on a host, and from when until when."""

    node: str
    vcpus: int
    begins: float
    ends: float = float("inf")


@dataclass(slots=True)
class Refusal:
    """A request that was answered with NoValidHost."""

    vcpus: int
    began: float
    ended: float


@dataclass(slots=True)
class History:
    """What may have been held at any time; each list is appended to by threads."""

    held: list[Held] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def was_false(self, refusal: Refusal, nodes: list[str]) -> bool:
        """Return whether some host had room at each moment of a request."""
        overlapping = [
            each
            for each in self.held
            if each.begins <= refusal.ended and each.ends >= refusal.began
        ]
        times = {refusal.began, refusal.ended}
        times |= {
            at
            for at in chain.from_iterable((h.begins, h.ends) for h in overlapping)
            if refusal.began < at < refusal.ended
        }
        moments = [(a + b) / 2 for a, b in pairwise(sorted(times))]
        return all(
            self._has_room(at, refusal.vcpus, overlapping, nodes) for at in moments
        )

    def _has_room(
        self, at: float, vcpus: int, overlapping: list[Held], nodes: list[str]
    ) -> bool:
        used = Counter[str]()
        for each in overlapping:
            if each.begins <= at <= each.ends:
                used[each.node] += each.vcpus
        return any(used[node] + vcpus <= VCPUS_A_HOST for node in nodes)


class RandomClaimer:
    """Take, move and free vCPUs at random over Placement's API."""

    def __init__(self, cloud: Cloud, history: History, seed: int) -> None:
        self._client = PlacementClient(adapter_to(cloud.server.url))
        self._nodes = list(cloud.hosts)
        self._history = history
        self._rng = Random(seed)
        self._mine: dict[str, Held] = {}

    def write(self) -> None:
        share = self._rng.random()
        if self._mine and share < 0.45:
            self._free()
        elif self._mine and share < 0.6:
            self._put(self._rng.choice(list(self._mine)))
        else:
            self._put(str(uuid.uuid4()))

    def _put(self, consumer: str) -> None:
        node, vcpus = self._rng.choice(self._nodes), self._rng.choice((1, 2, 4, 8))
        before = self._mine.get(consumer)
        held = Held(node, vcpus, time.monotonic())
        self._history.held.append(held)
        body = {
            "allocations": {node: {"resources": {"VCPU": vcpus}}},
            "project_id": "project",
            "user_id": "user",
            "consumer_generation": self._generation(consumer) if before else None,
        }
        answer = self._client.write(Verb.PUT, f"/allocations/{consumer}", body)
        self._history.counts[f"writer: {answer.status}"] += 1
        if answer.status >= 300:
            held.ends = time.monotonic()
            return
        if before:
            before.ends = time.monotonic()
        self._mine[consumer] = held

    def _generation(self, consumer: str) -> int | None:
        return self._client.allocations(consumer).consumer_generation

    def _free(self) -> None:
        consumer = self._rng.choice(list(self._mine))
        self._client.delete_allocations(consumer)
        self._mine.pop(consumer).ends = time.monotonic()
        self._history.counts["writer: freed"] += 1


@contextmanager
def schedulers_of(cloud: Cloud) -> Iterator[list[Scheduler]]:
    """Yield eight schedulers that know nothing of each other."""
    with ExitStack() as stack:
        made = []
        for _ in range(N_SCHEDULERS):
            conf = load([], config_files=[])
            conf.set_override("inventory_file", str(cloud.inventory_file), "moorage")
            conf.set_override("candidates", "memory", "moorage")
            url = cloud.server.database_url
            conf.set_override("connection", url, group="placement_database")
            scheduler = build(conf, placement=adapter_to(cloud.server.url))
            stack.callback(scheduler.stop)
            scheduler.start()
            made.append(scheduler)
        yield made


def decide(
    scheduler: Scheduler, history: History, rng: Random, stopping: threading.Event
) -> None:
    """Request instances and delete them later, until it is time to stop."""
    mine: list[tuple[str, Held]] = []
    while not stopping.is_set():
        if len(mine) > 3:
            consumer, held = mine.pop(rng.randrange(len(mine)))
            scheduler.placement.delete_allocations(consumer)
            held.ends = time.monotonic()
        vcpus, consumer = rng.choice((2, 4, 8)), str(uuid.uuid4())
        began = time.monotonic()
        wanted = request(vcpus=vcpus, memory_mb=64, root_gb=1)
        try:
            answer: Any = scheduler.select_destinations(
                CONTEXT, wanted, [consumer], return_objects=True
            )
        except NoValidHost:
            refusal = Refusal(vcpus, began, time.monotonic())
            history.refusals.append(refusal)
        else:
            node = answer[0][0].compute_node_uuid
            held = Held(node, vcpus, began)
            history.held.append(held)
            mine.append((consumer, held))


def test_nothing_is_over_capacity_and_each_refusal_was_true(tmp_path: Path) -> None:
    hosts = [host(f"h{i}", vcpus=VCPUS_A_HOST) for i in range(N_HOSTS)]
    history, stopping = History(), threading.Event()
    with (
        cloud_of(Database.MARIADB, tmp_path, hosts) as cloud,
        schedulers_of(cloud) as schedulers,
        ThreadPoolExecutor(N_SCHEDULERS) as pool,
    ):
        running = [
            pool.submit(decide, scheduler, history, Random(i), stopping)
            for i, scheduler in enumerate(schedulers)
        ]
        writer = RandomClaimer(cloud, history, seed=19)
        ends_at = time.monotonic() + MAX_S
        try:
            while len(history.refusals) < N_REFUSALS and time.monotonic() < ends_at:
                for _ in range(N_WRITES):
                    writer.write()
                assert most_used(cloud) <= VCPUS_A_HOST
        finally:
            stopping.set()
        for each in running:
            each.result()
        nodes = list(cloud.hosts)
    false = [each for each in history.refusals if history.was_false(each, nodes)]
    n_placed = len(history.held) - sum(history.counts.values())
    print(f"\n{n_placed} placed, {len(history.refusals)} refused, {len(false)} falsely")
    print(dict(history.counts))
    assert history.refusals, "the cloud was never full"
    assert not false
