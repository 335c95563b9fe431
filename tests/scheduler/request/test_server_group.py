# SPDX-License-Identifier: Apache-2.0
"""A server group has one policy, for filters, weighers and claims alike."""

from __future__ import annotations

from typing import Any

import pytest
from oslo_config import cfg

from moorage.filters.server_group import (
    ServerGroupAffinityFilter,
    ServerGroupAntiAffinityFilter,
)
from moorage.objects import InstanceGroup
from moorage.scheduler.errors import InvalidRequest
from moorage.scheduler.request.server_group import ServerGroup
from moorage.testing.builders import batch, hosts, instance_uuid, options, spec
from moorage.weighers.server_group import (
    ServerGroupSoftAffinityWeigher,
    ServerGroupSoftAntiAffinityWeigher,
)

ONE = instance_uuid(1)

#: Fields of a group, and its policy.
GROUPS: list[Any] = [
    pytest.param({}, None, id="none"),
    pytest.param({"policy": "affinity"}, "affinity", id="named"),
    pytest.param({"policies": ["soft-affinity"]}, "soft-affinity", id="listed"),
    pytest.param({"policy": "unknown"}, None, id="unknown"),
    # In these, the four places that read the policy disagreed.
    pytest.param(
        {"policy": "anti-affinity", "policies": ["affinity"]},
        "anti-affinity",
        id="another one listed",
    ),
    pytest.param(
        {"policy": None, "policies": ["affinity"]}, "affinity", id="listed, but null"
    ),
    pytest.param(
        {"policies": ["legacy", "anti-affinity"]}, "anti-affinity", id="listed second"
    ),
    pytest.param(
        {"policies": ["legacy", "soft-anti-affinity"]},
        "soft-anti-affinity",
        id="soft, listed second",
    ),
    pytest.param(
        {"policies": ["anti-affinity", "affinity"]}, "anti-affinity", id="two listed"
    ),
]


@pytest.mark.parametrize(("fields", "policy"), GROUPS)
def test_policy(fields: dict[str, Any], policy: str | None) -> None:
    assert ServerGroup.read(InstanceGroup(**fields)).policy == policy


@pytest.fixture(scope="module")
def conf() -> cfg.ConfigOpts:
    return options()


@pytest.mark.parametrize(("fields", "policy"), GROUPS)
def test_exactly_the_plugin_of_the_policy_applies(
    fields: dict[str, Any], policy: str | None, conf: cfg.ConfigOpts
) -> None:
    rows = batch(*hosts("free_ram_mb", [1, 2]), instances={"a": [ONE]})
    group = InstanceGroup(**fields, hosts=["a"], members=[ONE])
    spec_obj = spec(instance_group=group)
    applying = {
        "affinity": not ServerGroupAffinityFilter(conf).passing(rows, spec_obj).all(),
        "anti-affinity": not ServerGroupAntiAffinityFilter(conf)
        .passing(rows, spec_obj)
        .all(),
        "soft-affinity": ServerGroupSoftAffinityWeigher(conf)
        .weigh_all(rows, spec_obj)
        .any(),
        "soft-anti-affinity": ServerGroupSoftAntiAffinityWeigher(conf)
        .weigh_all(rows, spec_obj)
        .any(),
    }
    assert [name for name, applies in applying.items() if applies] == (
        [policy] if policy else []
    )


@pytest.mark.parametrize("rule", ["0", "-1", "two", "1.5"])
def test_rule_must_be_a_number_of_at_least_1(rule: str) -> None:
    rules = {"max_server_per_host": rule}
    with pytest.raises(InvalidRequest, match="max_server_per_host"):
        ServerGroup.read(InstanceGroup(policy="anti-affinity", rules=rules))
    assert ServerGroup.read(InstanceGroup(policy="affinity", rules=rules)).policy
