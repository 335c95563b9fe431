# SPDX-License-Identifier: Apache-2.0
"""moorage-relay in processes: several of them, one is killed, one is paused."""

from __future__ import annotations

import contextlib
import itertools
import re
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.scheduler.conf import load
from moorage.scheduler.hosts import HostTable
from moorage.scheduler.sources.kafka import KafkaSource
from moorage.testing.builders import node_uuid

from ..fixtures.forked_starts import Start, forked_starts
from ..fixtures.kafka import Kafka
from ..fixtures.scheduler_process import SchedulerProcess
from ..fixtures.waiting import wait_until
from ..scheduler.sources.nova_db.databases import NODES, SERVICES, Nova

pytestmark = [pytest.mark.kafka, pytest.mark.deep, pytest.mark.xdist_group("kafka")]

LEADS = "This relay is now: leader"
FOLLOWS = "This relay is now: follower"


class Relays:
    """A nova whose hosts change all the time, and processes that relay them."""

    def __init__(self, kafka: Kafka, nova: Nova, folder: Path) -> None:
        self.nova = nova
        self.folder = folder
        self.kafka = kafka
        self.conf = load([], config_files=[])
        kafka.configure(self.conf)
        self._numbers = itertools.count(1)
        self._stopping = threading.Event()
        self.newest = 8
        # A relay that is paused as it reads would block all changes otherwise.
        with nova.cells["cell1"].connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
        nova.host("a")
        nova.host("dead")

    def started(self, until: str = "Relaying", **options: str) -> SchedulerProcess:
        file = self.folder / f"relay-{next(self._numbers)}.conf"
        topics = "\n".join(f"{n} = {v}" for n, v in self.kafka.options().items())
        more = "\n".join(f"{n} = {v}" for n, v in options.items())
        file.write_text(
            f"[api_database]\nconnection = {self.nova.connections['api']}\n"
            f"[relay]\nname = {self.kafka.name}\n[kafka]\n{topics}\n"
            f"[telemetry]\nhttp_port = 0\n"
            f"[moorage]\nsource = nova_db\nrefresh_interval = 0.1\n{more}\n"
        )
        return SchedulerProcess(file, module="moorage.scheduler.cmd.relay", until=until)

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Change a host ten times a second."""
        thread = threading.Thread(target=self._change)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()

    def _change(self) -> None:
        cell = self.nova.cells["cell1"]
        while not self._stopping.wait(0.1):
            now_us = int(time.time() * 1_000_000)
            with cell.begin() as connection:
                connection.execute(
                    NODES.update()
                    .where(NODES.c.host == "a")
                    .values(vcpus=self.newest + 1, updated_at=now_us)
                )
                connection.execute(
                    SERVICES.update()
                    .where(SERVICES.c.host == "a")
                    .values(last_seen_up=now_us, updated_at=now_us)
                )
            self.newest += 1

    @contextlib.contextmanager
    def scheduler(self) -> Iterator[Scheduler]:
        following = Scheduler(self.conf)
        try:
            yield following
        finally:
            following.stop()


class Scheduler:
    """Follows the topics, and notes each state of the host."""

    def __init__(self, conf: Any) -> None:
        self.table = HostTable()
        self._source = KafkaSource(conf)
        self._source.start(self.table)
        self._source.start_polling(self.table)
        self.states: list[tuple[int, float]] = []
        self.is_dead_up = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._note)
        self._thread.start()

    def _note(self) -> None:
        while not self._stopping.wait(0.01):
            batch = self.table.batch([node_uuid("a")])
            if len(batch):
                state = (
                    batch.value("vcpus_total", 0),
                    batch.value("last_seen_up", 0),
                )
                if state not in self.states[-1:]:
                    self.states.append(state)
            dead = self.table.batch([node_uuid("dead")])
            self.is_dead_up |= any(time.time() - s < 600 for s in dead.last_seen_up)

    @property
    def newest(self) -> int:
        return self.states[-1][0] if self.states else 0

    def assert_nothing_went_back(self) -> None:
        assert self.states == sorted(self.states)
        assert not self.is_dead_up

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._source.stop()


@pytest.fixture
def relays(tmp_path: Path) -> Iterator[Relays]:
    with Kafka() as kafka, Nova(tmp_path) as nova:
        yield Relays(kafka, nova, tmp_path)


def test_killed_leader_is_replaced(relays: Relays) -> None:
    with relays.started(LEADS) as first, relays.started(FOLLOWS) as second:
        with relays.scheduler() as scheduler, relays.changing():
            wait_until(lambda: scheduler.newest > 10)
            assert second.count(LEADS) == 0
            first.send(signal.SIGKILL)
            began = time.monotonic()
            second.wait_for(LEADS)
            print(f"replaced after {time.monotonic() - began:.1f} s")
            wanted = relays.newest
            wait_until(lambda: scheduler.newest >= wanted)
            print(f"caught up after {time.monotonic() - began:.1f} s")
        scheduler.assert_nothing_went_back()
        first.wait()


def test_leader_that_was_paused_writes_nothing_and_follows(relays: Relays) -> None:
    with relays.started(LEADS) as first, relays.started(FOLLOWS) as second:
        with relays.scheduler() as scheduler, relays.changing():
            wait_until(lambda: scheduler.newest > 10)
            assert second.count(LEADS) == 0
            n_before = first.count(FOLLOWS)
            first.send(signal.SIGSTOP)
            second.wait_for(LEADS)
            wanted = relays.newest
            wait_until(lambda: scheduler.newest >= wanted)
            first.send(signal.SIGCONT)
            first.wait_for(FOLLOWS, times=n_before + 1)
            wanted = relays.newest
            wait_until(lambda: scheduler.newest >= wanted)
            assert second.count(FOLLOWS) == 1, "it led all the time"
        scheduler.assert_nothing_went_back()


def test_leader_that_stops_is_replaced_at_once(relays: Relays) -> None:
    with relays.started(LEADS) as first, relays.started(FOLLOWS) as second:
        with relays.scheduler() as scheduler, relays.changing():
            assert second.count(LEADS) == 0
            began = time.monotonic()
            assert first.stop() == 0
            second.wait_for(LEADS)
            print(f"replaced after {time.monotonic() - began:.1f} s")
            wanted = relays.newest
            wait_until(lambda: scheduler.newest >= wanted)
        scheduler.assert_nothing_went_back()


def _get(relay: SchedulerProcess, path: str) -> tuple[int, str]:
    [port] = re.findall(r"on port (\d+) of 127", "".join(relay.log))
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def test_probes_and_metrics_show_the_role(relays: Relays) -> None:
    with relays.started(LEADS) as first, relays.started(FOLLOWS) as second:
        assert _get(first, "/readyz") == (200, "Role: leader.\n")
        assert _get(second, "/readyz") == (200, "Role: follower.\n")
        metrics = _get(first, "/metrics")[1]
        assert "moorage_relay_leader 1.0" in metrics
        assert "moorage_relay_hosts 2.0" in metrics
        assert 'moorage_relay_messages_total{kind="report"} 2.0' in metrics
        assert "moorage_relay_last_write_timestamp_seconds" in metrics
        assert "moorage_relay_leader 0.0" in _get(second, "/metrics")[1]


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    with forked_starts("relaying") as start:
        yield start


@pytest.mark.deep
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("kafka", "[moorage] source = kafka: "),
        ("file", "[moorage] inventory_file is not"),
        ("nova_db", "[api_database] connection is"),
    ],
)
def test_invalid_options_end_it_with_one_line(
    start: Start, tmp_path: Path, source: str, words: str
) -> None:
    file = tmp_path / "relay.conf"
    file.write_text(
        f"[moorage]\nsource = {source}\n[kafka]\nbootstrap_servers = 127.0.0.1:1\n"
    )
    status, printed = start(file)
    assert status == 1
    assert printed.splitlines()[-1].startswith(f"moorage-relay: {words}")
    assert "Traceback" not in printed
