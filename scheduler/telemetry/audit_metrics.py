# SPDX-License-Identifier: Apache-2.0
"""The counts of an audit as metrics, in Prometheus' text format."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from ..audit import AuditReport


def audit_metrics(report: AuditReport) -> str:
    """Return the metrics of a report, for the textfile collector of node_exporter."""
    registry = CollectorRegistry()
    findings = Gauge(
        "moorage_audit_findings",
        "Findings of the last audit, by kind.",
        ["kind"],
        registry=registry,
    )
    for kind, n_findings in report.counts.items():
        findings.labels(kind.value).set(n_findings)
    consumers = Gauge(
        "moorage_audit_consumers",
        "Consumers whose allocations the last audit compared.",
        registry=registry,
    )
    consumers.set(report.n_consumers)
    ended_at = Gauge(
        "moorage_audit_timestamp_seconds",
        "When the last audit ended, seconds since the epoch.",
        registry=registry,
    )
    ended_at.set(report.ended_at)
    duration = Gauge(
        "moorage_audit_duration_seconds",
        "How long the last audit took.",
        registry=registry,
    )
    duration.set(report.ended_at - report.began_at)
    return generate_latest(registry).decode()
