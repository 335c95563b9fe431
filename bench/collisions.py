# SPDX-License-Identifier: Apache-2.0
"""How often several schedulers select the same CPUs or devices of a host at once.

Eight schedulers share one Placement, which knows sums of dedicated CPUs and no devices,
and announce their claims to each other. Time is virtual: calls of Placement and the
delay of announcements take the durations of a cloud, whatever this machine takes. A
*collision* is an instance that its compute refuses, because its cells or devices went
to an instance that another scheduler placed at the same time.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

import numpy as np
from rich.console import Console

from moorage.scheduler.conf import load
from moorage.scheduler.drivers.claims.peer_claims import ClaimState, PeerClaim
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.hosts import Consumption, HostRecord, HostTable
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.base import BaseHostSource
from tests.fixtures.virtual_time import VirtualTime

from .canned import CannedResponse
from .counted_placement import CountedPlacement
from .pinned_hosts import KINDS, Compute, Guest, Kind, empty_hosts, provider_of
from .tables import make_table
from .timing import NONE

N_SCHEDULERS: Final = 8
#: The share of the CPUs or devices in use from which on instances are deleted.
FULL: Final = 0.9

#: Seconds of a decision before its claim, and of a call of Placement.
_DECISION_S: Final = (0.002, 0.006)
_CALL_S: Final = (0.02, 0.04)
#: Seconds from a change of a host to its report at the schedulers.
_REPORTED_S: Final = (0.1, 1.0)
_FILTERS: Final = ["ComputeFilter", "NUMATopologyFilter", "PciPassthroughFilter"]
_CONTEXT: Final = {"project_id": "project", "user_id": "user"}


@dataclasses.dataclass(frozen=True, slots=True)
class CollisionPlan:
    """The number of hosts, and of instances that are placed once they are full.

    Attributes
    ----------
    delays_s : tuple of float
        Seconds from a claim to its arrival at the other schedulers, half to one and a
        half times that; None: never.
    """

    n_hosts: int = 60
    n_instances: int = 1_000
    delays_s: tuple[float | None, ...] = (None, 0.1, 0.02, 0.005, 0.001)


@dataclasses.dataclass(frozen=True, slots=True)
class Collisions:
    """What happened with one kind of guests and one delay of announcements.

    Attributes
    ----------
    n_answered : int
        Instances that got a host, once the cloud was full.
    n_collided : int
        Those that their compute refused.
    n_released : int
        Claims that a scheduler released, and tried another host.
    n_without : int
        Requests that got no host.
    """

    kind: str
    delay_s: float | None
    n_answered: int
    n_collided: int
    n_released: int
    n_without: int


def print_collisions(
    console: Console, plan: CollisionPlan, say: Callable[[str], None]
) -> None:
    """Measure and print each kind of guests with each delay of announcements."""
    table = make_table(
        f"Eight schedulers on {plan.n_hosts} hosts that are {FULL:.0%} full",
        "guests need",
        "announced after, ms|answered|collisions|share|released claims|without a host",
        "collisions: instances that their compute refuses, because another scheduler "
        "placed one on the same CPUs or devices at the same time. Virtual time: "
        "20 to 40 ms for each call of Placement.",
    )
    for kind, delay_s in itertools.product(KINDS, plan.delays_s):
        say(f"{kind.name}, announced after {_ms(delay_s)} ms")
        found = collisions(kind, delay_s, plan)
        table.add_row(
            kind.name, _ms(delay_s), f"{found.n_answered:,}", str(found.n_collided),
            f"{found.n_collided / found.n_answered:.2%}", str(found.n_released),
            str(found.n_without),
        )  # fmt: skip
    console.print(table)


def _ms(delay_s: float | None) -> str:
    return NONE if delay_s is None else f"{1000 * delay_s:g}"


def collisions(
    kind: Kind, delay_s: float | None, plan: CollisionPlan, *, seed_: int = 1
) -> Collisions:
    """Place instances through eight schedulers; return how often two collided."""
    rng = random.Random(seed_)
    with VirtualTime(rng) as virtual:
        cloud = _Cloud(kind, delay_s, plan, virtual, rng)
        users = [
            virtual.spawn(functools.partial(cloud.use, node), name=f"user {node.name}")
            for node in cloud.nodes
        ]
        for user in users:
            user.join()
        if virtual.failures:
            raise RuntimeError(f"a scheduler failed: {virtual.failures[0]}")
        return cloud.outcome()


class _Source(BaseHostSource):
    """Hosts that report on their own."""

    def __init__(self, hosts: Collection[HostRecord]) -> None:
        super().__init__()
        self._hosts = hosts

    def start(self, table: HostTable) -> None:
        """Fill the table."""
        for each in self._hosts:
            table.put(each, ())


class _Inbox:
    """Messages that are delivered once they are due."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._numbers = itertools.count()
        self._messages: list[tuple[float, int, Callable[[], object]]] = []

    def add(self, after_s: float, deliver: Callable[[], object]) -> None:
        due = self._now() + after_s
        heapq.heappush(self._messages, (due, next(self._numbers), deliver))

    def deliver(self) -> None:
        while self._messages and self._messages[0][0] <= self._now():
            heapq.heappop(self._messages)[2]()


class _SlowPlacement:
    """Placement at the distance of a cloud's."""

    def __init__(
        self,
        adapter: CountedPlacement,
        virtual: VirtualTime,
        rng: random.Random,
        inbox: _Inbox,
    ) -> None:
        self._adapter = adapter
        self._virtual = virtual
        self._rng = rng
        self._inbox = inbox

    def __getattr__(self, verb: str) -> Callable[..., CannedResponse]:
        call = getattr(self._adapter, verb)

        def slow(url: str, **options: object) -> CannedResponse:
            duration_s = self._rng.uniform(*_CALL_S)
            self._virtual.sleep(duration_s / 2)
            answer: CannedResponse = call(url, **options)
            self._virtual.sleep(duration_s / 2)
            self._inbox.deliver()
            return answer

        return slow


class _Node:
    """One scheduler and its messages."""

    def __init__(
        self,
        number: int,
        hosts: Collection[HostRecord],
        adapter: CountedPlacement,
        virtual: VirtualTime,
        rng: random.Random,
    ) -> None:
        self.name = str(number)
        self.inbox = _Inbox(virtual)
        self._reported: dict[str, int] = {}
        conf = load([], config_files=[])
        conf.set_override("enabled_filters", _FILTERS, "filter_scheduler")
        conf.set_override("candidates_max_age", 1.0, "moorage")
        self.scheduler: Scheduler = build(
            conf,
            placement=_SlowPlacement(adapter, virtual, rng, self.inbox),
            source=_Source(hosts),
            clock=virtual,
            waiter=virtual,
            spawner=virtual,
            rng=np.random.default_rng(number),
        )
        self.scheduler.lifecycle.load()

    def put(self, number: int, host: HostRecord, instances: Sequence[str]) -> None:
        """Apply a report, unless a later one of the host came before."""
        if self._reported.get(host.uuid, 0) < number:
            self._reported[host.uuid] = number
            self.scheduler.table.put(host, instances)


class _Cloud:
    """Computes, eight schedulers, and users that keep the computes full."""

    def __init__(
        self,
        kind: Kind,
        delay_s: float | None,
        plan: CollisionPlan,
        virtual: VirtualTime,
        rng: random.Random,
    ) -> None:
        hosts = list(empty_hosts(plan.n_hosts))
        self._kind = kind
        self._virtual = virtual
        self._delay_s = delay_s
        self._plan = plan
        self._rng = rng
        adapter: Any = CountedPlacement(provider_of(host, kind) for host in hosts)
        self._client = PlacementClient(adapter)
        self._computes = {host.uuid: Compute(host) for host in hosts}
        self._amounts: dict[str, int] = {}
        self._nodes_of: dict[str, str] = {}
        self._consumed: dict[str, Consumption] = {}
        self._counts: Counter[str] = Counter()
        self._numbers = itertools.count(1)
        self._is_full = False
        self.nodes = [
            _Node(number, hosts, adapter, virtual, rng)
            for number in range(N_SCHEDULERS)
        ]
        for node in self.nodes:
            node.scheduler.publish_claims = functools.partial(self._announce, node)

    def use(self, node: _Node) -> None:
        """Request instances from one scheduler until enough were placed."""
        while self._counts["answered"] < self._plan.n_instances:
            self._make_room()
            uuid = f"{self._rng.getrandbits(128):032x}"
            uuid = "-".join(
                uuid[a:b] for a, b in itertools.pairwise((0, 8, 12, 16, 20, 32))
            )
            self._request(node, self._kind.guest(self._rng, uuid))

    def _make_room(self) -> None:
        total = len(self._computes) * self._kind.total
        while sum(self._amounts.values()) >= FULL * total:
            self._is_full = True
            self._delete(self._rng.choice(list(self._amounts)))

    def _delete(self, uuid: str) -> None:
        del self._amounts[uuid]
        self._computes[self._nodes_of[uuid]].delete(uuid)
        self._client.delete_allocations(uuid)
        self._report(self._nodes_of.pop(uuid))

    def _request(self, node: _Node, guest: Guest) -> None:
        was_full = self._is_full
        node.inbox.deliver()
        try:
            answer: Any = node.scheduler.select_destinations(
                _CONTEXT, guest.spec, [guest.uuid], return_objects=True
            )
        except NoValidHost:
            self._counts["without"] += was_full
            return
        finally:
            record = node.scheduler.decisions.newest(1)[0]
            n_released = sum(each.result == "collided" for each in record.claims)
            self._counts["released"] += was_full * n_released
        self._counts["answered"] += was_full
        self._build(guest, answer[0][0].compute_node_uuid, is_counted=was_full)

    def _build(self, guest: Guest, node_uuid: str, *, is_counted: bool) -> None:
        """Have a compute build a guest; a conductor deletes what it refuses."""
        if self._computes[node_uuid].build(guest.uuid, self._consumed.pop(guest.uuid)):
            self._amounts[guest.uuid] = guest.amount
            self._nodes_of[guest.uuid] = node_uuid
        else:
            self._counts["collided"] += is_counted
            self._client.delete_allocations(guest.uuid)
            self._forget(node_uuid, guest.uuid)
        self._report(node_uuid)

    def _announce(self, origin: _Node, claims: Sequence[PeerClaim]) -> None:
        self._consumed.update((c.instance_uuid, c.consumption) for c in claims)
        if claims[0].state is ClaimState.RESERVED:
            self._virtual.sleep(self._rng.uniform(*_DECISION_S))
        if self._delay_s is None:
            return
        wire = [claim.to_wire() for claim in claims]
        for node in self._others(origin):
            node.inbox.add(
                self._delay_s * self._rng.uniform(0.5, 1.5),
                functools.partial(node.scheduler.apply_peer_claims, wire),
            )

    def _others(self, origin: _Node) -> Iterator[_Node]:
        return (node for node in self.nodes if node is not origin)

    def _report(self, node_uuid: str) -> None:
        host, instances = self._computes[node_uuid].report()
        number = next(self._numbers)
        for node in self.nodes:
            node.inbox.add(
                self._rng.uniform(*_REPORTED_S),
                functools.partial(node.put, number, host, instances),
            )

    def _forget(self, node_uuid: str, uuid: str) -> None:
        name = self._computes[node_uuid].report()[0].host
        for node in self.nodes:
            node.inbox.add(
                _REPORTED_S[1],
                functools.partial(node.scheduler.table.claims.release, name, uuid),
            )

    def outcome(self) -> Collisions:
        """Return the counts."""
        counts = self._counts
        return Collisions(
            self._kind.name, self._delay_s, counts["answered"], counts["collided"],
            counts["released"], counts["without"],
        )  # fmt: skip
