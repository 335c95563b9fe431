# SPDX-License-Identifier: Apache-2.0
"""SIGUSR2 has a report written, and nothing else happens."""

from __future__ import annotations

import datetime
import os
import signal
from pathlib import Path

import pytest

from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler.service import Scheduler
from moorage.scheduler.telemetry import report

from ...fixtures.waiting import wait_until
from .conftest import Select


def test_report_has_threads_decisions_notes_and_options(
    scheduler: Scheduler, select: Select
) -> None:
    [[chosen, *_]] = select()
    text = report.report(scheduler.status)
    assert "test_report_has_threads" in text
    assert "------ claim-reconciler" in text
    assert f" on {chosen.service_host} " in text
    assert "is_ready = True" in text
    assert "CacheStats(answers=1, requests=3" in text
    assert "[telemetry]\n  http_address = 127.0.0.1\n" in text


def test_report_has_no_secrets(scheduler: Scheduler) -> None:
    conf = scheduler.conf
    conf.set_override("transport_url", "rabbit://me:hush@broker/")
    conf.set_override("store_connection", "mysql://me:hush@db/", "moorage")
    conf.set_override("connection", "mysql://me:hush@db/", "api_database")
    conf.set_override("endpoint_override", "http://me:hush@placement/", "placement")
    text = report.report(scheduler.status)
    assert "hush" not in text
    assert "  store_connection = ***" in text
    assert "  endpoint_override = http://" in text


def test_report_does_not_control_a_terminal(scheduler: Scheduler) -> None:
    override = "http://placement/\x1b[2J"
    scheduler.conf.set_override("endpoint_override", override, "placement")
    text = report.report(scheduler.status)
    assert "\x1b" not in text
    assert "  endpoint_override = http://placement/\\x1b[2J\n" in text


def test_report_is_not_written_to_a_file_of_another_user(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    scheduler.conf.set_override("log_dir", str(tmp_path), "oslo_reports")
    other = tmp_path / "other"
    other.write_text("kept")
    now = datetime.datetime.now(datetime.UTC)
    for second in range(60):
        at = now + datetime.timedelta(seconds=second)
        name = f"moorage-scheduler_gurumeditation_{at:%Y%m%d%H%M%S}_{os.getpid()}"
        (tmp_path / name).symlink_to(other)
    with pytest.raises(ConfigurationError, match=r"log_dir .* File exists"):
        report.write(scheduler.status)
    assert other.read_text() == "kept"


def test_signal_has_a_file_written(scheduler: Scheduler, tmp_path: Path) -> None:
    scheduler.conf.set_override("log_dir", str(tmp_path), "oslo_reports")
    before = signal.getsignal(report.SIGNAL)
    restore = report.write_on_signal(scheduler.status)
    try:
        os.kill(os.getpid(), report.SIGNAL)
        written = wait_until(
            lambda: [p for p in tmp_path.iterdir() if "[workarounds]" in p.read_text()]
        )
    finally:
        restore()
    assert written[0].name.startswith("moorage-scheduler_gurumeditation_")
    assert written[0].stat().st_mode & 0o007 == 0
    assert signal.getsignal(report.SIGNAL) is before


def test_without_a_folder_it_goes_to_stderr(
    scheduler: Scheduler, capfd: pytest.CaptureFixture[str]
) -> None:
    assert report.write(scheduler.status) is None
    assert "Guru Meditation" in capfd.readouterr().err


def test_a_folder_that_is_not_there_is_named(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    scheduler.conf.set_override("log_dir", str(tmp_path / "gone"), "oslo_reports")
    with pytest.raises(ConfigurationError, match=r"\[oslo_reports\] log_dir"):
        report.write(scheduler.status)
