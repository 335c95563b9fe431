# SPDX-License-Identifier: Apache-2.0
"""The load on nova's databases: four schedulers that poll them, or one relay."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy
from oslo_config import cfg
from rich.table import Table

from moorage.scheduler.hosts import HostTable
from moorage.scheduler.relay import Relay, RelayRole
from moorage.scheduler.sources.kafka import KafkaSource
from moorage.scheduler.sources.nova_db import NovaDBSource
from tests.fixtures.kafka import Kafka
from tests.fixtures.nova_databases import Kind, NovaDatabases
from tests.fixtures.waiting import wait_until

from .clouds import options
from .nova_db_source import N_CELLS, change, filled, set_connections
from .tables import make_table

N_SCHEDULERS = 4

_INTERVAL_S = 1.0
_STEP_S = 0.05
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class RelayLoad:
    """CPU time of MariaDB, milliseconds a second.

    Attributes
    ----------
    computes : float
        Of the computes' writes alone; the other two include it.
    pollers, relay : float
        With `N_SCHEDULERS` schedulers of the source nova_db; with as many of the source
        kafka, and one relay.
    """

    n_hosts: int
    computes: float
    pollers: float
    relay: float

    @property
    def ratio(self) -> float:
        """The load of the relay's reads, as a part of that of the pollers."""
        return (self.relay - self.computes) / (self.pollers - self.computes)


def relay_load(n_hosts: int, seconds: int) -> RelayLoad:
    """Measure each for some seconds, once the schedulers have read all hosts.

    Raises
    ------
    pytest.skip.Exception
        MariaDB, Java, Maven or nova-manage is missing.
    """
    with Kafka() as kafka, filled(Kind.MARIADB, n_hosts) as databases:
        conf = options(n_hosts)
        set_connections(conf, databases)
        # The services in the rows have all versions.
        conf.set_override(
            "disable_compute_service_check_for_ffu", True, group="workarounds"
        )
        kafka.configure(conf)
        conf.set_override("name", kafka.name, group="relay")

        def measure() -> float:
            return _cpu_ms_per_s(databases, n_hosts, seconds)

        computes = measure()
        with _pollers(databases, conf) as n_usable:  # some rows are invalid
            pollers = measure()
        with _relay(databases, conf, n_usable), _followers(conf, n_usable):
            relay = measure()
    return RelayLoad(n_hosts, computes, pollers, relay)


def _source(databases: NovaDatabases, conf: cfg.ConfigOpts) -> NovaDBSource:
    return NovaDBSource(
        databases.api, databases.engine, conf=conf, refresh_interval=_INTERVAL_S
    )


@contextmanager
def _pollers(databases: NovaDatabases, conf: cfg.ConfigOpts) -> Iterator[int]:
    """Have schedulers poll; yield the number of hosts that they read."""
    with contextlib.ExitStack() as stack:
        for _ in range(N_SCHEDULERS):
            source, table = _source(databases, conf), HostTable()
            source.start(table)
            source.start_polling(table)
            stack.callback(source.stop)
        yield len(table)


@contextmanager
def _relay(
    databases: NovaDatabases, conf: cfg.ConfigOpts, n_hosts: int
) -> Iterator[None]:
    relay, stopping = Relay(conf, lambda: _source(databases, conf)), threading.Event()

    def run() -> None:
        while not stopping.wait(_STEP_S):
            relay.step()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        status = relay.status
        wait_until(lambda: status.role is RelayRole.LEADER)
        wait_until(lambda: status.n_hosts >= n_hosts)
        yield
    finally:
        stopping.set()
        thread.join()
        relay.stop()


@contextmanager
def _followers(conf: cfg.ConfigOpts, n_hosts: int) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for _ in range(N_SCHEDULERS):
            source, table = KafkaSource(conf), HostTable()
            source.start(table)
            source.start_polling(table)
            stack.callback(source.stop)
            wait_until(_has_all(table, n_hosts))
        yield


def _has_all(table: HostTable, n_hosts: int) -> Callable[[], bool]:
    return lambda: len(table) >= n_hosts


def _cpu_ms_per_s(databases: NovaDatabases, n_hosts: int, seconds: int) -> float:
    """Return MariaDB's CPU time while a tenth of the computes reports each second."""
    server = _server_process(databases)
    began, cpu_before = time.monotonic(), _cpu_ms(server)
    for _ in range(seconds):
        change(databases, "compute nodes", max(N_CELLS, n_hosts // 100))
        change(databases, "heartbeats", n_hosts // 10)  # waits for the next second
    return (_cpu_ms(server) - cpu_before) / (time.monotonic() - began)


def _server_process(databases: NovaDatabases) -> int:
    with databases.api.connect() as connection:
        query = sqlalchemy.text("SELECT @@pid_file, @@datadir")
        name, folder = connection.execute(query).one()
    return int(Path(folder, name).read_text())


def _cpu_ms(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / _TICKS_PER_S


def relay_table(found: RelayLoad) -> Table:
    """Return the table of these loads."""
    table = make_table(
        "The load on nova's databases",
        "who reads them",
        "MariaDB, CPU ms a second|without the computes",
        f"{found.n_hosts:,} hosts in four cells; each second a tenth of the computes "
        "sends heartbeats and a hundredth reports. Schedulers and relay poll once a "
        f"second. The relay causes {found.ratio:.2f} of the load of {N_SCHEDULERS} "
        "schedulers.",
    )
    loads = {
        "no scheduler": found.computes,
        f"{N_SCHEDULERS} schedulers with nova_db": found.pollers,
        f"one relay for {N_SCHEDULERS} schedulers with kafka": found.relay,
    }
    for who, load in loads.items():
        table.add_row(who, f"{load:,.0f}", f"{load - found.computes:,.0f}")
    return table
