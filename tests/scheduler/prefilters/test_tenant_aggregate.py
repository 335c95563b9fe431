# SPDX-License-Identifier: Apache-2.0
"""Projects are restricted to the aggregates that are dedicated to them."""

from __future__ import annotations

import pytest

from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.placement.query import Requirements
from moorage.scheduler.prefilters.aggregates import require_tenant_aggregate

from .surroundings import required

GATE = "limit_tenants_to_placement_aggregate"
STRICT = "placement_aggregate_required_for_tenants"
AGGREGATES = {
    "one": {"filter_tenant_id": "p1"},
    "two": {"filter_tenant_id_2": "p1", "filter_tenant_id": "p2"},
    "list": {"filter_tenant_id": "p1,p3"},
    "other": {"owner": "p3"},
}


@pytest.mark.parametrize(
    ("project_id", "member_of"),
    [("p1", [{"one", "two"}]), ("p2", [{"two"}]), ("p3", []), ("p1,p3", [{"list"}])],
)
def test_project(project_id: str, member_of: list[set[str]]) -> None:
    found = required(
        require_tenant_aggregate,
        aggregates=AGGREGATES,
        on=(GATE,),
        project_id=project_id,
    )
    assert found == Requirements(member_of=[frozenset(each) for each in member_of])


def test_project_of_no_aggregate_goes_nowhere_if_one_is_required() -> None:
    with pytest.raises(NoValidHost, match="No hosts available for tenant"):
        required(require_tenant_aggregate, on=(GATE, STRICT), project_id="p3")
