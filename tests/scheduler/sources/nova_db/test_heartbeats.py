# SPDX-License-Identifier: Apache-2.0
"""Heartbeats come from where nova's services keep them: the database, or memcached."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_cache import core
from oslo_config import cfg

from moorage.filters.compute import ComputeFilter
from moorage.scheduler.conf import load
from moorage.scheduler.errors import ConfigurationError, PluginError
from moorage.scheduler.hosts import HostTable
from moorage.scheduler.sources.nova_db import NovaDBSource, ServiceRecord, from_conf
from moorage.scheduler.sources.nova_db.heartbeats import heartbeats_of
from moorage.scheduler.sources.nova_db.service_record import SERVICES

from ....conftest import NOW, spec
from ....fixtures.memcached import Memcached
from ....fixtures.waiting import wait_until
from .databases import Nova, us

BACKENDS = (
    "dogpile.cache.pymemcache",
    "dogpile.cache.memcached",
    "oslo_cache.memcache_pool",
)


def options(server: str, backend: str = BACKENDS[0]) -> cfg.ConfigOpts:
    """The options of a cloud with heartbeats in memcached."""
    conf = load([], config_files=[])
    core.configure(conf)
    conf.set_override("servicegroup_driver", "mc")
    for name, value in (
        ("enabled", True),
        ("backend", backend),
        ("memcache_servers", [server]),
        ("memcache_socket_timeout", 30.0),
        ("memcache_dead_retry", 0),
    ):
        conf.set_override(name, value, group="cache")
    return conf


class Computes:
    """Write heartbeats as nova's computes do: nova/servicegroup/drivers/mc.py."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._region = core.create_region()
        core.configure_cache_region(conf, self._region)

    def beat(self, host: str, at: float, topic: str = "compute") -> None:
        time = datetime.datetime.fromtimestamp(at, datetime.UTC)
        self._region.set(f"{topic}:{host}", time.replace(tzinfo=None))

    def seen_at(self, host: str, topic: str) -> datetime.datetime:
        found = self._region.get(f"{topic}:{host}")
        assert isinstance(found, datetime.datetime)
        return found


class Cloud:
    """Hosts in a nova's databases, and heartbeats in memcached."""

    def __init__(self, nova: Nova, memcached: Memcached, backend: str) -> None:
        self.nova, self.memcached = nova, memcached
        self.conf = options(memcached.server, backend)
        self.computes = Computes(self.conf)
        self.table = HostTable()
        for name in ("up", "silent"):
            nova.host(name)
            # A row may have a heartbeat of the time before the driver was changed.
            nova.beat(name, -1.0)

    def start(self) -> NovaDBSource:
        """Return a source that has read all."""
        source = self.nova.source(self.conf, heartbeats=heartbeats_of(self.conf))
        source.start(self.table)
        return source

    def up(self) -> set[str]:
        """The hosts that ComputeFilter passes."""
        hosts = self.table.batch()
        mask = ComputeFilter(self.conf, clock=self.nova.clock).passing(hosts, spec())
        return {host.host for host, is_up in zip(hosts, mask, strict=True) if is_up}


@pytest.fixture(params=BACKENDS)
def cloud(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cloud]:
    with Memcached() as memcached, Nova(tmp_path) as nova:
        yield Cloud(nova, memcached, request.param)


@pytest.mark.memcached
def test_host_is_up_by_its_heartbeat_in_memcached_alone(cloud: Cloud) -> None:
    cloud.computes.beat("up", NOW - 59)
    source = cloud.start()
    assert cloud.up() == {"up"}
    cloud.nova.clock.now += 2
    assert cloud.up() == set(), "service_down_time is 60 s"
    cloud.computes.beat("up", NOW + 1)
    cloud.computes.beat("silent", NOW + 1000)  # its clock is ahead
    source.refresh_if_stale(cloud.table)
    assert cloud.up() == {"up", "silent"}


@pytest.mark.memcached
def test_change_of_a_row_leaves_the_heartbeat(cloud: Cloud) -> None:
    cloud.computes.beat("up", NOW)
    source = cloud.start()
    cloud.nova.beat("up", -500.0, updated_at=us(1), version=75)
    cloud.nova.clock.now += 1
    source.refresh_if_stale(cloud.table)
    assert cloud.up() == {"up"}
    [version] = {h.service_version for h in cloud.table.batch() if h.host == "up"}
    assert version == 75


@pytest.mark.memcached
def test_memcached_that_is_away_leaves_heartbeats_as_they_are(cloud: Cloud) -> None:
    cloud.computes.beat("up", NOW)
    source = cloud.start()
    cloud.memcached.stop()
    cloud.nova.clock.now += 30
    for _ in range(3):
        source.refresh_if_stale(cloud.table)
    assert cloud.up() == {"up"}, "it counts until service_down_time"
    assert source.seen_at() is None, "the databases are read all the same"
    cloud.nova.clock.now += 31
    source.refresh_if_stale(cloud.table)
    assert cloud.up() == set()
    cloud.memcached.start()
    Computes(cloud.conf).beat("up", cloud.nova.clock.now)

    def is_read_again() -> bool:
        # A client may first have to find out that its connection is gone.
        source.refresh_if_stale(cloud.table)
        return cloud.up() == {"up"}

    wait_until(is_read_again)


# python-memcached hides whether a server answers.
@pytest.mark.parametrize("cloud", ["dogpile.cache.pymemcache"], indirect=True)
@pytest.mark.memcached
def test_failure_to_read_heartbeats_is_logged_once(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "moorage")
    source = cloud.start()
    cloud.memcached.stop()
    for _ in range(3):
        source.refresh_if_stale(cloud.table)
    cloud.memcached.start()

    def is_read_again() -> bool:
        source.refresh_if_stale(cloud.table)
        return "read again" in caplog.text

    wait_until(is_read_again)
    messages = [r.getMessage() for r in caplog.records if "eartbeats" in r.getMessage()]
    assert [line.partition(":")[0] for line in messages] == [
        "Reading heartbeats failed, retrying", "Heartbeats are read again"
    ]  # fmt: skip


@pytest.mark.memcached
def test_scheduler_writes_its_own_heartbeat_where_nova_reads_it(cloud: Cloud) -> None:
    engine = cloud.nova.cells["cell1"]
    SERVICES.metadata.drop_all(engine)
    SERVICES.metadata.create_all(engine)
    record = ServiceRecord(
        lambda: engine, "control", heartbeats=heartbeats_of(cloud.conf)
    )
    began = time.time()
    assert record.report()
    found = cloud.computes.seen_at("control", "scheduler")
    assert began - 1 <= found.replace(tzinfo=datetime.UTC).timestamp() <= time.time()


def _wrong(**changes: Any) -> cfg.ConfigOpts:
    conf = options("127.0.0.1:1")
    for name, value in changes.items():
        conf.set_override(name, value, group="cache")
    return conf


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"enabled": False}, r"\[cache\] enabled = true", id="disabled"),
        pytest.param({"memcache_servers": []}, "memcache_servers", id="no servers"),
        pytest.param(
            {"backend": "dogpile.cache.null"}, "stores nothing", id="stores nothing"
        ),
        pytest.param(
            {"backend": "dogpile.cache.pylibmc"},
            r"\[cache\] backend dogpile.cache.pylibmc cannot be used: .*pylibmc",
            id="library not installed",
        ),
    ],
)
def test_wrong_options_stop_the_start_and_are_named(
    changes: dict[str, Any], message: str
) -> None:
    conf = _wrong(**changes)
    conf.set_override("connection", "sqlite://", group="api_database")
    with pytest.raises(ConfigurationError, match=message):
        from_conf(conf)


def test_unknown_driver_stops_the_start_with_those_that_exist() -> None:
    conf = load([], config_files=[])
    conf.set_override("servicegroup_driver", "zk")
    with pytest.raises(PluginError, match=r"moorage.heartbeats: .*'zk'.* db, mc"):
        heartbeats_of(conf)


def test_by_default_rows_have_the_heartbeats(conf: cfg.ConfigOpts) -> None:
    assert heartbeats_of(conf) is None
