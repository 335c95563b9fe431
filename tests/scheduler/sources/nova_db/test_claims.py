# SPDX-License-Identifier: Apache-2.0
"""A claim stays consumed until the host's row includes the instance."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from oslo_config import cfg

from moorage.scheduler.hosts import Consumption, HostTable

from ....conftest import instance_uuid, node_uuid
from .databases import Nova, us

ONE, OTHER = instance_uuid("one"), instance_uuid("other")
FREE = 8192
SMALL = Consumption(memory_mb=512, disk_mb=1024, vcpus=1)


class Claiming:
    """A host with one instance, and a claim of another, made at NOW + 10."""

    def __init__(self, nova: Nova, conf: cfg.ConfigOpts) -> None:
        self.nova = nova
        nova.host("a")
        nova.instance(OTHER, "a", updated_at=us(-500))
        self.table = HostTable(clock=nova.clock)
        self.source = nova.source(conf)
        self.source.start(self.table)
        nova.clock.now += 10
        self.table.claims.consume(node_uuid("a"), ONE, SMALL)
        nova.clock.now += 1

    def build(self) -> None:
        """Say that the instance is on the host."""
        self.nova.instance(ONE, "a", updated_at=us(11))

    def report(self, at: float, n_instances: int = 2, free: int = FREE - 512) -> None:
        stats = json.dumps({"num_instances": str(n_instances)})
        self.nova.change("a", updated_at=us(at), free_ram_mb=free, stats=stats)

    def poll(self) -> int:
        """Return the free RAM that a decision sees; the clock goes on by a second."""
        self.source.refresh_if_stale(self.table)
        self.nova.clock.now += 1
        (host,) = self.table.batch()
        assert set(host.instances) == {ONE, OTHER}
        return int(host.free_ram_mb)

    @property
    def is_settled(self) -> bool:
        return not self.table.claims.unreported()


@pytest.fixture
def claiming(tmp_path: Path, conf: cfg.ConfigOpts) -> Iterator[Claiming]:
    with Nova(tmp_path) as nova:
        yield Claiming(nova, conf)


def test_report_that_includes_the_instance_settles(claiming: Claiming) -> None:
    assert claiming.poll() == FREE - 512
    claiming.build()
    claiming.report(12)
    assert claiming.poll() == FREE - 512
    assert claiming.is_settled


def test_instance_alone_settles_nothing(claiming: Claiming) -> None:
    claiming.build()
    for _ in range(20):
        assert claiming.poll() == FREE - 512
    assert not claiming.is_settled


def test_report_alone_settles_nothing(claiming: Claiming) -> None:
    for second in range(12, 30):
        claiming.report(second, n_instances=1, free=FREE)
        assert claiming.poll() == FREE - 512
    assert not claiming.is_settled


def test_report_that_the_instance_just_missed_settles_nothing(
    claiming: Claiming,
) -> None:
    claiming.report(12, n_instances=1, free=FREE)
    claiming.build()  # read in the same poll
    assert claiming.poll() == FREE - 512
    assert not claiming.is_settled
    claiming.report(13)  # the compute writes it next
    assert claiming.poll() == FREE - 512
    assert claiming.is_settled


def test_report_after_the_instance_settles_the_claim(
    claiming: Claiming,
) -> None:
    claiming.build()
    claiming.poll()
    claiming.report(12, n_instances=0)
    assert claiming.poll() == FREE - 512
    assert claiming.is_settled


def test_unchanged_report_settles_the_claim(claiming: Claiming) -> None:
    claiming.build()
    claiming.report(12, n_instances=0)
    assert claiming.poll() == FREE - 1024
    claiming.nova.clock.now += 5
    assert claiming.poll() == FREE - 512
    assert claiming.is_settled


@pytest.mark.parametrize(("behind_s", "settles"), [(4, True), (6, False)])
def test_clock_of_the_host_may_be_some_seconds_behind(
    claiming: Claiming, behind_s: float, settles: bool
) -> None:
    claiming.build()
    claiming.report(10 - behind_s)
    claiming.poll()
    assert claiming.is_settled is settles


def test_row_that_was_read_before_the_claim_never_settles_it(
    tmp_path: Path, conf: cfg.ConfigOpts
) -> None:
    with Nova(tmp_path) as nova:
        nova.host("a", updated_at=us(100))  # its clock is ahead
        table = HostTable(clock=nova.clock)
        source = nova.source(conf)
        source.start(table)
        nova.clock.now += 10
        table.claims.consume(node_uuid("a"), ONE, SMALL)
        nova.instance(ONE, "a", updated_at=us(11))
        for _ in range(20):
            nova.clock.now += 1
            source.refresh_if_stale(table)
        assert table.claims.unreported()


def test_heartbeat_leaves_claims_alone(claiming: Claiming) -> None:
    claiming.build()
    claiming.nova.beat("a", 11)
    assert claiming.poll() == FREE - 512
    assert not claiming.is_settled
