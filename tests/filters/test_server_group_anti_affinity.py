# SPDX-License-Identifier: Apache-2.0
"""Anti-affinity allows a host so many members of a group, one by default."""

from __future__ import annotations

from typing import Any

import pytest
from oslo_config import cfg

from moorage.filters.server_group import ServerGroupAntiAffinityFilter
from moorage.objects import InstanceGroup
from moorage.scheduler.hosts import Consumption

from ..conftest import batch, group, hosts, instance_uuid, spec, table

ONE, TWO, OTHER, MINE = (instance_uuid(n) for n in ("one", "two", "other", "mine"))
SMALL = Consumption(memory_mb=1, disk_mb=1, vcpus=1)
THREE = hosts("free_ram_mb", [1, 2, 3])
ON = {"a": [ONE, TWO], "b": [ONE, OTHER], "c": [OTHER]}


def _group(**fields: Any) -> InstanceGroup:
    return group("anti-affinity", **{"members": [ONE, TWO], **fields})


@pytest.mark.parametrize(
    ("of", "passing"),
    [
        pytest.param(None, "abc", id="no group"),
        pytest.param(_group(), "c", id="one member a host"),
        pytest.param(_group(rules={"max_server_per_host": "2"}), "bc", id="two"),
        pytest.param(_group(rules={"max_server_per_host": "3"}), "abc", id="three"),
        pytest.param(_group(rules={}), "c", id="no rules"),
        pytest.param(_group(members=[]), "abc", id="no members"),
        pytest.param(_group(members=None), "abc", id="members are null"),
        pytest.param(InstanceGroup(policy="anti-affinity"), "abc", id="unset"),
        pytest.param(_group(hosts=["c"]), "c", id="hosts of the group do not count"),
        pytest.param(group("affinity", members=[ONE]), "abc", id="affinity"),
        pytest.param(group("soft-anti-affinity", members=[ONE]), "abc", id="soft"),
        pytest.param(
            InstanceGroup(policies=["anti-affinity"], members=[ONE, TWO]),
            "c",
            id="the old list of policies",
        ),
    ],
)
def test_group(of: InstanceGroup | None, passing: str, conf: cfg.ConfigOpts) -> None:
    rows, spec_obj = batch(*THREE, instances=ON), spec(instance_group=of)
    filter_ = ServerGroupAntiAffinityFilter(conf)
    mask = filter_.passing(rows, spec_obj)
    assert "".join(rows.host[mask]) == passing
    rules = filter_.joint_rules(rows, spec_obj)
    assert all((rule.allowed == mask).all() for rule in rules)
    assert bool(rules) or mask.all()


def test_host_that_the_instance_is_on_passes(conf: cfg.ConfigOpts) -> None:
    rows = batch(*THREE, instances={"a": [ONE, MINE], "b": [TWO]})
    spec_obj = spec(instance_group=_group(members=[ONE, TWO, MINE]), instance_uuid=MINE)
    mask = ServerGroupAntiAffinityFilter(conf).passing(rows, spec_obj)
    assert mask.tolist() == [True, False, True]


def test_host_that_it_is_only_claimed_on_passes_as_if_it_was_not(
    conf: cfg.ConfigOpts,
) -> None:
    made = table(*THREE, instances={"a": [ONE], "b": [TWO]})
    spec_obj = spec(instance_group=_group(members=[ONE, TWO, MINE]), instance_uuid=MINE)

    def passing() -> list[bool]:
        mask = ServerGroupAntiAffinityFilter(conf).passing(made.batch(), spec_obj)
        return list(mask)

    node_of = {row.host: row.uuid for row in made.batch()}
    for name in "ac":
        made.claims.consume(node_of[name], MINE, SMALL)
    assert passing() == [False, False, True]
    made.claims.mark_reported(node_of["a"], [MINE])
    assert passing() == [True, False, True]


def test_instances_of_this_request_count(conf: cfg.ConfigOpts) -> None:
    rows = batch(*THREE).with_instance(1, MINE, SMALL)
    spec_obj = spec(instance_group=_group(members=[]))
    mask = ServerGroupAntiAffinityFilter(conf).passing(rows, spec_obj)
    assert mask.tolist() == [True, False, True]
