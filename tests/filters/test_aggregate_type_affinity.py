# SPDX-License-Identifier: Apache-2.0
"""Aggregates that list flavors admit no other."""

from __future__ import annotations

import pytest

from moorage.filters.aggregates import AggregateTypeAffinityFilter

from ..conftest import aggregate, batch, host, options, spec


@pytest.mark.parametrize(
    ("metadata", "passes"),
    [
        pytest.param([], True, id="in no aggregate"),
        pytest.param([{"x": "y"}], True, id="nothing said"),
        pytest.param([{"instance_type": "plain"}], True, id="listed"),
        pytest.param([{"instance_type": "big"}], False, id="not listed"),
        pytest.param([{"instance_type": "big, plain"}], True, id="in a list"),
        pytest.param([{"instance_type": "plainer"}], False, id="part of a name"),
        pytest.param(
            [{"instance_type": "big"}, {"instance_type": "plain"}], True, id="of two"
        ),
        pytest.param([{"instance_type": ""}], False, id="an empty list"),
    ],
)
def test_flavor(metadata: list[dict[str, str]], passes: bool) -> None:
    aggregates = [aggregate(i, "host", **each) for i, each in enumerate(metadata)]
    rows = batch(host(), aggregates=aggregates)
    filter_ = AggregateTypeAffinityFilter(options())
    assert filter_.passing(rows, spec()).tolist() == [passes]


def test_rejection_names_the_flavors() -> None:
    rows = batch(host(), aggregates=[aggregate(1, "host", instance_type="a,b")])
    reason = AggregateTypeAffinityFilter(options()).explain_rejection(rows[0], spec())
    assert reason is not None
    assert (reason.required, reason.available) == ("plain", "a, b")
