# SPDX-License-Identifier: Apache-2.0
"""Eight schedulers over a real broker break no rule about racks, and refuse no one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

import pytest

from moorage.objects import InstanceGroup
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.embedded import TOKEN
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.rpc import SchedulerAPI, get_transport
from moorage.scheduler.seeding import providers
from moorage.scheduler.sources.inventory import read_inventory

from ..fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory
from ..fixtures.database_servers import Database, database_server
from ..fixtures.placement_servers import PlacementServer
from ..fixtures.rabbitmq import Broker
from ..fixtures.scheduler_process import SchedulerProcess, SchedulerProcesses

N_SCHEDULERS = 8
N_RACKS = 8
#: Groups of each rule, one after the other; their members are requested at once.
N_GROUPS = 2
LARGE = {"vcpus": 512, "memory_mb": 1 << 20, "local_gb": 10_000}
RACK_OF = {f"h{i}": f"r{i % N_RACKS}" for i in range(2 * N_RACKS)}

CONFIG = """
[DEFAULT]
host = {name}
transport_url = {transport_url}
[placement]
auth_type = admin_token
endpoint = {placement_url}
endpoint_override = {placement_url}
token = {token}
timeout = 120
[moorage]
inventory_file = {inventory_file}
[locality]
levels = rack
"""


class Cloud(NamedTuple):
    """What the schedulers share, and a conductor's client."""

    placement: PlacementClient
    rack_of_node: Mapping[str, str]
    schedulers: Sequence[SchedulerProcess]
    api: SchedulerAPI


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Eight schedulers, and two large hosts in each of eight racks."""
    folder = tmp_path_factory.mktemp("cloud")
    hosts = [host(n, places={"rack": rack}, **LARGE) for n, rack in RACK_OF.items()]
    path = write_inventory(folder, *hosts)
    inventory = read_inventory(path)
    with ExitStack() as stack:
        broker = stack.enter_context(Broker())
        database = database_server(Database.MARIADB)
        server = stack.enter_context(PlacementServer(database))
        seed(server.client, providers(inventory))
        config_files = [folder / f"{number}.conf" for number in range(N_SCHEDULERS)]
        for config_file in config_files:
            config_file.write_text(
                CONFIG.format(
                    name=f"scheduler{config_file.stem}",
                    transport_url=broker.transport_url,
                    placement_url=server.url,
                    token=TOKEN,
                    inventory_file=path,
                )
            )
        processes = stack.enter_context(SchedulerProcesses(config_files))
        conf = moorage_conf.load([], config_files=[])
        transport = get_transport(conf, broker.transport_url)
        stack.callback(transport.cleanup)
        racks = {h.record.uuid: RACK_OF[h.record.host] for h in inventory.hosts}
        api = SchedulerAPI(transport, timeout_s=300)
        yield Cloud(server.client, racks, processes.schedulers, api)


def _rack(
    cloud: Cloud, hints: dict[str, list[str]], group: InstanceGroup, uuid: str
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
    cloud: Cloud, hints: dict[str, list[str]], policy: str, a_rack: int
) -> None:
    """So many are requested that each rack has to get equally many."""
    n_before = [each.count("Decision") for each in cloud.schedulers]
    for _ in range(N_GROUPS):
        members = new_uuids(a_rack * N_RACKS)
        [uuid] = new_uuids()
        group = InstanceGroup(
            uuid=uuid, policy=policy, policies=[policy], members=members
        )
        named = {name: values or [uuid] for name, values in hints.items()}
        with ThreadPoolExecutor(len(members)) as pool:
            found = list(pool.map(partial(_rack, cloud, named, group), members))
        held = {each: cloud.placement.allocations(each).resources for each in members}
        racks = [[cloud.rack_of_node[node] for node in held[each]] for each in members]
        assert racks == [[] if rack is None else [rack] for rack in found]
        for uuid, rack in zip(members, found, strict=True):
            for process in cloud.schedulers if rack is None else ():
                print(*(line for line in process.log if uuid in line))
        assert Counter(found) == dict.fromkeys(RACK_OF.values(), a_rack)
    for process, n in zip(cloud.schedulers, n_before, strict=True):
        process.wait_for("Decision", times=n + 1)  # all took part
