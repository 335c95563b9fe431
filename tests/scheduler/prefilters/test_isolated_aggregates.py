# SPDX-License-Identifier: Apache-2.0
"""Aggregates that require traits are forbidden to requests without them."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.objects import RequestLevelParams
from moorage.scheduler.placement.query import Requirements
from moorage.scheduler.prefilters.aggregates import isolate_aggregates

from ...conftest import image
from .surroundings import required

GATE = "enable_isolated_aggregate_filtering"
AGGREGATES = {
    "a": {"trait:CUSTOM_A": "required"},
    "ab": {"trait:CUSTOM_A": "required", "trait:CUSTOM_B": "required"},
    "not required": {"trait:CUSTOM_C": "forbidden", "CUSTOM_C": "required"},
}


@pytest.mark.parametrize(
    ("fields", "forbidden"),
    [
        ({}, {"a", "ab"}),
        ({"extra_specs": {"trait:CUSTOM_A": "required"}}, {"ab"}),
        ({"extra_specs": {"trait:CUSTOM_A": "forbidden"}}, {"a", "ab"}),
        ({"extra_specs": {"trait7:CUSTOM_A": "required"}}, {"ab"}),
        ({"image": image(traits_required=["CUSTOM_A", "CUSTOM_B"])}, set()),
        (
            {"request_level_params": RequestLevelParams(root_required={"CUSTOM_A"})},
            {"a", "ab"},
        ),
        ({"image": None}, {"a", "ab"}),
    ],
)
def test_traits(fields: dict[str, Any], forbidden: set[str]) -> None:
    found = required(isolate_aggregates, aggregates=AGGREGATES, on=(GATE,), **fields)
    assert found == Requirements(forbidden_aggregates=forbidden)
