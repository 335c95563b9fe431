# SPDX-License-Identifier: Apache-2.0
"""A scheduler of three hosts, and a reader of its telemetry port."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.message import Message
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from moorage.scheduler.service import Scheduler
from moorage.scheduler.telemetry.serving import ProcessTelemetry, Telemetry
from moorage.testing import SchedulerFixture

from ...conftest import host
from ...fixtures.clouds import CONTEXT, new_uuids, request

NAMES = ("h1", "h2", "h3")


@dataclass(frozen=True)
class Page:
    """A response of the telemetry port."""

    status: int
    headers: Message
    text: str


class Reader:
    """Query the telemetry port as a monitoring system does.

    Attributes
    ----------
    served : ProcessTelemetry
        The telemetry that serves the port.
    """

    def __init__(self, port: int, served: ProcessTelemetry) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.served = served

    def get(self, path: str, method: str = "GET", **headers: str) -> Page:
        """Return a page, with any status."""
        request = urllib.request.Request(
            self.url + path, method=method, headers=headers
        )
        try:
            answer = urllib.request.urlopen(request, timeout=30)
        except urllib.error.HTTPError as e:
            answer = e
        with answer:
            return Page(answer.status, answer.headers, answer.read().decode())

    def metrics(self) -> dict[tuple[str, str], float]:
        """Return metrics by name and by the value of their one label, or ""."""
        return metrics(self.get("/metrics").text)


def metrics(text: str) -> dict[tuple[str, str], float]:
    """Read Prometheus' text format; histograms by count and sum."""
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith(("_bucket", "_created"))
    }


Select = Callable[..., Any]


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    """A started scheduler with a real Placement, to be called directly."""
    options: dict[str, dict[str, object]] = {
        "telemetry": {"http_port": 0},
        "scheduler": {"workers": 1},
        "moorage": {"candidates_max_age": 3600.0},  # however slow the machine is
    }
    hosts = [host(host=name) for name in NAMES]
    with SchedulerFixture(*hosts, options=options) as made:
        yield made.scheduler


@pytest.fixture
def select(scheduler: Scheduler) -> Select:
    """Select a host for each of some instances."""

    def call(
        uuids: list[str] | None = None, context: Any = None, **changes: Any
    ) -> Any:
        return scheduler.select_destinations(
            CONTEXT if context is None else context,
            request(**changes),
            uuids or new_uuids(),
            return_objects=True,
            return_alternates=True,
        )

    return call


@pytest.fixture
def reader(scheduler: Scheduler) -> Iterator[Reader]:
    """A client of the scheduler's telemetry port."""
    with (
        Telemetry(scheduler.conf) as telemetry,
        telemetry.serve(scheduler.status) as served,
    ):
        assert telemetry.port is not None
        yield Reader(telemetry.port, served)
