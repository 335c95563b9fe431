# SPDX-License-Identifier: Apache-2.0
"""Affinity restricts a group to its hosts; the first member may go anywhere."""

from __future__ import annotations

import pytest
from oslo_config import cfg

from moorage.filters.server_group import ServerGroupAffinityFilter
from moorage.objects import InstanceGroup
from moorage.scheduler.hosts import Consumption

from ..conftest import batch, group, hosts, instance_uuid, spec

THREE = hosts("free_ram_mb", [1, 2, 3])


@pytest.mark.parametrize(
    ("of", "passing"),
    [
        pytest.param(None, "abc", id="no group"),
        pytest.param(group("affinity", hosts=["b"]), "b", id="on one host"),
        pytest.param(group("affinity", hosts=["a", "b"]), "ab", id="on two"),
        pytest.param(group("affinity"), "abc", id="on none yet"),
        pytest.param(group("affinity", hosts=None), "abc", id="hosts are null"),
        pytest.param(InstanceGroup(policy="affinity"), "abc", id="hosts are unset"),
        pytest.param(group("affinity", hosts=["gone"]), "", id="on an unknown host"),
        pytest.param(group("affinity", hosts=["B"]), "", id="another case"),
        pytest.param(group("anti-affinity", hosts=["b"]), "abc", id="anti-affinity"),
        pytest.param(group("soft-affinity", hosts=["b"]), "abc", id="soft"),
        pytest.param(
            InstanceGroup(policies=["affinity"], hosts=["b"]), "b", id="the old list"
        ),
        pytest.param(
            InstanceGroup(policies=["legacy", "affinity"], hosts=["b"]),
            "b",
            id="second of the old list",
        ),
        pytest.param(InstanceGroup(hosts=["b"]), "abc", id="no policy"),
    ],
)
def test_group(of: InstanceGroup | None, passing: str, conf: cfg.ConfigOpts) -> None:
    rows, spec_obj = batch(*THREE), spec(instance_group=of)
    mask = ServerGroupAffinityFilter(conf).passing(rows, spec_obj)
    assert "".join(rows.host[mask]) == passing


def test_later_instances_follow_the_first(conf: cfg.ConfigOpts) -> None:
    spec_obj = spec(instance_group=group("affinity"))
    rows = batch(*THREE).with_instance(
        1, instance_uuid(1), Consumption(memory_mb=1, disk_mb=1, vcpus=1)
    )
    mask = ServerGroupAffinityFilter(conf).passing(rows, spec_obj)
    assert mask.tolist() == [False, True, False]
