# SPDX-License-Identifier: Apache-2.0
"""Stores of decisions in real databases, and records to put there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.scheduler.decision_store import DecisionStore
from moorage.scheduler.drivers.record import (
    ClaimAttempt,
    DecisionRecord,
    FilterStep,
    InstanceRecord,
    Outcome,
    WeighedHost,
    WeigherPart,
)
from moorage.testing.builders import NOW, instance_uuid, spec

from ...fixtures.database_servers import STORE_DATABASES, store_database

MakeRecord = Callable[..., DecisionRecord]


@pytest.fixture(params=STORE_DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database, which is dropped after."""
    with store_database(request.param, tmp_path) as url:
        yield url


@pytest.fixture
def store(database: str) -> Iterator[DecisionStore]:
    made = DecisionStore(database, clock=lambda: NOW)
    made.prepare()
    yield made
    made.stop()


@pytest.fixture
def record() -> MakeRecord:
    return make_record


def make_record(number: int = 1, host: str = "a", **changes: Any) -> DecisionRecord:
    """Return the record of one instance that was selected, at `NOW` plus a number."""
    uuid = instance_uuid(number)
    part = WeigherPart("RAMWeigher", 8192.0, 1.0, 0.1 * number)
    top = WeighedHost(host, host, 0.1 * number, (part,))
    fields = {
        "request_id": f"req-{number}",
        "instance_uuids": (uuid,),
        "n_instances": 1,
        "started_at": NOW + number,
        "project_id": "p1",
        "queries": ["/allocation_candidates?resources=VCPU:1"],
        "n_candidates": 7,
        "view_age_s": 0.5,
        "steps": [FilterStep("ComputeFilter", 5, 3, "down")],
        "instances": [InstanceRecord(uuid, host, 0.1 * number, (top,), ("b",))],
        "claims": [ClaimAttempt((uuid,), (host,), "claimed", 1, "")],
        "times_ms": {"total": 1.25},
        "outcome": Outcome.SELECTED,
        "request": spec(),
        **changes,
    }
    return DecisionRecord(**fields)
