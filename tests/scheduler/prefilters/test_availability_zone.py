# SPDX-License-Identifier: Apache-2.0
"""A requested zone becomes its aggregates."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from oslo_config import cfg

from moorage.objects import RequestSpec
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.hosts.aggregates import AggregateMap, HostAggregate
from moorage.scheduler.placement.query import Requirements
from moorage.scheduler.prefilters import PrefilterRequest
from moorage.scheduler.prefilters.aggregates import (
    map_az_to_placement_aggregate,
)
from moorage.scheduler.sources.nova_db import NovaDBSource
from moorage.scheduler.sources.push import PushSource

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


@pytest.mark.parametrize(
    ("zone", "is_checked", "is_rejected"),
    [
        pytest.param("nowhere", True, False, id="nova's API has checked it"),
        pytest.param("nowhere", False, True, id="nobody has checked it"),
        pytest.param("nova", False, False, id="default zone"),
        pytest.param("east", False, False, id="zone of an aggregate"),
    ],
)
def test_zone_that_does_not_exist_is_rejected_unless_nova_has_checked_it(
    conf: cfg.ConfigOpts, zone: str, is_checked: bool, is_rejected: bool
) -> None:
    request = PrefilterRequest(
        RequestSpec(availability_zone=zone),
        Requirements(),
        AGGREGATES,
        conf,
        are_zones_checked=is_checked,
    )
    expected = pytest.raises(NoValidHost, match="'nowhere'")
    with expected if is_rejected else contextlib.nullcontext():
        map_az_to_placement_aggregate(request)


def test_source_push_accepts_requests_with_an_unchecked_zone() -> None:
    assert not PushSource.are_zones_checked
    assert NovaDBSource.are_zones_checked
