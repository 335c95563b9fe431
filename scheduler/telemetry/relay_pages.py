# SPDX-License-Identifier: Apache-2.0
"""The metrics and probes of moorage-relay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Metric, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ..relay import RelayRole, RelayStatus
from .pages import make_app, make_pages

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication


class RelayMetrics(Collector):
    """Exports the state of a relay."""

    def __init__(self, status: RelayStatus) -> None:
        self._status = status

    def collect(self) -> Iterable[Metric]:
        """Return the relay's role, its number of hosts, and the written messages."""
        status = self._status
        yield GaugeMetricFamily(
            "moorage_relay_leader",
            "1 if this relay leads, else 0.",
            value=float(status.role is RelayRole.LEADER),
        )
        yield GaugeMetricFamily(
            "moorage_relay_hosts",
            "Compute nodes of the leader's source.",
            value=status.n_hosts,
        )
        written = CounterMetricFamily(
            "moorage_relay_messages",
            "Messages that this relay has written to Kafka.",
            labels=["kind"],
        )
        for kind, number in status.n_written.copy().items():
            written.add_metric([kind], number)
        yield written
        if status.last_write_at is not None:
            yield GaugeMetricFamily(
                "moorage_relay_last_write_timestamp_seconds",
                "When this relay last wrote to Kafka, since the epoch.",
                value=status.last_write_at,
            )


def make_relay_app(status: RelayStatus) -> WSGIApplication:
    """Return an application with /metrics, /healthz and /readyz."""
    registry = CollectorRegistry()
    registry.register(RelayMetrics(status))
    pages = make_pages(make_wsgi_app(registry), lambda: (status.is_ready, status.text))
    return make_app(pages)
