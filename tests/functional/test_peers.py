# SPDX-License-Identifier: Apache-2.0
"""Over a real broker, schedulers publish their claims to each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.rpc import (
    PEERS_TOPIC,
    Peers,
    PeersEndpoint,
    get_server,
    get_transport,
)
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.inventory import read_inventory
from moorage.testing import builders

from ..fixtures.clouds import first_row, host, new_uuids, selected, write_inventory
from ..fixtures.placement_servers import EmbeddedPlacementFixture
from ..fixtures.rabbitmq import Broker
from ..fixtures.waiting import wait_until

WITHIN_S = 20.0

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("functional")]


@pytest.fixture
def schedulers(tmp_path: Path) -> Iterator[list[Scheduler]]:
    """Two schedulers of one cloud, each served on a transport of its own."""
    cells = builders.numa_topology(builders.numa_cell(0), builders.numa_cell(1))
    one = host("h1", numa_topology=cells.obj_to_primitive())
    path = write_inventory(tmp_path, one)
    with ExitStack() as stack:
        placement = stack.enter_context(EmbeddedPlacementFixture())
        broker = stack.enter_context(Broker())
        seed(placement.client, providers(read_inventory(path)))
        made = []
        for _ in range(2):
            conf = moorage_conf.load([], config_files=[])
            conf.set_override("inventory_file", str(path), group="moorage")
            scheduler = build(conf, placement=placement.adapter)
            scheduler.start()
            stack.callback(scheduler.stop)
            _serve(scheduler, broker.transport_url, stack)
            made.append(scheduler)
        yield made


def _serve(scheduler: Scheduler, url: str, stack: ExitStack) -> None:
    transport = get_transport(scheduler.conf, url)
    stack.callback(transport.cleanup)
    peers = Peers(transport)
    stack.callback(peers.stop)
    endpoint = PeersEndpoint(scheduler, peers.origin)
    server = get_server(scheduler.conf, transport, [endpoint], PEERS_TOPIC)
    server.start()
    stack.callback(server.wait)
    stack.callback(server.stop)
    scheduler.publish_claims = peers.publish


def test_claim_shows_at_the_other_scheduler(schedulers: list[Scheduler]) -> None:
    here, there = schedulers
    [uuid] = new_uuids()
    selected(here, uuid, vcpus=2)
    wait_until(lambda: uuid in first_row(there).instances)
    assert (first_row(there).vcpus_used, first_row(there).free_ram_mb) == (2, 15360)
    assert (first_row(here).vcpus_used, first_row(here).num_instances) == (2, 1), "once"


def test_pinned_cpus_are_consumed_at_the_other_scheduler(
    schedulers: list[Scheduler],
) -> None:
    here, there = schedulers
    cell = builders.guest_cell(pcpuset={0, 1, 2}, cpuset=set())
    [uuid] = new_uuids()
    guest = builders.guest_topology(cell)
    selected(here, uuid, numa_topology=guest, vcpus=3)
    wait_until(lambda: uuid in first_row(there).instances)
    pinned = [
        [set(cell.pinned_cpus) for cell in first_row(each).numa_topology.cells]
        for each in schedulers
    ]
    assert pinned[0] == pinned[1]
    assert sum(len(each) for each in pinned[1]) == 3


def test_unreadable_claim_is_logged_and_ignored(
    schedulers: list[Scheduler], caplog: pytest.LogCaptureFixture
) -> None:
    there = schedulers[1]
    there.apply_peer_claims([{"node_uuid": "x"}, {"vcpus": None}])
    assert first_row(there).vcpus_used == 0
    assert caplog.text.count("cannot be read") == 2


def test_what_another_scheduler_claimed_is_offered_no_more(
    schedulers: list[Scheduler],
) -> None:
    _, there = schedulers
    for scheduler in schedulers:
        selected(scheduler, new_uuids()[0], vcpus=4)
    wait_until(lambda: first_row(there).num_instances == 2)
    with pytest.raises(NoValidHost):
        selected(there, new_uuids()[0], vcpus=4)
    assert not there.decisions.newest(1)[0].claims, "no claim had to be refused"
