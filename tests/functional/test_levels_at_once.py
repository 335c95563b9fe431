# SPDX-License-Identifier: Apache-2.0
"""Four schedulers over a real broker break no rule about racks, and refuse no one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from moorage.objects import InstanceGroup
from moorage.scheduler.errors import NoValidHost

from ..fixtures.clouds import CONTEXT, host, new_uuids, request
from ..fixtures.database_servers import Database
from .served_cloud import ServedCloud, served_cloud

N_SCHEDULERS = 4
N_RACKS = 5
LARGE = {"vcpus": 512, "memory_mb": 1 << 20, "local_gb": 10_000}
RACK_OF = {f"h{i}": f"r{i % N_RACKS}" for i in range(2 * N_RACKS)}


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCloud]:
    """Four schedulers, and two large hosts in each of five racks."""
    folder = tmp_path_factory.mktemp("cloud")
    hosts = [host(n, places={"rack": rack}, **LARGE) for n, rack in RACK_OF.items()]
    options = "[locality]\nlevels = rack\n"
    with served_cloud(
        Database.MARIADB, folder, hosts, n_schedulers=N_SCHEDULERS, options=options
    ) as made:
        yield made


def _rack(
    cloud: ServedCloud, hints: dict[str, list[str]], group: InstanceGroup, uuid: str
) -> str | None:
    spec = request(instance_group=group, instance_uuid=uuid, scheduler_hints=hints)
    try:
        answer = cloud.api.select_destinations(CONTEXT, spec, [uuid])
    except NoValidHost:
        return None
    return RACK_OF[str(answer[0][0].service_host)]


@pytest.mark.deep
@pytest.mark.broker
@pytest.mark.database
@pytest.mark.xdist_group("functional")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("hints", "policy", "a_rack"),
    [
        ({"different_rack": None}, "soft-affinity", 1),
        (
            {"group_level": ["rack"], "max_server_per_rack": ["2"]},
            "anti-affinity",
            2,
        ),
        ({"spread_level": ["rack"], "max_skew": ["1"]}, "soft-affinity", 2),
    ],
    ids=["different_rack", "max_server_per_rack", "spread_level"],
)
def test_members_requested_at_once_are_all_placed_by_the_rule(
    cloud: ServedCloud, hints: dict[str, list[str]], policy: str, a_rack: int
) -> None:
    """So many are requested that each rack has to get equally many."""
    rack_of_node = dict(zip(cloud.nodes, RACK_OF.values(), strict=True))
    n_before = [each.count("Decision") for each in cloud.schedulers]
    members = new_uuids(a_rack * N_RACKS)
    [uuid] = new_uuids()
    group = InstanceGroup(uuid=uuid, policy=policy, policies=[policy], members=members)
    named = {name: values or [uuid] for name, values in hints.items()}
    with ThreadPoolExecutor(len(members)) as pool:
        found = list(pool.map(partial(_rack, cloud, named, group), members))
    held = {each: cloud.placement.allocations(each).resources for each in members}
    racks = [[rack_of_node[node] for node in held[each]] for each in members]
    assert racks == [[] if rack is None else [rack] for rack in found]
    for uuid, rack in zip(members, found, strict=True):
        for process in cloud.schedulers if rack is None else ():
            print(*(line for line in process.log if uuid in line))
    assert Counter(found) == dict.fromkeys(RACK_OF.values(), a_rack)
    for process, n in zip(cloud.schedulers, n_before, strict=True):
        process.wait_for("Decision", times=n + 1)  # all took part
