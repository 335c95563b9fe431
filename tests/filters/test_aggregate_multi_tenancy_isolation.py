# SPDX-License-Identifier: Apache-2.0
"""Aggregates that list projects admit no other."""

from __future__ import annotations

import pytest

from moorage.filters.aggregates import (
    AggregateMultiTenancyIsolation,
)

from ..conftest import aggregate, batch, host, options, spec


@pytest.mark.parametrize(
    ("metadata", "project", "passes"),
    [
        pytest.param([], "p", True, id="in no aggregate"),
        pytest.param([{"x": "y"}], "p", True, id="nothing said"),
        pytest.param([{"filter_tenant_id": "p"}], "p", True, id="listed"),
        pytest.param([{"filter_tenant_id": "q"}], "p", False, id="not listed"),
        pytest.param([{"filter_tenant_id": "q, p"}], "p", True, id="in a list"),
        pytest.param([{"filter_tenant_id2": "p"}], "p", True, id="a numbered key"),
        pytest.param([{"filter_tenant_id_x": "q"}], "p", False, id="any such key"),
        pytest.param([{"my_filter_tenant_id": "q"}], "p", True, id="not at the start"),
        pytest.param(
            [{"filter_tenant_id": "q"}, {"filter_tenant_id": "p"}],
            "p",
            True,
            id="of two aggregates one",
        ),
        pytest.param([{"filter_tenant_id": "q"}, {}], "p", False, id="one says no"),
        pytest.param([{"filter_tenant_id": "q"}], None, False, id="no project"),
        pytest.param([{"filter_tenant_id": ""}], "p", False, id="an empty list"),
    ],
)
def test_project(
    metadata: list[dict[str, str]], project: str | None, passes: bool
) -> None:
    aggregates = [aggregate(i, "host", **each) for i, each in enumerate(metadata)]
    rows, spec_obj = batch(host(), aggregates=aggregates), spec(project_id=project)
    filter_ = AggregateMultiTenancyIsolation(options())
    assert filter_.passing(rows, spec_obj).tolist() == [passes]


def test_rejection_names_the_projects() -> None:
    rows = batch(host(), aggregates=[aggregate(1, "host", filter_tenant_id="q,r")])
    filter_ = AggregateMultiTenancyIsolation(options())
    reason = filter_.explain_rejection(rows[0], spec(project_id="p"))
    assert reason is not None
    assert (reason.required, reason.available) == ("p", "q, r")
