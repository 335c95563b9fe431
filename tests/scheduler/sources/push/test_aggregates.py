# SPDX-License-Identifier: Apache-2.0
"""Aggregates that are cast, kept in the store, and read by other processes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import Client

from moorage.objects import Aggregate
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.placement.embedded import EmbeddedPlacement
from moorage.scheduler.placement.seed import Provider, seed
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.web import Answers, make_app
from moorage.testing.builders import host, node_uuid

from ....fixtures.clouds import CONTEXT, new_uuids, request
from ....fixtures.placement_servers import EmbeddedPlacementFixture
from ....fixtures.waiting import wait_until
from .conftest import Wire

HOSTS = ("h1", "h2")
ZONE_UUID = "aaaaaaaa-0000-4000-8000-000000000001"
FILTERS = ["ComputeFilter", "AggregateMultiTenancyIsolation"]


def aggregate(id_: int, *hosts: str, **metadata: str) -> Aggregate:
    """An aggregate as nova's API casts it."""
    uuid = f"{ZONE_UUID[:-1]}{id_}"
    return Aggregate(
        id=id_, uuid=uuid, name=f"a{id_}", hosts=list(hosts), metadata=metadata
    )


#: h1 is in the zone az2, and is another project's.
ZONE = aggregate(1, "h1", availability_zone="az2")
ISOLATED = aggregate(2, "h1", filter_tenant_id="other")


class Cloud:
    """Two reported hosts in a real Placement, and any number of processes."""

    def __init__(self, placement: EmbeddedPlacement, folder: Path) -> None:
        self._placement = placement
        self._folder = folder
        self._running = contextlib.ExitStack()
        self._wire = Wire()

    def start(self, store: str = "hosts", **options: Any) -> Scheduler:
        """Start a process on a store: a scheduler, or what moorage-api asks."""
        conf = moorage_conf.load([], config_files=[])
        url = f"sqlite:///{self._folder}/{store}.sqlite"
        options = {"source": "push", "store_connection": url, **options}
        for name, value in {**options, "candidates_max_age": 0}.items():
            conf.set_override(name, value, group="moorage")
        conf.set_override("enabled_filters", FILTERS, group="filter_scheduler")
        scheduler = build(conf, placement=self._placement)
        self._running.callback(scheduler.stop)
        scheduler.start()
        return scheduler

    def report(self, *schedulers: Scheduler) -> None:
        """Report all hosts to these processes."""
        self._wire.restart()
        self._wire.reporter.report_many([(host(host=name), []) for name in HOSTS])
        casts = self._wire.casts()
        for each in schedulers:
            endpoint: Any
            (endpoint,) = each.source_endpoints
            endpoint.host_reports({}, casts)

    def stop(self) -> None:
        """Stop all processes."""
        self._running.close()


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with EmbeddedPlacementFixture() as embedded:
        providers = [
            Provider(
                node_uuid(name),
                name,
                {"VCPU": {"total": 8}, "MEMORY_MB": {"total": 9999},
                 "DISK_GB": {"total": 99}},
                aggregates=frozenset({ZONE_UUID} if name == "h1" else ()),
            )
            for name in HOSTS
        ]  # fmt: skip
        seed(embedded.client, providers)
        made = Cloud(embedded.placement, tmp_path)
        yield made
        made.stop()


def cast(scheduler: Scheduler, *aggregates: Aggregate) -> None:
    """Send aggregates to a scheduler, as nova's API does."""
    endpoint: Any = scheduler.endpoints[0]
    endpoint.update_aggregates({}, list(aggregates))


def hosts_of(scheduler: Scheduler, **changes: Any) -> set[str]:
    """Return the hosts that requests of a project get, or none."""
    found = set()
    for _ in range(4):
        try:
            answer: Any = scheduler.select_destinations(
                CONTEXT, request(memory_mb=64, root_gb=1, **changes), new_uuids(), True
            )
        except NoValidHost:
            continue
        found.add(answer[0][0].service_host)
    return found


def ids(scheduler: Scheduler) -> set[int]:
    return {each.id for each in scheduler.table.aggregates}


def asked(scheduler: Scheduler, path: str, **body: Any) -> Any:
    """Return an answer of the HTTP API on what a process knows."""
    client = Client(make_app(Answers(scheduler.explainer, None)))
    flavor = {"vcpus": 1, "memory_mb": 64, "root_gb": 1}
    wanted = {"flavor": flavor, "project_id": "project", **body.pop("request", {})}
    answer = client.post(f"/v1/{path}", json={"request": wanted, **body})
    assert answer.status_code == 200, answer.text
    return answer.json


def test_zones_and_isolation_hold_after_a_restart(cloud: Cloud) -> None:
    first = cloud.start()
    cloud.report(first)
    cast(first, ZONE, ISOLATED)
    assert hosts_of(first) == {"h2"}
    first.stop()
    second = cloud.start()
    assert hosts_of(second) == {"h2"}
    assert hosts_of(second, availability_zone="az2", project_id="other") == {"h1"}
    assert second.status.readiness_note == ""


def test_aggregate_that_was_changed_or_deleted_stays_so_after_a_restart(
    cloud: Cloud,
) -> None:
    first = cloud.start()
    cloud.report(first)
    cast(first, ZONE, ISOLATED, aggregate(3, "h2"))
    first.stop()
    second = cloud.start()
    cast(second, aggregate(3, "h1", "h2", ssd="true"))
    endpoint: Any = second.endpoints[0]
    endpoint.delete_aggregate({}, ISOLATED)
    second.stop()
    third = cloud.start()
    assert ids(third) == {1, 3}
    assert {a.hosts for a in third.table.aggregates if a.id == 3} == {frozenset(HOSTS)}


def test_scheduler_without_any_says_so_at_the_start_and_when_it_is_ready(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = cloud.start()
    cloud.report(scheduler)
    assert "No host aggregate is known" in caplog.text
    wait_until(lambda: scheduler.status.is_ready)
    assert "No host aggregate is known" in scheduler.status.readiness_note
    cast(scheduler, ZONE)
    wait_until(lambda: scheduler.status.readiness_note == "")


def test_start_logs_how_old_the_aggregates_are(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    first = cloud.start()
    cloud.report(first)
    cast(first, ZONE, ISOLATED)
    first.stop()
    caplog.set_level(logging.INFO)
    cloud.start()
    assert "2 aggregates restored from the store, the newest of 20" in caplog.text


@pytest.mark.deep
def test_api_explains_with_the_aggregates_of_the_schedulers(cloud: Cloud) -> None:
    scheduler, api = cloud.start(), cloud.start()
    cloud.report(scheduler, api)
    cast(scheduler, ZONE, ISOLATED)
    wait_until(lambda: ids(api) == {1, 2})
    [verdict] = asked(api, "why-not", host="h1")["nodes"]
    assert [each["check"] for each in verdict["reasons"]] == FILTERS[1:]
    dry_run = asked(api, "dry-run", count=2)["decision"]["instances"]
    assert {each["host"] for each in dry_run} == {"h2"}
    other = asked(api, "closest", request={"availability_zone": "az2"})
    assert (other["n_passing"], other["notes"]) == (0, [])
    zones = {each.host: each.zone for each in api.explainer.hosts().hosts}
    assert zones == {"h1": "az2", "h2": "nova"}
    cast(scheduler, aggregate(2, "h2", filter_tenant_id="other"))
    wait_until(lambda: asked(api, "why-not", host="h1")["nodes"][0]["passes"])
    endpoint: Any = scheduler.endpoints[0]
    endpoint.delete_aggregate({}, ZONE)
    wait_until(lambda: ids(api) == {2})


@pytest.mark.parametrize("path", ["why-not", "dry-run", "closest"])
def test_answers_say_that_no_aggregate_is_known(cloud: Cloud, path: str) -> None:
    scheduler, api = cloud.start(), cloud.start("of-its-own")
    cloud.report(scheduler, api)
    cast(scheduler, ZONE, ISOLATED)
    body = {"host": "h1"} if path == "why-not" else {}
    [note] = asked(api, path, **body)["notes"]
    assert note.startswith("No host aggregate is known")


def test_cast_that_a_scheduler_has_missed_reaches_it_through_the_store(
    cloud: Cloud,
) -> None:
    first, second = cloud.start(), cloud.start()
    cloud.report(first, second)
    cast(first, ZONE)
    wait_until(lambda: ids(second) == {1})


def test_older_state_of_the_store_does_not_replace_a_newer_cast(
    cloud: Cloud,
) -> None:
    """Two schedulers receive the same casts, one of them later."""
    first, second = cloud.start(), cloud.start()
    cloud.report(first, second)
    cast(second, aggregate(1, "h2", availability_zone="az2"))
    cast(first, ZONE)
    # Both have written and read after this one was seen by the other.
    cast(first, aggregate(3))
    wait_until(lambda: 3 in ids(second))
    cast(second, aggregate(4))
    wait_until(lambda: 4 in ids(first))
    for scheduler, host_name in ((second, "h2"), (first, "h1")):
        [found] = [each for each in scheduler.table.aggregates if each.id == 1]
        assert found.hosts == {host_name}


def test_store_that_is_away_at_the_start_gets_them_later(
    cloud: Cloud, tmp_path: Path
) -> None:
    in_the_way = tmp_path / "later"
    in_the_way.write_text("")
    scheduler = cloud.start("later/hosts")
    cloud.report(scheduler)
    cast(scheduler, ZONE)
    in_the_way.unlink()
    wait_until(lambda: not scheduler.status.readiness_note, timeout_s=60)
    scheduler.stop()
    assert ids(cloud.start("later/hosts")) == {1}
