# SPDX-License-Identifier: Apache-2.0
"""[metrics]: the weighing of the metrics that monitors on the hosts report."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "metrics"

OPTS = (
    cfg.FloatOpt(
        "weight_multiplier",
        default=1.0,
        mutable=True,
        help=(
            "Multiplier of the metrics' weighted sum: positive prefers a larger sum. "
            "Overridden for a host by the smallest metrics_weight_multiplier among the "
            "metadata of its aggregates. Related: weight_setting."
        ),
    ),
    cfg.ListOpt(
        "weight_setting",
        default=[],
        help=(
            "Metrics by which hosts are weighed, each with its factor. Possible "
            "values: name=ratio, separated by commas, such as cpu.percent=-1.0. "
            "MetricsFilter rejects hosts that lack one of them."
        ),
    ),
    cfg.BoolOpt(
        "required",
        default=True,
        mutable=True,
        help=(
            "Whether a host that lacks a metric of weight_setting fails the request. "
            "MetricsFilter rejects such hosts earlier. Related: weight_of_unavailable."
        ),
    ),
    cfg.FloatOpt(
        "weight_of_unavailable",
        default=-10000.0,
        mutable=True,
        help=(
            "Raw weight of a host that lacks a metric, if metrics are not required. "
            "Related: required."
        ),
    ),
)
