# SPDX-License-Identifier: Apache-2.0
"""Whatever order reports come in, and whichever are lost, the table ends right."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.objects import ReportKind, report_primitive
from moorage.scheduler.hosts import (
    COLUMNS,
    Consumption,
    HostPools,
    HostRecord,
    HostTopology,
)
from moorage.testing.builders import (
    NOW,
    host,
    instance_uuid,
    node_uuid,
    numa_cell,
    numa_topology,
    pages,
    pci_pool,
    pci_pools,
)

from ....fixtures.property_tests import examples
from .conftest import Clock, Scheduler, Wire

NODE = node_uuid("h1")
DATA = "moorage_object.data"
A, B, C = map(instance_uuid, "abc")

RICH = host(
    host="h1",
    stats={"io_workload": "3"},
    metrics={"cpu.percent": 0.5},
    numa_topology=HostTopology.read(numa_topology(numa_cell(0), numa_cell(1))),
    pci_stats=HostPools.read(
        pci_pools(pci_pool(2), pci_pool(3, product_id="1521", trusted="true"))
    ),
    host_ip="192.0.2.7",
    disabled=True,
    cpu_allocation_ratio=4.0,
    service_version=70,
    num_instances=2,
)


def row_of(record: HostRecord, seen: float = NOW) -> dict[str, Any]:
    return {name: getattr(record, name) for name in COLUMNS} | {"last_seen_up": seen}


def test_every_column_gets_to_the_table(scheduler: Scheduler, wire: Wire) -> None:
    wire.reporter.report(RICH, [A, B])
    scheduler.receive(*wire.casts())
    assert scheduler.row(NODE) == row_of(RICH)
    assert scheduler.table.instances.of_host("h1") == {A, B}


def test_every_column_gets_there_by_deltas_too(
    scheduler: Scheduler, wire: Wire
) -> None:
    plain = host(host="h1")
    for record in (plain, RICH, plain):
        wire.reporter.report(record)
        scheduler.receive(*wire.casts())
        assert scheduler.row(NODE) == row_of(record)
    assert scheduler.source.counts.whole == 1
    assert scheduler.source.counts.deltas == 2


def test_sign_of_life_has_its_time_of_arrival(
    scheduler: Scheduler, wire: Wire, clock: Clock
) -> None:
    for _ in range(3):
        clock.now += 10
        wire.reporter.report(host(host="h1"))
        scheduler.receive(*wire.casts())
        assert scheduler.value(NODE, "last_seen_up") == clock.now
        assert scheduler.source.seen_at() == clock.now
    assert scheduler.source.counts.deltas == 0
    assert scheduler.source.counts.alive == 2, "the first one is a whole report"


def test_instances_come_and_go(scheduler: Scheduler, wire: Wire) -> None:
    for its in ([A], [A, B], [B, C], []):
        wire.reporter.report(host(host="h1"), its)
        scheduler.receive(*wire.casts())
        assert scheduler.table.instances.of_host("h1") == set(its)


LINUX, WINDOWS = {"os_type": "linux"}, {"os_type": "windows"}


def n_linux(scheduler: Scheduler) -> float:
    """How many instances of the host run Linux."""
    batch = scheduler.table.batch([NODE])
    return float(batch.sum_image_properties({("os_type", "linux"): 1.0})[0])


def test_image_properties_come_and_go(
    scheduler: Scheduler, wire: Wire, make: Callable[..., Scheduler]
) -> None:
    for properties, n in (
        ({A: LINUX, B: LINUX}, 2),
        ({A: LINUX, B: WINDOWS}, 1),
        ({A: LINUX, B: WINDOWS, C: LINUX}, 2),
        ({A: LINUX, C: {}}, 1),
    ):
        wire.reporter.report(host(host="h1"), properties)
        scheduler.receive(*wire.casts())
        assert n_linux(scheduler) == n
    scheduler.source.start_polling(scheduler.table)
    scheduler.source.stop()
    assert n_linux(make()) == 1, "a restarted scheduler reads them from the store"
    wire.restart()
    wire.reporter.report(host(host="h1"), {A: WINDOWS, C: LINUX, B: LINUX})
    scheduler.receive(*wire.casts())
    assert n_linux(scheduler) == 2


def test_report_without_image_properties_leaves_them(
    scheduler: Scheduler, wire: Wire
) -> None:
    """As an agent of an earlier version sends it; a claim has set them."""
    claim = dataclasses.replace(CLAIM, image_properties=frozenset(LINUX.items()))
    wire.reporter.report(host(host="h1"), [])
    scheduler.receive(*wire.casts())
    scheduler.table.claims.consume(NODE, A, claim)
    wire.reporter.report(host(host="h1"), [A])
    scheduler.receive(*wire.casts())
    wire.restart()
    wire.reporter.report(host(host="h1"), [A])
    scheduler.receive(*wire.casts())
    assert n_linux(scheduler) == 1


def test_nodes_of_one_host_have_their_instances_together(
    scheduler: Scheduler, wire: Wire
) -> None:
    one, two = (host(host="h1", nodename=name) for name in ("n1", "n2"))
    wire.reporter.report_many([(one, [A]), (two, [B])])
    wire.reporter.report(one, [C])
    scheduler.receive(*wire.casts())
    assert scheduler.table.instances.of_host("h1") == {B, C}


def test_renamed_host_leaves_its_old_name(scheduler: Scheduler, wire: Wire) -> None:
    old = host(host="h1")
    wire.reporter.report(old, [A])
    wire.reporter.report(dataclasses.replace(old, host="h2"), [A])
    scheduler.receive(*wire.casts())
    assert scheduler.value(NODE, "host") == "h2"
    assert scheduler.table.instances.of_host("h1") == frozenset()
    assert scheduler.table.instances.of_host("h2") == {A}


CLAIM = Consumption(memory_mb=1024, disk_mb=10240, vcpus=1)


@pytest.mark.parametrize("is_whole", [True, False], ids=["whole", "delta"])
def test_claim_is_settled_by_the_report_that_has_it(
    scheduler: Scheduler, wire: Wire, is_whole: bool
) -> None:
    before = host(host="h1")
    wire.reporter.report(before)
    scheduler.receive(*wire.casts())
    scheduler.table.claims.consume(NODE, A, CLAIM)
    wire.reporter.report(dataclasses.replace(before, num_io_ops=2))
    scheduler.receive(*wire.casts())
    # The host has not built it yet: it stays on top of what is reported.
    assert scheduler.value(NODE, "free_ram_mb") == before.free_ram_mb - 1024
    after = dataclasses.replace(before, free_ram_mb=before.free_ram_mb - 1000)
    if is_whole:
        wire.restart()
    wire.reporter.report(after, [A])
    scheduler.receive(*wire.casts())
    assert scheduler.row(NODE) == row_of(after)
    assert scheduler.table.claims.unreported() == ()
    assert scheduler.table.instances.of_host("h1") == {A}


def test_deltas_of_one_cast_are_applied_in_order(
    scheduler: Scheduler, wire: Wire
) -> None:
    """A whole report, deltas on top, another incarnation, all at once."""
    for free in (5, 6, 7):
        wire.reporter.report(host(host="h1", free_ram_mb=free), [A] * (free % 2))
    wire.restart()
    for free in (8, 9):
        wire.reporter.report(host(host="h1", free_ram_mb=free), [B])
    scheduler.receive(*wire.casts())
    assert scheduler.value(NODE, "free_ram_mb") == 9
    assert scheduler.table.instances.of_host("h1") == {B}


# -- what cannot be used ---------------------------------------------------------------


def _with(report: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**report, DATA: {**report[DATA], **changes}}


BAD = [
    ("free_ram_mb", "much"),
    ("free_ram_mb", 2**63),
    ("free_ram_mb", True),
    ("free_ram_mb", 1.0),
    ("vcpus_total", -1),
    ("cpu_allocation_ratio", 0),
    ("cpu_allocation_ratio", float("nan")),
    ("disabled", 1),
    ("stats", {"io_workload": 3}),
    ("metrics", {"cpu": "high"}),
    ("metrics", {"cpu": float("inf")}),
    ("supported_instances", [["x86_64", "kvm"]]),
    ("numa_topology", "{"),
    ("numa_topology", "[" * 100_000),
    ("pci_stats", '[{"vendor_id": "8086"}]'),
    ("host_ip", 7),
]
BAD_WHOLE = [
    *BAD,
    ("host", ""),
    ("cell_uuid", "cell1"),
    ("instances", "none"),
    ("instances", [7]),
    ("revision", -1),
    ("revision", None),
    ("incarnation", "first"),
    ("image_properties", {"os_type": "linux"}),
    ("image_properties", [{"properties": {"os_type": "linux"}}]),
    ("image_properties", [{"properties": {"os_type": 7}, "instances": []}]),
]


@pytest.mark.parametrize(("name", "value"), BAD_WHOLE)
def test_bad_whole_report_is_refused_by_name(
    scheduler: Scheduler,
    wire: Wire,
    caplog: pytest.LogCaptureFixture,
    name: str,
    value: Any,
) -> None:
    wire.reporter.report_many([(host(host="h1"), ()), (host(host="h2"), ())])
    bad, good = wire.casts()
    scheduler.receive(_with(bad, **{name: value}), good)
    assert not scheduler.table.has_node(NODE)
    assert scheduler.table.has_node(node_uuid("h2"))
    assert scheduler.source.counts.refused == 1
    assert name in caplog.text
    assert "h1" in caplog.text or name == "host"


@pytest.mark.parametrize(
    ("changes"),
    [
        *({"changes": {"vcpus_used": 7, name: value}} for name, value in BAD),
        {"changes": [1]},
        {"changes": {"host": "other"}},
        {"instances_added": ["x"]},
        {"instances_removed": 7},
        {"image_properties": [7]},
        {"since": "1"},
        {"revision": -3},
    ],
    ids=repr,
)
def test_bad_delta_changes_nothing(
    scheduler: Scheduler, wire: Wire, changes: dict[str, Any]
) -> None:
    record = host(host="h1")
    wire.reporter.report(record, [A])
    scheduler.receive(*wire.casts())
    wire.reporter.report(dataclasses.replace(record, vcpus_used=3), [B])
    (delta,) = wire.casts()
    scheduler.receive(_with(delta, **changes))
    assert scheduler.row(NODE) == row_of(record)
    assert scheduler.table.instances.of_host("h1") == {A}
    assert scheduler.source.counts.refused == 1


def test_missing_column_is_reported(
    scheduler: Scheduler, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    wire.reporter.report(host(host="h1"))
    (report,) = wire.casts()
    del report[DATA]["free_disk_mb"]
    scheduler.receive(report)
    assert "host 'h1': free_disk_mb: not reported" in caplog.text


def test_refusal_is_logged_once_until_it_is_mended(
    scheduler: Scheduler, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    wire.reporter.report(host(host="h1"))
    (good,) = wire.casts()
    bad = _with(good, disabled="no")
    scheduler.receive(bad, bad)
    scheduler.receive(bad)
    assert caplog.text.count("is refused") == 1
    (_, note) = scheduler.source.notes()
    assert "1 host cannot be used" in note
    scheduler.receive(good)
    assert caplog.text.count("are accepted again") == 1
    assert scheduler.source.notes() == list(scheduler.source.unknowns())
    scheduler.receive(_with(bad, revision=9))
    assert caplog.text.count("is refused") == 2
    assert scheduler.source.counts.refused == 4


def test_refusal_is_forgotten_like_a_silent_host(
    make: Callable[..., Scheduler], clock: Clock
) -> None:
    scheduler = make(forget_hosts_after=1000)
    scheduler.receive(None)
    assert len(scheduler.source.notes()) == 2
    clock.now += 2000
    scheduler.hosts.forget_lost()
    assert scheduler.source.notes() == list(scheduler.source.unknowns())


@pytest.mark.parametrize("forget_hosts_after", [0, 86400])
def test_refusal_of_no_known_host_ends_once_no_more_such_messages_come(
    make: Callable[..., Scheduler], wire: Wire, clock: Clock, forget_hosts_after: int
) -> None:
    scheduler = make(forget_hosts_after=forget_hosts_after)
    wire.reporter.report_many([(host(host=name), []) for name in ("h1", "h2")])
    good, other = wire.casts()
    scheduler.receive(
        good, None, _with(other, host=7), _with(other, host="h?", uuid="x")
    )
    scheduler.receive(_with(good, disabled="no", revision=9))
    for _ in range(4):
        clock.now += 20
        scheduler.receive(None)
        scheduler.hosts.forget_lost()
    (_, note) = scheduler.source.notes()
    assert "2 hosts cannot be used" in note, "that of h1, and what still comes"
    clock.now += 70
    scheduler.hosts.forget_lost()
    (_, note) = scheduler.source.notes()
    assert "1 host cannot be used" in note
    scheduler.receive(_with(good, revision=10))
    assert scheduler.source.notes() == list(scheduler.source.unknowns())


def test_case_of_uuids_does_not_matter(scheduler: Scheduler, wire: Wire) -> None:
    for used in (1, 2):
        wire.reporter.report(host(host="h1", vcpus_used=used))
    for report in wire.casts():
        upper = {k: report[DATA][k].upper() for k in ("uuid", "incarnation")}
        scheduler.receive(_with(report, **upper))
    assert scheduler.value(NODE, "vcpus_used") == 2


def test_newer_agent_is_understood_as_far_as_it_is_known(
    scheduler: Scheduler, wire: Wire
) -> None:
    wire.reporter.report(host(host="h1"))
    wire.reporter.report(host(host="h1", vcpus_used=5))
    whole, delta = wire.casts()
    delta[DATA]["changes"]["colour"] = "blue"
    for report in (whole, delta):
        report["moorage_object.version"] = "1.9"
        report[DATA]["tides"] = ["low"]
    scheduler.receive(whole, delta)
    assert scheduler.value(NODE, "vcpus_used") == 5
    assert scheduler.source.counts.refused == 0


def test_objects_and_their_texts_are_accepted(scheduler: Scheduler, wire: Wire) -> None:
    cells = numa_topology(numa_cell(0, mempages=[pages(4, 1 << 20)]))
    pools = pci_pools(pci_pool(2))
    wire.reporter.report(host(host="h1"))
    (report,) = wire.casts()
    for topology, stats in ((cells, pools), (cells.obj_to_primitive(), [])):
        scheduler.receive(
            _with(report, numa_topology=topology, pci_stats=stats, revision=2)
        )
        assert scheduler.value(NODE, "numa_topology") == HostTopology.read(cells)


@pytest.mark.parametrize("reports", [None, 7, "x", {"a": 1}, [None, 7, {}, []]])
def test_invalid_values_are_left_out(scheduler: Scheduler, reports: Any) -> None:
    endpoint: Any
    (endpoint,) = scheduler.source.endpoints
    endpoint.host_reports({}, reports)
    assert len(scheduler.table) == 0


# -- lost, duplicate and late messages ---------------------------------------------

STATE = st.builds(
    lambda free, used, ips, its: (
        host(host="h1", free_ram_mb=free, vcpus_used=used, host_ip=ips),
        its,
    ),
    st.integers(-3, 3),
    st.integers(0, 2),
    st.sampled_from([None, "192.0.2.1"]),
    st.sets(st.sampled_from([A, B, C])),
)
#: What happens next: a new state, a new start, a message that arrives (and stays on
#: the wire, to come again, or not), one that is lost.
STEP = st.one_of(
    st.tuples(st.just("report"), STATE),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("deliver"), st.tuples(st.integers(0, 9), st.booleans())),
    st.tuples(st.just("lose"), st.integers(0, 9)),
)


class LossyWire:
    """A scheduler, an agent, and a wire on which anything may happen."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.wire = Wire()
        self.on_the_way: list[dict[str, Any]] = []
        self.state: tuple[HostRecord, set[str]] = (host(host="h1"), set())
        self.requested: list[tuple[str, ...]] = []
        scheduler.source.connect(self._request_report)

    def _request_report(self, *request: str) -> bool:
        self.requested.append(request)
        return True

    def report(self) -> None:
        self.wire.reporter.report(*self.state)
        self.on_the_way += self.wire.casts()

    def go(self, kind: str, what: Any) -> None:
        if kind == "report":
            self.state = what
            self.report()
        elif kind == "restart":
            self.wire.restart()
            self.report()
        elif self.on_the_way and kind == "lose":
            self.on_the_way.pop(what % len(self.on_the_way))
        elif self.on_the_way:
            index, is_kept = what
            index %= len(self.on_the_way)
            self.scheduler.receive(self.on_the_way[index])
            if not is_kept:
                self.on_the_way.pop(index)

    def is_right(self) -> bool:
        record, its = self.state
        return (
            self.scheduler.row(NODE) == row_of(record)
            and self.scheduler.table.instances.of_host("h1") == its
        )


@pytest.mark.deep
@given(steps=st.lists(STEP, max_size=30))
@examples(2)
def test_one_whole_report_repairs_all(steps: list[Any]) -> None:
    scheduler = Scheduler("sqlite:///:memory:", Clock())
    lossy = LossyWire(scheduler)
    for step in steps:
        lossy.go(*step)
    lossy.report()
    lossy.wire.reporter.send_whole_report(NODE)
    scheduler.receive(*lossy.wire.casts())
    assert lossy.is_right()
    scheduler.source.stop()


@given(steps=st.lists(STEP, max_size=30))
@examples(2)
def test_next_sign_of_life_repairs_all_by_a_report_request(
    steps: list[Any],
) -> None:
    """All messages in transit are lost; the agent continues as usual."""
    scheduler = Scheduler("sqlite:///:memory:", Clock())
    lossy = LossyWire(scheduler)
    requester = scheduler.requester
    now = requester._clock()  # noqa: SLF001 - a monotonic clock, which nothing sets
    requester._clock = lambda: now  # noqa: SLF001 - as above
    for step in steps:
        lossy.go(*step)
    lossy.on_the_way.clear()
    lossy.report()
    scheduler.receive(*lossy.on_the_way)
    now += 60
    requester.send_due()
    for _, _, node in lossy.requested:
        lossy.wire.reporter.send_whole_report(node)
    scheduler.receive(*lossy.wire.casts())
    assert lossy.is_right()
    scheduler.source.stop()


def test_gap_is_detected_and_a_whole_report_requested(
    scheduler: Scheduler, wire: Wire
) -> None:
    wire.reporter.report(host(host="h1"))
    scheduler.receive(*wire.casts())
    wire.reporter.report(host(host="h1", vcpus_used=3))
    wire.casts()  # lost
    wire.reporter.report(host(host="h1", vcpus_used=4))
    scheduler.receive(*wire.casts())
    assert scheduler.source.counts.gaps == 1
    assert scheduler.value(NODE, "vcpus_used") == 2
    assert len(scheduler.requester) == 1
    wire.reporter.send_whole_report(NODE)
    scheduler.receive(*wire.casts())
    assert scheduler.value(NODE, "vcpus_used") == 4
    assert len(scheduler.requester) == 0


def test_report_needs_no_more_than_what_has_no_default(scheduler: Scheduler) -> None:
    needed = ("host", "nodename", "uuid", "cell_uuid")
    amounts = {
        "total_usable_ram_mb": 1,
        "free_ram_mb": 1,
        "total_usable_disk_gb": 1,
        "free_disk_mb": 1,
        "disk_mb_used": 0,
        "vcpus_total": 1,
        "vcpus_used": 0,
    }
    needed_too = {"incarnation": NODE, "revision": 1, "instances": []}
    data = {**dict.fromkeys(needed, NODE), **amounts, **needed_too}
    scheduler.receive(report_primitive(ReportKind.WHOLE, data))
    assert scheduler.value(NODE, "ram_allocation_ratio") == 1.0


def test_claim_received_after_the_report_counts_once(
    scheduler: Scheduler, wire: Wire, clock: Clock
) -> None:
    hosts = scheduler.hosts
    wire.reporter.report(host(host="h1", vcpus_used=2), [A])
    scheduler.receive(*wire.casts())
    # It comes from another scheduler, late, whose clock is wrong.
    scheduler.table.claims.consume(NODE, A, Consumption(1, 1, 2), NOW - 1e6)
    scheduler.table.claims.consume(NODE, B, Consumption(1, 1, 3), NOW - 1e6)
    hosts.end_reported_claims()
    assert scheduler.value(NODE, "vcpus_used") == 7, "it may be a resize in place"
    clock.now += 30
    hosts.end_reported_claims()
    assert scheduler.value(NODE, "vcpus_used") == 7, "nothing was heard of it since"
    clock.now += 5
    wire.reporter.report(host(host="h1", vcpus_used=2), [A])
    scheduler.receive(*wire.casts())
    hosts.end_reported_claims()
    assert scheduler.value(NODE, "vcpus_used") == 5, "no report has the other one"
    assert scheduler.table.instances.of_host("h1") == {A, B}


@pytest.mark.parametrize(
    ("column", "value"),
    [("cpu_allocation_ratio", 10**400), ("metrics", {"cpu.percent": 10**400})],
)
def test_number_that_is_too_large_affects_no_other_report(
    scheduler: Scheduler, wire: Wire, column: str, value: Any
) -> None:
    for name in ("h1", "h2", "h3"):
        wire.reporter.report(host(host=name))
    reports = wire.casts()
    reports[1][DATA][column] = value
    scheduler.receive(*reports)
    assert set(scheduler.table.batch().host) == {"h1", "h3"}
    assert scheduler.source.counts.refused == 1


def test_node_forgotten_by_its_agent_is_accepted_again(
    scheduler: Scheduler, wire: Wire
) -> None:
    for n_used in range(5):
        wire.reporter.report(host(host="h1", vcpus_used=n_used))
    wire.reporter.forget(NODE)
    wire.reporter.report(host(host="h1", vcpus_used=7))
    scheduler.receive(*wire.casts())
    assert scheduler.value(NODE, "vcpus_used") == 7
    assert scheduler.source.counts.old == 0
