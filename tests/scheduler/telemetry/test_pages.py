# SPDX-License-Identifier: Apache-2.0
"""Probes answer whether the process is alive and whether it is ready."""

from __future__ import annotations

import re
import socket

import pytest

from moorage.scheduler.conf import load
from moorage.scheduler.service import Scheduler
from moorage.scheduler.sources.base import BaseHostSource
from moorage.scheduler.telemetry.serving import Telemetry

from .conftest import Reader


def test_nothing_listens_unless_a_port_is_given() -> None:
    with Telemetry(load([], config_files=[])) as telemetry:
        assert telemetry.port is None


def test_alive_and_ready(reader: Reader) -> None:
    assert [reader.get(path).status for path in ("/healthz", "/readyz")] == [200, 200]


def test_part_that_is_not_ready_has_a_reason(
    reader: Reader, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BaseHostSource, "seen_at", lambda _self: 1.0)
    page = reader.get("/readyz")
    assert page.status == 503
    ages = re.compile(r"\d+ s old")  # a second may pass between the two
    note = scheduler.status.readiness_note
    assert ages.sub("", page.text) == ages.sub("", note) + "\n"
    assert "max_view_age" in page.text
    assert reader.get("/healthz").status == 200
    assert reader.metrics()["moorage_ready", ""] == 0


def test_a_process_that_stops_is_not_ready(reader: Reader) -> None:
    reader.served.is_stopping = True
    page = reader.get("/readyz")
    assert (page.status, page.text) == (503, "Stopping.\n")


def test_another_page_is_not_found_and_those_that_exist_are_named(
    reader: Reader,
) -> None:
    page = reader.get("/")
    assert page.status == 404
    assert "/metrics, /healthz, /readyz" in page.text


def test_head_has_no_body_and_post_is_not_allowed(reader: Reader) -> None:
    head = reader.get("/healthz", method="HEAD")
    assert (head.text, head.headers["Content-Length"]) == ("", "7")
    assert reader.get("/healthz", method="POST").status == 405


def test_no_answer_is_cached_or_names_a_version(reader: Reader) -> None:
    for path in ("/metrics", "/healthz"):
        headers = reader.get(path).headers
        assert (headers["Server"], headers["Cache-Control"]) == ("moorage", "no-store")


def test_query_of_a_probe_is_left_alone(reader: Reader) -> None:
    assert reader.get("/healthz?from=probe").status == 200


def test_silent_reader_does_not_block_others(reader: Reader) -> None:
    port = int(reader.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=30):
        assert reader.get("/healthz").status == 200


def test_a_page_that_fails_is_a_500_and_the_next_one_is_answered(
    reader: Reader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(BaseHostSource, "seen_at", lambda _self: 1 / 0)
        assert reader.get("/metrics").status == 500
    assert "ZeroDivisionError" in caplog.text
    assert reader.get("/metrics").status == 200
