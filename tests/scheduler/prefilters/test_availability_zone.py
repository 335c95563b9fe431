# SPDX-License-Identifier: Apache-2.0
"""A zone that is asked for becomes its aggregates."""

from __future__ import annotations

from typing import Any

import pytest
from oslo_config import cfg

from moorage.objects import RequestSpec
from moorage.scheduler.hosts.aggregates import AggregateMap, HostAggregate
from moorage.scheduler.placement.query import Requirements
from moorage.scheduler.prefilters import PrefilterRequest
from moorage.scheduler.prefilters.availability_zone import (
    map_az_to_placement_aggregate,
)

AGGREGATES = AggregateMap()
for _number, (_uuid, _metadata) in enumerate(
    {
        "a": {"availability_zone": "east"},
        "b": {"availability_zone": "east", "ssd": "true"},
        "c": {"availability_zone": "west"},
        "d": {"ssd": "east"},
    }.items()
):
    AGGREGATES.put(HostAggregate(_number, _uuid, _uuid, frozenset(), _metadata))


@pytest.mark.parametrize(
    ("fields", "member_of"),
    [
        pytest.param(
            {"availability_zone": "east"}, [frozenset("ab")], id="one of several"
        ),
        pytest.param({"availability_zone": "west"}, [frozenset("c")], id="one"),
        pytest.param({"availability_zone": "nova"}, [], id="a zone of no aggregate"),
        pytest.param({"availability_zone": None}, [], id="any zone"),
        pytest.param({"availability_zone": ""}, [], id="no name"),
        pytest.param({}, [], id="unset"),
    ],
)
def test_zone(fields: dict[str, Any], member_of: list[frozenset[str]]) -> None:
    requirements = Requirements()

    map_az_to_placement_aggregate(
        PrefilterRequest(
            RequestSpec(**fields), requirements, AGGREGATES, cfg.ConfigOpts()
        )
    )

    assert requirements == Requirements(member_of=member_of)
