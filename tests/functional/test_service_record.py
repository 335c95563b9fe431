# SPDX-License-Identifier: Apache-2.0
"""moorage-scheduler as one of nova's services: its record, and old computes."""

from __future__ import annotations

import datetime
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from ..fixtures.nova_databases import Kind, NovaDatabases
from ..fixtures.ports import refusing_url
from ..fixtures.rabbitmq import Broker
from ..fixtures.scheduler_process import START_S, SchedulerProcess
from ..fixtures.waiting import wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.database,
    pytest.mark.deep,
    pytest.mark.peer,
    pytest.mark.xdist_group("functional"),
]

N_WORKERS = 2


@pytest.fixture
def databases() -> Iterator[NovaDatabases]:
    with NovaDatabases(Kind.MARIADB, n_cells=1, is_whole=False) as made:
        yield made


@pytest.fixture
def config_file(databases: NovaDatabases, tmp_path: Path) -> Iterator[Path]:
    with Broker() as broker:
        path = tmp_path / "moorage.conf"
        path.write_text(
            f"""
            [DEFAULT]
            transport_url = {broker.transport_url}
            host = control
            report_interval = 1
            [moorage]
            source = nova_db
            register_service = true
            [api_database]
            connection = {databases.api_url}
            [database]
            connection = {databases.main_url}
            [placement]
            endpoint_override = {refusing_url()}
            """.replace("            ", "")
        )
        yield path


def rows(databases: NovaDatabases) -> list[sa.Row]:
    table = databases.tables["services"]
    with databases.engine(databases.main_url).connect() as connection:
        return list(connection.execute(sa.select(table)).all())


def row_after_a_run(databases: NovaDatabases, config_file: Path) -> sa.Row:
    """Run workers until they wrote heartbeats; return what they left behind."""
    before = sum(row.report_count for row in rows(databases))
    enough = before + 2 * N_WORKERS + 1  # each writes one as it begins
    with SchedulerProcess(config_file, n_workers=N_WORKERS) as scheduler:
        wait_until(lambda: sum(row.report_count for row in rows(databases)) >= enough)
        scheduler.send(signal.SIGTERM)
        assert scheduler.wait() == 0
        assert scheduler.count("Traceback") == 0
    [row] = rows(databases)
    return row


def test_workers_share_a_row_that_outlives_them(
    databases: NovaDatabases, config_file: Path
) -> None:
    first = row_after_a_run(databases, config_file)
    identity = first.host, first.binary, first.topic, first.deleted
    assert identity == ("control", "nova-scheduler", "scheduler", 0)
    assert row_after_a_run(databases, config_file).id == first.id


def test_compute_that_is_too_old_stops_the_start(
    databases: NovaDatabases, config_file: Path
) -> None:
    now = datetime.datetime(2026, 3, 1)
    row = {
        "host": "node1", "binary": "nova-compute", "topic": "compute", "version": 70,
        "report_count": 1, "forced_down": False, "deleted": 0, "created_at": now,
    }  # fmt: skip
    databases.insert(databases.cells[0].url, "services", [row])
    ended = subprocess.run(
        [
            *(sys.executable, "-W", "ignore"),
            *("-m", "moorage.scheduler.cmd.scheduler"),
            *("--config-file", str(config_file)),
        ],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert ended.returncode == 1
    assert re.search(r"^moorage-scheduler: .*node1 \(70\)", ended.stderr, re.MULTILINE)
    with config_file.open("a") as file:
        file.write("[workarounds]\ndisable_compute_service_check_for_ffu = true\n")
    with SchedulerProcess(config_file, n_workers=N_WORKERS) as scheduler:
        # Logged once, and not by each worker.
        assert scheduler.count(r"WARNING.*node1 \(70\)") == 1
