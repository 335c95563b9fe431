# SPDX-License-Identifier: Apache-2.0
"""The newest records are kept in memory; each is logged, and published once."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from moorage.scheduler.drivers.decision_log import DecisionLog
from moorage.scheduler.drivers.record import DecisionRecord
from moorage.testing.builders import spec


def _record(*uuids: str, **changes: Any) -> DecisionRecord:
    plain = {"request_id": "req-1", "n_instances": 1, "started_at": 0.0}
    return DecisionRecord(**{**plain, "instance_uuids": uuids, **changes})


def test_log_keeps_the_newest_records() -> None:
    log = DecisionLog(2)
    first, second, third = (_record(u) for u in ("u1", "u2", "u3"))
    for record in (first, second, third):
        log.add(record)
    assert (len(log), log.newest(), log.newest(1)) == (2, [third, second], [third])
    assert log.find("u2") is second
    assert log.find("u1") is None


def test_newest_record_of_an_instance_is_found() -> None:
    log = DecisionLog(5)
    for request_id in ("old", "new"):
        log.add(_record("u1", "u2", request_id=request_id))
    found = log.find("u2")
    assert found is not None
    assert found.request_id == "new"


def test_record_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="moorage"):
        DecisionLog(1).add(_record("u1"))
    line = f"Decision {_record('u1').summary()}"
    assert [r.getMessage() for r in caplog.records] == [line]


def test_only_subscribers_get_the_request() -> None:
    log, got = DecisionLog(5), []
    log.subscribe(lambda record: got.append(record.request))
    request = spec()
    log.add(_record(request=request))
    assert got == [request]
    [record] = log.newest()
    assert record.request is None
    assert "request" not in record.to_dict()
