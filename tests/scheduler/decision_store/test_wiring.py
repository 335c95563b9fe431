# SPDX-License-Identifier: Apache-2.0
"""A scheduler stores what it decides, and decides whether or not that is possible."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.objects import RequestSpec
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.decision_store import DecisionStore
from moorage.scheduler.drivers.record import Outcome
from moorage.scheduler.errors import ConfigurationError, NoValidHost
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.views import StoredView

from ...fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory
from ...fixtures.stored_decisions import decisions_in

Start = Callable[..., Scheduler]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Start]:
    """Return a scheduler of two hosts with a store, not started."""
    made: list[Scheduler] = []

    def make(url: str, **options: Any) -> Scheduler:
        path = write_inventory(tmp_path, host("h1"), host("h2"))
        conf = moorage_conf.load([], config_files=[])
        conf.set_override("inventory_file", str(path), group="moorage")
        conf.set_override("decision_store_connection", url, group="moorage")
        for name, value in options.items():
            conf.set_override(name, value, group="moorage")
        made.append(build(conf))
        return made[-1]

    yield make
    for scheduler in made:
        scheduler.stop()


def _decide(scheduler: Scheduler, uuid: str, **flavor: Any) -> None:
    scheduler.select_destinations(CONTEXT, request(**flavor), [uuid])


def _stored(url: str, **query: Any) -> list[Any]:
    store = DecisionStore(url)
    try:
        return decisions_in(store, **query)
    finally:
        store.stop()


def test_decisions_outlive_the_scheduler(make: Start, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/decisions.sqlite"
    scheduler = make(url)
    scheduler.start()
    [selected, refused] = new_uuids(2)
    _decide(scheduler, selected, vcpus=2)
    with pytest.raises(NoValidHost):
        _decide(scheduler, refused, vcpus=99)
    in_memory = scheduler.decisions.newest()
    assert all(record.request is None for record in in_memory)
    scheduler.stop()
    assert [each.record for each in _stored(url)] == in_memory
    [decision] = _stored(url, instance_uuid=refused)
    assert decision.outcome is Outcome.NO_VALID_HOST
    assert decision.project_id == CONTEXT["project_id"]
    assert decision.record.n_known_hosts == 2
    assert decision.record.user_message == (
        "No valid host was found. Of 2 hosts: 2 lack CPUs."
    )
    assert isinstance(decision.request, RequestSpec)
    assert decision.request.flavor.vcpus == 99


def test_stored_request_can_be_decided_again(make: Start, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/decisions.sqlite"
    scheduler = make(url)
    scheduler.start()
    [uuid, again] = new_uuids(2)
    _decide(scheduler, uuid)
    scheduler.stop()
    [decision] = _stored(url)
    later = make("")
    later.start()
    later.select_destinations(CONTEXT, decision.request, [again])
    [record] = later.decisions.newest()
    assert record.queries == decision.record.queries


def test_decisions_go_on_without_the_store(
    make: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING):
        scheduler = make(f"sqlite:///{tmp_path}/file/decisions.sqlite")
        scheduler.start()
        _decide(scheduler, *new_uuids())
        scheduler.stop()
    assert scheduler.status.store is not None
    assert scheduler.status.store.n_dropped == 1
    lines = [record.message for record in caplog.records]
    away = [x for x in lines if x.startswith("The store of decisions cannot be used")]
    assert len(away) == 1


def test_start_is_refused_by_a_newer_schema(make: Start, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/decisions.sqlite"
    store = DecisionStore(url)
    store.prepare()
    with store._database.writing() as connection:  # noqa: SLF001 - no public way
        connection.exec_driver_sql(
            "UPDATE moorage_decisions_version SET version_num = '999'"
        )
    scheduler = make(url)
    with pytest.raises(ConfigurationError, match=r"newer Moorage \(revision 999\)"):
        scheduler.start()


@pytest.mark.parametrize("url", ["nothing", "oracle+nothing://h/d"])
def test_invalid_url_stops_the_start(make: Start, url: str) -> None:
    with pytest.raises(ConfigurationError, match="decision_store_connection"):
        make(url)


def test_embedded_placement_needs_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OS_MOORAGE__DECISION_STORE_CONNECTION")
    conf = moorage_conf.load([], config_files=[])
    path = write_inventory(tmp_path, host("h1"))
    conf.set_override("inventory_file", str(path), group="moorage")
    scheduler = build(conf)
    assert conf.moorage.decision_store_connection
    assert scheduler.status.store is None
    scheduler.stop()


@pytest.mark.parametrize("n_stored", [0, 20])
def test_the_view_of_the_first_decision_is_stored(
    make: Start, tmp_path: Path, n_stored: int
) -> None:
    url = f"sqlite:///{tmp_path}/decisions.sqlite"
    scheduler = make(url, stored_views=n_stored)
    scheduler.start()
    _decide(scheduler, new_uuids()[0])
    scheduler.stop()
    [decision] = _stored(url)
    assert (decision.record.replay is not None) is bool(n_stored)
    if n_stored:
        store = DecisionStore(url)
        data = store.view(decision.record.replay.view)
        store.stop()
        assert data is not None
        assert len(StoredView.decode(data).table(lambda: 0.0)) == 2
