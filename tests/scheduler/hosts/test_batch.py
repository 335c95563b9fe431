# SPDX-License-Identifier: Apache-2.0
"""A batch is columns, a HostState one row of them; neither can be written to."""

from __future__ import annotations

import datetime
import math
from typing import Any

import numpy as np
import pytest

from moorage.scheduler.hosts import Consumption

from ...conftest import NOW, aggregate, batch, host, hosts, instance_uuid, table

ONE, TWO = instance_uuid(1), instance_uuid(2)
SMALL = Consumption(memory_mb=512, disk_mb=1024, vcpus=1)
THREE = hosts("free_ram_mb", [1, 2, 3])


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param("free_ram_mb", np.int64, id="amount"),
        pytest.param("cpu_allocation_ratio", np.float64, id="ratio"),
        pytest.param("disabled", np.bool_, id="claim"),
        pytest.param("host", np.object_, id="text"),
        pytest.param("aggregates", np.object_, id="aggregates"),
        pytest.param("supported_instances", np.object_, id="tuples"),
    ],
)
def test_column_is_a_read_only_array_of_its_type(name: str, dtype: type) -> None:
    column = getattr(batch(*THREE), name)
    assert (column.shape, column.dtype) == ((3,), dtype)
    with pytest.raises(ValueError, match="read-only"):
        column[0] = column[1]


@pytest.mark.parametrize("name", ["free_ram_mb", "cpu_allocation_ratio", "disabled"])
def test_number_of_one_host_is_pythons_own(name: str) -> None:
    assert type(getattr(batch(*THREE)[0], name)) in (int, float, bool)


def test_unknown_attribute_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(AttributeError, match=r"'free_ram'.*free_ram_mb"):
        batch(*THREE).free_ram  # noqa: B018 -- the access is what is tested
    assert not hasattr(batch(*THREE)[0], "free_ram")


def test_columns_that_are_not_novas_are_no_attributes_of_nova() -> None:
    rows = batch(*THREE)
    known = {n: rows.has_attribute(n) for n in ("host", "free_ram_mb", "aggregates")}
    assert all(known.values())
    assert not any(map(rows.has_attribute, ("disabled", "revision", "no_such_thing")))


@pytest.mark.parametrize(
    "index",
    [
        pytest.param([True, False, True], id="mask"),
        pytest.param(np.array([0, 2]), id="indices"),
        pytest.param([0, 2], id="list"),
    ],
)
def test_batch_of_rows_has_the_selected_rows(index: Any) -> None:
    rows = batch(*THREE)
    assert rows.take(index).free_ram_mb.tolist() == [1, 3]
    assert rows.free_ram_mb.tolist() == [1, 2, 3]


def test_no_rows_have_empty_columns() -> None:
    none = batch(*THREE).take([False] * 3)
    assert (len(none), list(none)) == (0, [])
    assert none.host.shape == none.free_ram_mb.shape == (0,)
    assert none.matches("host", ["a"]).shape == (0,)
    assert none.count_instances([ONE]).shape == (0,)


def test_index_counts_from_the_end_too_and_ends() -> None:
    rows = batch(*THREE)
    assert rows[-1].host == "c"
    for index in (3, -4):
        with pytest.raises(IndexError, match="of a batch of 3"):
            rows[index]


def test_placed_instance_is_in_the_new_batch_only() -> None:
    rows = batch(*THREE)
    after = rows.with_instance(1, ONE, SMALL)
    assert after.free_ram_mb.tolist() == [1, 2 - 512, 3]
    assert after.num_instances.tolist() == [0, 1, 0]
    assert after.count_instances([ONE]).tolist() == [0, 1, 0]
    assert list(after[1].instances) == [ONE]
    assert rows.free_ram_mb.tolist() == [1, 2, 3]
    assert rows.count_instances([ONE]).tolist() == [0, 0, 0]


def test_placed_instances_add_up_and_survive_a_choice_of_rows() -> None:
    after = batch(*THREE).with_instance(2, ONE, SMALL).with_instance(2, TWO, SMALL)
    kept = after.take([False, True, True])
    assert kept.num_instances.tolist() == [0, 2]
    assert kept.count_instances([ONE, TWO]).tolist() == [0, 2]
    assert kept.placed == {ONE: "c", TWO: "c"}
    assert kept[1].free_ram_mb == 3 - 2 * 512
    assert kept[1].as_batch().num_instances.tolist() == [2]


def test_instance_that_is_moved_counts_where_it_was_placed_last() -> None:
    after = batch(*THREE, instances={"a": [ONE]}).with_instance(1, ONE, SMALL)
    assert after.count_instances([ONE]).tolist() == [0, 1, 0]
    assert [list(h.instances) for h in after] == [[], [ONE], []]


def test_nodes_of_one_service_host_share_its_instances() -> None:
    rows = batch(
        host(host="a", nodename="n1"),
        host(host="a", nodename="n2"),
        instances={"a": [ONE]},
    )
    assert rows.count_instances([ONE, TWO]).tolist() == [1, 1]


def test_function_of_a_column_is_called_once_a_distinct_value() -> None:
    calls: list[Any] = []
    rows = batch(*hosts("hypervisor_type", ["x", "y", "x"]))
    mapped = rows.map_distinct(
        "hypervisor_type", lambda v: calls.append(v) or v == "x", bool
    )
    assert mapped.tolist() == [True, False, True]
    assert sorted(calls) == ["x", "y"]


def test_aggregates_are_by_ascending_id() -> None:
    two, one = aggregate(2, "a"), aggregate(1, "a", "b")
    rows = batch(*THREE, aggregates=[two, one])
    assert [h.aggregates for h in rows] == [[one, two], [one], []]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(NOW, datetime.datetime.fromtimestamp(NOW, datetime.UTC), id="yes"),
        pytest.param(math.inf, None, id="always up"),
        pytest.param(math.nan, None, id="never seen"),
    ],
)
def test_service_has_its_last_seen_time(seen: float, expected: Any) -> None:
    service = batch(host(last_seen_up=seen, disabled=True))[0].service
    assert (service["last_seen_up"], service["disabled"]) == (expected, True)


def test_host_has_the_form_that_operators_search_for() -> None:
    rows = batch(host(host="a", nodename="n", num_io_ops=1, num_instances=2))
    assert repr(rows[0]) == ("(a, n) ram: 8192MB disk: 51200MB io_ops: 1 instances: 2")


def test_host_state_can_not_be_written_to() -> None:
    state = batch(host())[0]
    with pytest.raises(AttributeError):
        state.free_ram_mb = 1  # type: ignore[attr-defined]  # there is none to write


def test_what_a_plugin_writes_to_limits_is_that_hosts_alone() -> None:
    rows = batch(*THREE)
    rows[0].limits["x"] = 1
    assert rows[0].limits == rows[1].limits == {}


def test_cached_function_is_called_once_per_value() -> None:
    made = table(host(host="a", cpu_info="1"), host(host="b", cpu_info="22"))
    calls: list[str] = []

    def length(value: str) -> int:
        calls.append(value)
        return len(value)

    def lengths() -> list[int]:
        found = made.batch().map_distinct(
            "cpu_info", length, np.int64, cache_key="length"
        )
        return list(found.tolist())

    assert lengths() == lengths() == [1, 2]
    made.put(host(host="b", cpu_info="333"))
    assert lengths() == [1, 3]
    assert calls == ["1", "22", "333"]
