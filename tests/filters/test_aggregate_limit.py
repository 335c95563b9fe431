# SPDX-License-Identifier: Apache-2.0
"""A number of a host is held against an option, or against its aggregates."""

from __future__ import annotations

import pytest

from moorage.filters.base import BaseHostFilter
from moorage.filters.column_limits import (
    AggregateIoOpsFilter,
    AggregateNumInstancesFilter,
    IoOpsFilter,
    NumInstancesFilter,
)

from ..conftest import aggregate, batch, hosts, options, spec

#: Filter, of the aggregates or not; column; option.
PLAIN = [
    pytest.param(IoOpsFilter, "num_io_ops", "max_io_ops_per_host", id="I/O"),
    pytest.param(
        NumInstancesFilter, "num_instances", "max_instances_per_host", id="instances"
    ),
]
AGGREGATE = [
    pytest.param(AggregateIoOpsFilter, "num_io_ops", "max_io_ops_per_host", id="I/O"),
    pytest.param(
        AggregateNumInstancesFilter,
        "num_instances",
        "max_instances_per_host",
        id="instances",
    ),
]


@pytest.mark.parametrize(("form", "column", "option"), [*PLAIN, *AGGREGATE])
def test_limit_itself_is_too_many(
    form: type[BaseHostFilter], column: str, option: str
) -> None:
    filter_ = form(options(**{option: 3}))
    mask = filter_.passing(batch(*hosts(column, [0, 2, 3, 4])), spec())
    assert mask.tolist() == [True, True, False, False]


def test_limit_of_no_io_operations_rejects_all_hosts() -> None:
    filter_ = IoOpsFilter(options(max_io_ops_per_host=0))
    assert not filter_.passing(batch(*hosts("num_io_ops", [0])), spec()).any()


@pytest.mark.parametrize(("form", "column", "option"), PLAIN)
def test_aggregates_are_nothing_to_the_plain_form(
    form: type[BaseHostFilter], column: str, option: str
) -> None:
    rows = batch(*hosts(column, [2]), aggregates=[aggregate(1, "a", **{option: "1"})])
    assert form(options(**{option: 3})).passing(rows, spec()).all()


@pytest.mark.parametrize(("form", "column", "option"), AGGREGATE)
@pytest.mark.parametrize(
    ("values", "limit"),
    [
        pytest.param([], 3, id="none: the option"),
        pytest.param(["5"], 5, id="one"),
        pytest.param(["5", "4"], 4, id="the least of two"),
        pytest.param(["10", "9"], 9, id="the least number, not text"),
        pytest.param([" 5 "], 5, id="spaces around"),
        pytest.param(["5", "x"], 3, id="one is no integer: the option"),
        pytest.param(["4.5"], 3, id="a fraction is no integer"),
        pytest.param(["4,5"], 3, id="no list"),
        pytest.param([""], 3, id="empty"),
        pytest.param(["-1"], -1, id="negative"),
        pytest.param(["9" * 30], 2**63 - 1, id="beyond the column"),
    ],
)
def test_least_value_of_the_aggregates_is_the_limit(
    form: type[BaseHostFilter], column: str, option: str, values: list[str], limit: int
) -> None:
    aggregates = [
        aggregate(10 * on_b + i, "ab"[on_b], **{option: value})
        for on_b in (0, 1)
        for i, value in enumerate(values)
    ]
    rows = batch(*hosts(column, [limit - 1, limit]), aggregates=aggregates)
    mask = form(options(**{option: 3})).passing(rows, spec())
    assert mask.tolist() == [True, False]


def test_wrong_values_have_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    rows = batch(
        *hosts("num_io_ops", [1] * 4),
        aggregates=[
            aggregate(1, "a", "b", max_io_ops_per_host="x"),
            aggregate(2, "b", "c", max_io_ops_per_host="y"),
            aggregate(3, "d", max_io_ops_per_host="1"),
        ],
    )
    mask = AggregateIoOpsFilter(options()).passing(rows, spec())
    assert mask.tolist() == [True, True, True, False]
    (record,) = caplog.records
    assert "aggregate1: 'x', aggregate2: 'y'" in record.getMessage()
    assert "8, the option" in record.getMessage()


def test_rejection_names_number_and_limit() -> None:
    rows = batch(
        *hosts("num_instances", [7]),
        aggregates=[aggregate(1, "a", max_instances_per_host="5")],
    )
    reason = AggregateNumInstancesFilter(options()).explain_rejection(rows[0], spec())
    assert reason is not None
    assert (reason.attribute, reason.required, reason.available) == (
        "num_instances",
        "less than 5",
        "7",
    )
