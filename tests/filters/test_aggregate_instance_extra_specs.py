# SPDX-License-Identifier: Apache-2.0
"""Extra specs are held against the metadata of a host's aggregates."""

from __future__ import annotations

import pytest

from moorage.filters.aggregates import (
    AggregateInstanceExtraSpecsFilter,
)
from moorage.objects import Flavor

from ..conftest import aggregate, batch, host, options, spec

ROWS = batch(
    host(),
    aggregates=[
        aggregate(1, "host", disk="ssd, nvme", tier="1", empty="", **{"a:b": "x"}),
        aggregate(2, "host", tier="3"),
        aggregate(3, "other", gpu="yes"),
    ],
)
SCOPE = "aggregate_instance_extra_specs"


@pytest.mark.parametrize(
    ("key", "required", "passes"),
    [
        pytest.param(f"{SCOPE}:disk", "ssd", True, id="scoped"),
        pytest.param(f"{SCOPE}:disk", "nvme", True, id="second of a list"),
        pytest.param(f"{SCOPE}:disk", "hdd", False, id="another value"),
        pytest.param("disk", "ssd", True, id="unscoped"),
        pytest.param("disk", "hdd", False, id="unscoped, another value"),
        pytest.param("nothing", "x", False, id="unscoped that nobody has"),
        pytest.param(f"{SCOPE}:nothing", "x", False, id="nobody has it"),
        pytest.param("gpu", "yes", False, id="an aggregate of others has it"),
        pytest.param("tier", ">= 3", True, id="second aggregate, with an operator"),
        pytest.param("tier", ">= 4", False, id="operator that does not hold"),
        pytest.param("tier", ">= x", False, id="operator without a number"),
        pytest.param("disk", "<or>", False, id="operator without an operand"),
        pytest.param("disk", "<or> hdd <or> nvme", True, id="one of them"),
        pytest.param("empty", "", True, id="empty text is a value"),
        pytest.param("capabilities:disk", "hdd", True, id="another scope"),
        pytest.param("hw:cpu_policy", "dedicated", True, id="yet another"),
        pytest.param(f"{SCOPE}:a:b", "x", True, id="a colon in the key"),
    ],
)
def test_extra_spec(key: str, required: str, passes: bool) -> None:
    filter_ = AggregateInstanceExtraSpecsFilter(options())
    assert filter_.passing(ROWS, spec(extra_specs={key: required})).tolist() == [passes]


def test_every_extra_spec_has_to_hold() -> None:
    filter_ = AggregateInstanceExtraSpecsFilter(options())
    spec_obj = spec(extra_specs={"disk": "ssd", "tier": "7"})
    assert not filter_.passing(ROWS, spec_obj).any()
    reason = filter_.explain_rejection(ROWS[0], spec_obj)
    assert reason is not None
    assert (reason.attribute, reason.required, reason.available) == (
        "aggregates' tier",
        "7",
        "1, 3",
    )


def test_flavor_without_extra_specs_goes_everywhere() -> None:
    filter_ = AggregateInstanceExtraSpecsFilter(options())
    bare = Flavor(vcpus=1, memory_mb=1, root_gb=1, ephemeral_gb=0, swap=0)
    assert filter_.passing(ROWS, spec()).all()
    assert filter_.passing(ROWS, spec(flavor=bare)).all()
