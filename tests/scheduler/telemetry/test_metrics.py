# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics match the decisions."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from moorage.scheduler.conf import load
from moorage.scheduler.drivers.record import DecisionRecord
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.telemetry.serving import Telemetry
from moorage.testing import SchedulerFixture

from ...conftest import host as host_record
from ...fixtures.clouds import host, new_uuids, write_inventory
from .conftest import NAMES, Reader, Select


def test_decisions_are_counted_by_outcome_and_from_zero_on(
    reader: Reader, select: Select
) -> None:
    before = reader.metrics()
    select()
    select()
    with pytest.raises(NoValidHost):
        select(vcpus=1000)
    after = reader.metrics()
    grown = {
        outcome: (
            before["moorage_decisions_total", outcome],
            after["moorage_decisions_total", outcome],
        )
        for outcome in ("selected", "no_valid_host", "failed")
    }
    assert grown == {"selected": (0, 2), "no_valid_host": (0, 1), "failed": (0, 0)}


def test_each_step_has_its_time(reader: Reader, select: Select) -> None:
    select()
    metrics = reader.metrics()
    steps = {label for name, label in metrics if name.endswith("seconds_count")}
    assert {"placement", "hosts", "filters", "weighers", "claim", "total"} <= steps
    parts = sum(
        metrics["moorage_decision_seconds_sum", step] for step in steps - {"total"}
    )
    assert 0 < parts <= metrics["moorage_decision_seconds_sum", "total"]


def test_hosts_in_and_out_of_filters_are_counted(
    reader: Reader, select: Select
) -> None:
    select(ignore_hosts=["h1"])
    metrics = reader.metrics()
    ways = [
        (metrics[f"moorage_filter_hosts_{way}_total", step])
        for step in ("ignore_hosts", "ComputeFilter")
        for way in ("in", "out")
    ]
    assert ways == [3, 2, 2, 2]


def test_claims_and_candidates_are_counted(reader: Reader, select: Select) -> None:
    select()
    select(new_uuids(2))
    metrics = reader.metrics()
    assert metrics["moorage_claims_total", "claimed"] == 2
    assert metrics["moorage_claims_total", "refused"] == 0
    assert metrics["moorage_claim_attempts_total", ""] == 2
    assert metrics["moorage_offered_candidates_total", ""] == 2 * len(NAMES)
    assert metrics["moorage_candidate_queries_total", "sent"] == 1
    assert metrics["moorage_candidate_queries_total", "cached"] == 1
    assert metrics["moorage_cached_candidates", ""] == len(NAMES)
    assert metrics["moorage_pending_claims", ""] == 3


def test_state_is_reported_as_it_is_now(reader: Reader) -> None:
    metrics = reader.metrics()
    assert metrics["moorage_orphaned_claims", ""] == 0
    assert metrics["moorage_ready", ""] == 1


def _hosts_by_state(reader: Reader) -> dict[tuple[str, str], float]:
    return {
        (sample.labels["cell"], sample.labels["state"]): sample.value
        for family in text_string_to_metric_families(reader.get("/metrics").text)
        for sample in family.samples
        if sample.name == "moorage_hosts"
    }


def test_hosts_are_counted_by_cell_and_by_state() -> None:
    other = str(uuid.uuid4())
    hosts = [
        host_record(host="up"),
        host_record(host="disabled", disabled=True),
        host_record(host="forced", forced_down=True),
        host_record(host="silent", last_seen_up=1.0),
        host_record(host="elsewhere", cell_uuid=other, disabled=True),
    ]
    options: dict[str, dict[str, object]] = {
        "telemetry": {"http_port": 0},
        "scheduler": {"workers": 1},
    }
    with (
        SchedulerFixture(*hosts, options=options) as made,
        Telemetry(made.scheduler.conf) as telemetry,
        telemetry.serve(made.scheduler.status) as served,
    ):
        assert telemetry.port is not None
        reader = Reader(telemetry.port, served)
        [cell] = {name for name, _ in _hosts_by_state(reader)} - {other}
        assert _hosts_by_state(reader) == {
            (cell, "up"): 1, (cell, "down"): 2, (cell, "disabled"): 1,
            (other, "up"): 0, (other, "down"): 0, (other, "disabled"): 1,
        }  # fmt: skip
        table = made.scheduler.table
        table.drop_many(table.batch().uuid.tolist())
        assert set(_hosts_by_state(reader).values()) == {0}


@pytest.fixture
def following(tmp_path: Path) -> Iterator[Scheduler]:
    """A scheduler that follows the embedded Placement in its process."""
    conf = load([], config_files=[])
    conf.set_override("http_port", 0, group="telemetry")
    conf.set_override("workers", 1, group="scheduler")
    path = str(write_inventory(tmp_path, host("h1")))
    conf.set_override("inventory_file", path, group="moorage")
    scheduler = build(conf)
    scheduler.start()
    yield scheduler
    scheduler.stop()


def test_following_of_providers_is_measured(following: Scheduler) -> None:
    with (
        Telemetry(following.conf) as telemetry,
        telemetry.serve(following.status) as served,
    ):
        assert telemetry.port is not None
        measured = Reader(telemetry.port, served).metrics()
    assert 0 < measured["moorage_providers_age_seconds", ""] < 60
    assert measured["moorage_provider_readings_total", "read"] >= 1
    assert measured["moorage_provider_readings_total", "failed"] == 0
    assert measured["moorage_provider_reading_seconds_total", ""] > 0


def test_nothing_is_followed_without_providers_in_memory(reader: Reader) -> None:
    measured = reader.metrics()
    assert measured["moorage_providers_age_seconds", ""] == 0
    assert ("moorage_provider_readings_total", "read") not in measured


def test_counts_of_others_grow_and_are_no_more_than_those(
    reader: Reader, select: Select
) -> None:
    for _ in range(2):
        reader.metrics()
        select()
    results = {
        label: value
        for (name, label), value in reader.metrics().items()
        if name == "moorage_candidate_queries_total"
    }
    assert results["sent"] + results["cached"] == 2


def test_no_label_names_a_host_an_instance_or_a_project(
    reader: Reader, select: Select
) -> None:
    uuids = new_uuids()
    [[chosen, *_]] = select(uuids)
    text = reader.get("/metrics").text
    assert f'"{chosen.service_host}"' not in text
    assert uuids[0] not in text
    assert '"project"' not in text


def test_openmetrics_is_served_where_it_is_accepted(reader: Reader) -> None:
    page = reader.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert page.headers["Content-Type"].startswith("application/openmetrics-text")
    assert page.text.endswith("# EOF\n")


def test_failing_subscriber_fails_no_decision(
    scheduler: Scheduler, select: Select, caplog: pytest.LogCaptureFixture
) -> None:
    published: list[DecisionRecord] = []

    def fail(_record: DecisionRecord) -> None:
        raise RuntimeError("a bad day")

    scheduler.decisions.subscribe(fail)
    scheduler.decisions.subscribe(published.append)
    with caplog.at_level(logging.ERROR):
        select()
    assert "a bad day" in caplog.text
    assert len(published) == 1
    scheduler.decisions.unsubscribe(published.append)
    select()
    assert len(published) == 1
