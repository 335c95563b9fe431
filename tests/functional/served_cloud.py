# SPDX-License-Identifier: Apache-2.0
"""Schedulers in processes of their own that share a broker and a real Placement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.embedded import TOKEN
from moorage.scheduler.rpc import SchedulerAPI, get_transport

from ..fixtures.database_servers import Database
from ..fixtures.rabbitmq import Broker
from ..fixtures.scheduler_process import SchedulerProcess, SchedulerProcesses
from .claimers import cloud_of

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
"""


class ServedCloud(NamedTuple):
    """The servers that schedulers share, and a conductor's client.

    Attributes
    ----------
    nodes : sequence of str
        UUIDs of the hosts, in their order.
    """

    placement: PlacementClient
    nodes: Sequence[str]
    schedulers: Sequence[SchedulerProcess]
    api: SchedulerAPI


@contextmanager
def served_cloud(
    kind: Database,
    folder: Path,
    hosts: Sequence[Mapping[str, Any]],
    *,
    n_schedulers: int,
    options: str = "",
) -> Iterator[ServedCloud]:
    """Serve hosts; `options` are added to the configuration of each scheduler."""
    config_files = [
        folder / f"scheduler{number}.conf" for number in range(n_schedulers)
    ]
    with Broker() as broker, cloud_of(kind, folder, hosts) as cloud:
        for config_file in config_files:
            config_file.write_text(
                CONFIG.format(
                    name=config_file.stem,
                    transport_url=broker.transport_url,
                    placement_url=cloud.server.url,
                    token=TOKEN,
                    inventory_file=cloud.inventory_file,
                )
                + options
            )
        with SchedulerProcesses(config_files) as processes:
            conf = moorage_conf.load([], config_files=[])
            transport = get_transport(conf, broker.transport_url)
            api = SchedulerAPI(transport, timeout_s=300)
            client = cloud.server.client
            yield ServedCloud(client, cloud.hosts, processes.schedulers, api)
            transport.cleanup()
