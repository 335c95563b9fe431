# SPDX-License-Identifier: Apache-2.0
"""The capacity of an operator's flavors, at /metrics."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from werkzeug.test import Client

from moorage.objects import Flavor
from moorage.scheduler.explain import CapacityReport, Explainer, request_of_flavor
from moorage.scheduler.service import Scheduler
from moorage.scheduler.telemetry.capacity import CapacityGauge
from moorage.scheduler.telemetry.pages import make_app
from moorage.scheduler.telemetry.serving import ProcessTelemetry
from moorage.scheduler.waiting import ThreadSpawner

from ...fixtures.explained_clouds import explained_cloud
from ...fixtures.waiting import wait_until

VCPUS = {"small": 1, "huge": 512}


@pytest.fixture(scope="module")
def cloud() -> Iterator[Scheduler]:
    with explained_cloud(1, filter_scheduler__enabled_filters=[]) as (scheduler, _):
        yield scheduler


def _flavor(name: str) -> Flavor:
    sizes = {"vcpus": VCPUS[name], "memory_mb": 128, "root_gb": 0, "ephemeral_gb": 0}
    return Flavor(
        id=0, name=name, flavorid=name, swap=0, extra_specs={}, **sizes
    )  # fmt: skip


def _gauge(explainer: Explainer, *names: str, **options: float) -> CapacityGauge:
    def compute(names: Collection[str]) -> CapacityReport:
        known = [_flavor(name) for name in names if name in VCPUS]
        return explainer.capacity([request_of_flavor(each) for each in known])

    return CapacityGauge(names, compute, spawner=ThreadSpawner(), **options)


def _exported(scheduler: Scheduler, gauge: CapacityGauge) -> dict[str, dict[str, int]]:
    """Return the instances by flavor and zone."""
    with ProcessTelemetry(scheduler.status) as telemetry:
        text = (
            Client(make_app(telemetry.pages(collectors=[gauge]))).get("/metrics").text
        )
    found: dict[str, dict[str, int]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "moorage_capacity_instances":
                zone, number = sample.labels["zone"], int(sample.value)
                found.setdefault(sample.labels["flavor"], {})[zone] = number
    return found


def test_the_capacity_is_exported_by_flavor_and_zone(cloud: Scheduler) -> None:
    gauge = _gauge(cloud.explainer, "small", "huge", "small")
    gauge.refresh()
    [small] = cloud.explainer.capacity([request_of_flavor(_flavor("small"))]).flavors
    exported = _exported(cloud, gauge)
    assert sum(exported["small"].values()) == small.n_instances > 0
    for zone, number in exported["small"].items():
        of_zone = [each.n_instances for each in small.places if each.zone == zone]
        assert number == sum(of_zone)
    assert exported["huge"] == dict.fromkeys(exported["small"], 0)
    assert len(exported["huge"]) > 1


def test_a_failed_computation_exports_nothing_and_is_logged_once(
    cloud: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    has_providers = True

    def view() -> object:
        return cloud.candidates.provider_view() if has_providers else None

    explainer = Explainer(lambda: cloud.parts, view)  # type: ignore[arg-type]
    gauge = _gauge(explainer, "small")
    gauge.refresh()
    assert _exported(cloud, gauge)
    has_providers = False
    with caplog.at_level(logging.WARNING):
        gauge.refresh()
        gauge.refresh()
    assert _exported(cloud, gauge) == {}
    assert caplog.text.count("The capacity of [moorage] capacity_flavors is") == 1
    has_providers = True
    gauge.refresh()
    assert _exported(cloud, gauge)


def test_a_flavor_that_is_not_found_is_logged(
    cloud: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    gauge = _gauge(cloud.explainer, "small", "lost")
    gauge.refresh()
    assert set(_exported(cloud, gauge)) == {"small"}
    assert "[moorage] capacity_flavors: no flavor is named lost" in caplog.text


def test_it_is_computed_again_until_it_is_stopped(cloud: Scheduler) -> None:
    gauge = _gauge(cloud.explainer, "small", interval_s=0.001)
    gauge.start()
    try:
        wait_until(lambda: bool(_exported(cloud, gauge)))
        VCPUS["small"] = 512
        wait_until(lambda: not any(_exported(cloud, gauge)["small"].values()))
    finally:
        VCPUS["small"] = 1
        gauge.stop()
