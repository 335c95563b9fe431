# SPDX-License-Identifier: Apache-2.0
"""The table does what a plain dict of rows would, and a batch never changes."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from moorage.scheduler.hosts import (
    COLUMNS,
    Consumption,
    HostAggregate,
    HostBatch,
    HostRecord,
    HostTable,
    UnreportedClaim,
)

from ...conftest import aggregate, host, instance_uuid, node_uuid, table
from ...fixtures.property_tests import examples

SMALL = Consumption(memory_mb=512, disk_mb=1024, vcpus=1)

NODES = st.sampled_from(["n1", "n2", "n3", "n4", "n5"])
HOSTS = st.sampled_from(["a", "b", "c"])
INSTANCES = st.sampled_from([instance_uuid(i) for i in range(6)])
AMOUNTS = st.integers(min_value=-100, max_value=2**40)
CHANGES: dict[str, Any] = {
    "free_ram_mb": AMOUNTS,
    "num_io_ops": st.integers(0, 9),
    "disabled": st.booleans(),
    "last_seen_up": st.floats(0, 2e9),
    "hypervisor_type": st.sampled_from(["QEMU", "LXC"]),
    "stats": st.dictionaries(st.sampled_from("xy"), st.sampled_from("12")),
}


def _changed(record: HostRecord, consumption: Consumption) -> HostRecord:
    changes = {n: getattr(record, n) + delta for n, delta in consumption.deltas()}
    return dataclasses.replace(record, **changes)


def _rows(batch: HostBatch) -> list[Any]:
    names = (*COLUMNS, "aggregates")
    return [[batch.value(name, i) for name in names] for i in range(len(batch))]


class Model(RuleBasedStateMachine):
    """The table beside dicts, under any sequence of what can happen to it."""

    def __init__(self) -> None:
        super().__init__()
        self.table = HostTable()
        self.reports: dict[str, HostRecord] = {}
        self.claims: dict[str, dict[str, Consumption]] = {}
        self.aggregates: dict[int, HostAggregate] = {}
        self.instances: dict[str, set[str]] = {}
        self.revision = 0
        self.kept: list[tuple[HostBatch, list[Any]]] = []

    def _nodes_of(self, name: str) -> list[str]:
        return [node for node, record in self.reports.items() if record.host == name]

    def _pending_on(self, name: str) -> set[str]:
        return {u for node in self._nodes_of(name) for u in self.claims.get(node, {})}

    @rule(
        node=NODES,
        free=AMOUNTS,
        stats=st.dictionaries(st.sampled_from("xy"), st.sampled_from("12")),
        reported=st.none() | st.sets(INSTANCES),
    )
    def put(
        self, node: str, free: int, stats: dict[str, str], reported: set[str] | None
    ) -> None:
        name = {"n1": "a", "n2": "b"}.get(node, "c")
        record = host(host=name, nodename=node, free_ram_mb=free, stats=stats)
        self.table.put(record, reported)
        self.reports[record.uuid] = record
        mine = self.claims.setdefault(record.uuid, {})
        for uuid in reported or ():
            mine.pop(uuid, None)
        if reported is not None:
            self.instances[name] = reported | self._pending_on(name)

    @rule(changes=st.dictionaries(NODES, st.fixed_dictionaries({}, optional=CHANGES)))
    def change_many(self, changes: dict[str, dict[str, Any]]) -> None:
        by_uuid = {node_uuid(node): values for node, values in changes.items()}
        unknown = self.table.change_many(by_uuid)
        assert set(unknown) == by_uuid.keys() - self.reports.keys()
        for uuid in by_uuid.keys() & self.reports.keys():
            record = dataclasses.replace(self.reports[uuid], **by_uuid[uuid])
            self.reports[uuid] = record

    @rule(node=NODES, uuids=st.sets(INSTANCES))
    def settle(self, node: str, uuids: set[str]) -> None:
        self.table.claims.mark_reported(node_uuid(node), uuids)
        for uuid in uuids:
            self.claims.get(node_uuid(node), {}).pop(uuid, None)

    @rule(node=NODES)
    def drop(self, node: str) -> None:
        self.table.drop(node_uuid(node))
        if self.reports.pop(node_uuid(node), None):
            self.claims.pop(node_uuid(node), None)

    @rule(node=NODES, uuid=INSTANCES, memory_mb=st.integers(0, 4096))
    def consume(self, node: str, uuid: str, memory_mb: int) -> None:
        consumption = dataclasses.replace(SMALL, memory_mb=memory_mb)
        self.table.claims.consume(node_uuid(node), uuid, consumption)
        if record := self.reports.get(node_uuid(node)):
            self.claims[record.uuid].setdefault(uuid, consumption)
            self.instances.setdefault(record.host, set()).add(uuid)

    @rule(name=HOSTS, uuid=INSTANCES)
    def release_claim(self, name: str, uuid: str) -> None:
        self.table.claims.release(name, uuid)
        self.instances.get(name, set()).discard(uuid)
        for node in self._nodes_of(name):
            self.claims[node].pop(uuid, None)

    @rule(name=HOSTS, uuids=st.sets(INSTANCES))
    def set_instances(self, name: str, uuids: set[str]) -> None:
        self.table.set_instances(name, uuids)
        self.instances[name] = uuids | self._pending_on(name)

    @rule(name=HOSTS, uuids=st.sets(INSTANCES))
    def add_instances(self, name: str, uuids: set[str]) -> None:
        self.table.add_instances(name, uuids)
        self.instances.setdefault(name, set()).update(uuids)
        self._end_builds(name, uuids)

    def _end_builds(self, name: str, uuids: set[str]) -> None:
        for claims in (self.claims.get(node, {}) for node in self._nodes_of(name)):
            for uuid in claims.keys() & uuids:
                claims[uuid] = dataclasses.replace(claims[uuid], io_ops=0)

    @rule(number=st.integers(1, 3), names=st.sets(HOSTS), zone=st.sampled_from("xy"))
    def put_aggregate(self, number: int, names: set[str], zone: str) -> None:
        made = aggregate(number, *names, availability_zone=zone)
        self.table.put_aggregate(made)
        self.aggregates[number] = made

    @rule(number=st.integers(1, 3))
    def drop_aggregate(self, number: int) -> None:
        self.table.drop_aggregate(number)
        self.aggregates.pop(number, None)

    def _expected(self, node: str) -> HostRecord:
        record = self.reports[node]
        for consumption in self.claims.get(node, {}).values():
            record = _changed(record, consumption)
        return record

    @precondition(lambda self: len(self.kept) < 8)
    @rule()
    def keep_a_batch(self) -> None:
        batch = self.table.batch()
        half = batch.take(np.arange(len(batch)) % 2 == 0)
        for kept in (batch, half):
            self.kept.append((kept, _rows(kept)))

    @invariant()
    def a_batch_has_what_the_model_has(self) -> None:
        batch = self.table.batch()
        assert len(batch) == len(self.reports) == len(self.table)
        uuids = list(batch.uuid)
        assert sorted(uuids) == sorted(self.reports)
        for state in batch:
            expected = self._expected(state.uuid)
            for name in COLUMNS:
                assert batch.value(name, uuids.index(state.uuid)) == getattr(
                    expected, name
                ), name
                column = getattr(batch, name).tolist()
                assert column[uuids.index(state.uuid)] == getattr(expected, name)
            assert set(state.instances) == self.instances.get(state.host, set())
            mine = [a for i, a in sorted(self.aggregates.items())]
            assert state.aggregates == [a for a in mine if state.host in a.hosts]

    @invariant()
    def kept_batches_are_as_they_were(self) -> None:
        for kept, as_it_was in self.kept:
            assert _rows(kept) == as_it_was

    @invariant()
    def the_revision_never_shrinks(self) -> None:
        assert self.table.revision >= self.revision
        self.revision = self.table.revision

    @invariant()
    def counts_agree_with_instances(self) -> None:
        batch = self.table.batch()
        wanted = [instance_uuid(i) for i in range(3)]
        counts = [len(set(wanted) & set(state.instances)) for state in batch]
        assert batch.count_instances(wanted).tolist() == counts


Model.TestCase.settings = examples(0.8, stateful_step_count=25)
TestModel = Model.TestCase


# -- claims ----------------------------------------------------------------------------

ONE = instance_uuid(1)


def test_claim_is_consumed_at_once() -> None:
    made = table(host())
    made.claims.consume(host().uuid, ONE, SMALL)
    state = made.batch()[0]
    assert (state.free_ram_mb, state.free_disk_mb) == (8192 - 512, 51200 - 1024)
    assert (state.vcpus_used, state.num_instances, state.num_io_ops) == (3, 1, 1)
    assert ONE in state.instances


def test_second_claim_of_one_instance_consumes_nothing_more() -> None:
    made = table(host())
    for _ in range(2):
        made.claims.consume(host().uuid, ONE, SMALL)
    assert made.batch()[0].free_ram_mb == 8192 - 512


def test_claim_on_unknown_node_is_left_to_its_report() -> None:
    made = table(host())
    made.claims.consume(node_uuid("elsewhere"), ONE, SMALL)
    assert made.batch()[0].free_ram_mb == 8192


@pytest.mark.parametrize(
    ("reported", "free_ram_mb"),
    [
        pytest.param([ONE], 7000, id="a report that includes it"),
        pytest.param([], 7000 - 512, id="a report that does not"),
        pytest.param(None, 7000 - 512, id="a report without instances"),
    ],
)
def test_claim_stays_until_a_report_includes_it(
    reported: list[str] | None, free_ram_mb: int
) -> None:
    made = table(host())
    made.claims.consume(host().uuid, ONE, SMALL)
    made.put(host(free_ram_mb=7000), reported)
    assert made.batch()[0].free_ram_mb == free_ram_mb
    assert set(made.batch()[0].instances) == {ONE}


def test_build_that_ended_is_no_io_operation_any_more() -> None:
    made = table(host())
    made.claims.consume(host().uuid, ONE, SMALL)
    assert made.batch()[0].num_io_ops == 1
    made.add_instances("host", [ONE])
    assert (made.batch()[0].num_io_ops, made.batch()[0].num_instances) == (0, 1)


def test_claim_that_a_list_of_instances_leaves_out_stays() -> None:
    made = table(host())
    made.claims.consume(host().uuid, ONE, SMALL)
    for _ in range(3):
        made.set_instances("host", [])
    assert set(made.batch()[0].instances) == {ONE}, "its build may just begin"


def test_claim_that_the_row_includes_is_settled() -> None:
    made = table(host())
    made.claims.consume(host().uuid, ONE, SMALL)
    made.change_many({host().uuid: {"free_ram_mb": 7000}})
    assert made.batch()[0].free_ram_mb == 7000 - 512
    made.claims.mark_reported(host().uuid, [ONE])
    assert made.batch()[0].free_ram_mb == 7000
    assert set(made.batch()[0].instances) == {ONE}
    assert made.claims.unreported() == ()


def test_claims_have_their_start_time() -> None:
    made = HostTable(clock=lambda: 17.0)
    made.put(host())
    made.claims.consume(host().uuid, ONE, SMALL)
    assert made.claims.unreported() == (
        UnreportedClaim(host().uuid, "host", ONE, 17.0),
    )


@pytest.mark.parametrize("column", ["uuid", "revision", "colour"])
def test_column_that_no_report_changes_is_refused_whole(column: str) -> None:
    made = table(host())
    with pytest.raises(KeyError, match=column):
        made.change_many({host().uuid: {"free_ram_mb": 1, column: "x"}})
    assert made.batch()[0].free_ram_mb == 8192


def test_many_rows_are_put_and_dropped_at_once() -> None:
    records = [host(host=f"h{i}", nodename=f"h{i}") for i in range(1200)]
    made = HostTable()
    made.put_many(records, {"h7": [ONE]})
    assert [made.batch().value("host", i) for i in range(1200)] == [
        record.host for record in records
    ]
    assert set(made.batch()[7].instances) == {ONE}
    made.drop_many([record.uuid for record in records[:1199]])
    assert list(made.batch().host) == ["h1199"]


def test_columns_are_put_as_records_are() -> None:
    one, other = table(), table()
    records = [host(host=f"h{i}", vcpus_used=i) for i in range(3)]
    one.put_many(records)
    other.put_columns({n: [getattr(r, n) for r in records] for n in COLUMNS})
    for record in records:
        assert other.as_reported(record.uuid) == one.as_reported(record.uuid) == record


def test_all_aggregates_are_replaced_at_once() -> None:
    made = table(host(host="a"), host(host="b"))
    made.put_aggregates([aggregate(1, "a"), aggregate(2, "a", "b")])
    before = made.batch()
    made.put_aggregates([aggregate(2, "a", "b"), aggregate(3, "b")])
    names = [[each.id for each in state.aggregates] for state in made.batch()]
    assert names == [[2], [2, 3]]
    made.put_aggregates([aggregate(2, "a", "b"), aggregate(3, "b")])
    assert [state.revision for state in made.batch()] == [
        state.revision + 1 for state in before
    ], "what stays as it was is not touched"


def test_claim_given_back_leaves_the_host_as_it_was() -> None:
    made = table(host())
    made.claims.consume(host().uuid, ONE, SMALL)
    made.claims.release("host", ONE)
    assert made.batch()[0].free_ram_mb == 8192
    assert made.batch()[0].instances == {}


def test_what_a_report_included_is_not_given_back_again() -> None:
    made = table(host())
    made.claims.consume(host().uuid, ONE, SMALL)
    made.put(host(free_ram_mb=7000), [ONE])
    made.claims.release("host", ONE)
    assert made.batch()[0].free_ram_mb == 7000


def test_dropped_node_comes_back_without_its_old_claims() -> None:
    made = table(host())
    made.claims.consume(host().uuid, ONE, SMALL)
    made.drop(host().uuid)
    made.claims.release("host", ONE)
    made.put(host())
    assert made.batch()[0].free_ram_mb == 8192


def test_report_of_one_node_keeps_the_claims_on_its_hosts_other_nodes() -> None:
    first, second = host(nodename="n1"), host(nodename="n2")
    made = table(first, second)
    made.claims.consume(second.uuid, ONE, SMALL)
    made.put(first, [])
    assert set(made.batch()[0].instances) == {ONE}


# -- rows ------------------------------------------------------------------------------


def test_batch_of_some_nodes_leaves_unknown_ones_out() -> None:
    a, b = host(host="a"), host(host="b")
    assert list(table(a, b).batch([b.uuid, "unknown"]).host) == ["b"]


def test_batch_is_in_the_order_of_rows() -> None:
    a, b = host(host="a"), host(host="b")
    assert list(table(a, b).batch([b.uuid, a.uuid]).host) == ["a", "b"]


def test_table_grows_beyond_its_first_capacity() -> None:
    records = [host(host=f"h{i}", free_ram_mb=i) for i in range(300)]
    made = table(*records[:70])
    early = made.batch()
    for record in records[70:]:
        made.put(record)
    assert early.free_ram_mb.tolist() == list(range(70))
    assert made.batch().free_ram_mb.tolist() == list(range(300))
    assert list(made.batch().host) == [r.host for r in records]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        pytest.param({"host": "a"}, ["n1", "n2"], id="all nodes of a host"),
        pytest.param({"host": None, "node": "n2"}, ["n2"], id="one node"),
        pytest.param({"host": "b", "node": "n2"}, [], id="a node of another host"),
        pytest.param({"host": "A"}, [], id="another case"),
        pytest.param({"host": "a", "cell": "elsewhere"}, [], id="another cell"),
        pytest.param({"host": None}, ["n1", "n2", "n3"], id="any"),
    ],
)
def test_nodes_of(wanted: dict[str, Any], found: list[str]) -> None:
    made = table(
        host(host="a", nodename="n1"),
        host(host="a", nodename="n2"),
        host(host="b", nodename="n3"),
    )
    assert list(made.nodes_of(**wanted)) == [node_uuid(n) for n in found]


def test_row_has_the_revision_of_its_last_change() -> None:
    a, b = host(host="a"), host(host="b")
    made = table(a, b)
    made.claims.consume(b.uuid, ONE, SMALL)
    rows = made.batch()
    assert rows[0].revision < rows[1].revision == made.revision == rows.revision


def test_supply_is_what_hosts_have_in_all() -> None:
    a, b = host(host="a"), host(host="b")
    made = table(a, b)
    seen = [made.supply_revision]
    for same in (
        lambda: made.claims.consume(a.uuid, ONE, SMALL),
        lambda: made.put(dataclasses.replace(a, vcpus_used=1, last_seen_up=5.0)),
        lambda: made.set_instances("b", [ONE]),
        lambda: made.drop(node_uuid("unknown")),
    ):
        same()
        assert made.supply_revision == seen[-1]
    for other in (
        lambda: made.put(host(host="c")),
        lambda: made.drop(b.uuid),
        lambda: made.put(dataclasses.replace(a, vcpus_total=a.vcpus_total + 1)),
        lambda: made.change_many({a.uuid: {"disabled": True}}),
        lambda: made.change_many({a.uuid: {"ram_allocation_ratio": 3.5}}),
        lambda: made.put_aggregates([aggregate(1, "a")]),
    ):
        other()
        assert made.supply_revision > seen[-1]
        seen.append(made.supply_revision)


def _n_held(held: HostTable, name: str) -> int:
    """Return the number of values of an interned column, unused ones included."""
    view = held.batch()._view  # noqa: SLF001 - unused values are not public
    return len(view.interners[name].values)


def test_compaction_keeps_every_value_and_every_earlier_batch() -> None:
    made = table(host(host="a"), host(host="b", stats={"x": "b"}))
    batches = []
    for i in range(5000):
        made.put(host(host="a", stats={"x": str(i)}))
        if i % 500 == 0:
            batches.append((made.batch(), str(i)))
    for kept, value in batches:
        assert [s["x"] for s in kept.stats] == [value, "b"]
    assert [s["x"] for s in made.batch().stats] == ["4999", "b"]
    assert _n_held(made, "stats") <= 2 * 2 + 1025


def test_values_of_dropped_rows_do_not_keep_a_column_from_shrinking() -> None:
    made = table(*(host(host=f"h{i}") for i in range(3000)))
    for i in range(1, 3000):
        made.drop(node_uuid(f"h{i}"))
    made.put(host(host="h0", stats={"x": "1"}))
    assert _n_held(made, "host") <= 2 * 1 + 1024
    made.put(host(host="new", nodename="new"))
    assert list(made.batch().host) == ["h0", "new"]


def test_concurrent_writers_and_readers_see_whole_rows() -> None:
    made = table(*(host(host=f"h{i}", free_ram_mb=0, vcpus_used=0) for i in range(20)))
    torn: list[Any] = []

    def write() -> None:
        for i in range(1, 150):
            for j in range(3):
                made.put(host(host=f"h{j}", free_ram_mb=i, vcpus_used=i))
            made.put(host(host=f"new{i}", free_ram_mb=i, vcpus_used=i))

    def read() -> None:
        for _ in range(300):
            rows = made.batch()
            if (rows.free_ram_mb != rows.vcpus_used).any():
                torn.append(rows)
            rows.count_instances([ONE])

    threads = [threading.Thread(target=f) for f in (write, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not torn


def test_row_as_reported_excludes_claims() -> None:
    made = table(host())
    made.claims.consume(host().uuid, ONE, SMALL)
    free_mb = made.batch().free_ram_mb[0]
    assert made.as_reported(host().uuid) == host()
    assert made.batch().free_ram_mb[0] == free_mb
    assert made.as_reported(node_uuid("elsewhere")) is None


def test_a_copy_and_its_original_do_not_change_each_other() -> None:
    table = HostTable()
    table.put(host(host="a", uuid="node-a"), ["x"])
    node = table.nodes_of("a")[0]
    copied = table.copied()
    consumption = Consumption(memory_mb=512, disk_mb=0, vcpus=1)
    copied.claims.consume(node, "y", consumption)
    copied.claims.release("a", "x")
    assert table.instances.of_host("a") == {"x"}
    assert copied.instances.of_host("a") == {"y"}
    free_mb = table.batch().value("free_ram_mb", 0)
    assert copied.batch().value("free_ram_mb", 0) == free_mb - 512
    table.claims.consume(node, "z", consumption)
    table.put(host(host="b", uuid="node-b"), ["v"])
    assert copied.instances.of_host("a") == {"y"}
    assert (len(table), len(copied)) == (2, 1)
    again = copied.copied()
    again.claims.release("a", "y")
    assert again.batch().value("free_ram_mb", 0) == free_mb
    assert copied.batch().value("free_ram_mb", 0) == free_mb - 512
