# SPDX-License-Identifier: Apache-2.0
"""[metrics]: how the metrics that monitors on the hosts report are weighed."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "metrics"

OPTS = (
    cfg.FloatOpt(
        "weight_multiplier",
        default=1.0,
        mutable=True,
        help=(
            "The weighted sum of the metrics: positive prefers the larger one. "
            "Overridden for a host by the smallest metrics_weight_multiplier among the "
            "metadata of its aggregates. Related: weight_setting."
        ),
    ),
    cfg.ListOpt(
        "weight_setting",
        default=[],
        help=(
            "Metrics that hosts are weighed by, each with the ratio by which it is "
            "multiplied. Possible values: name=ratio, separated by commas, such as "
            "cpu.percent=-1.0. MetricsFilter rejects hosts that lack one of them."
        ),
    ),
    cfg.BoolOpt(
        "required",
        default=True,
        mutable=True,
        help=(
            "Whether a host that lacks a metric of weight_setting fails the request. "
            "MetricsFilter keeps such hosts away. Related: weight_of_unavailable."
        ),
    ),
    cfg.FloatOpt(
        "weight_of_unavailable",
        default=-10000.0,
        mutable=True,
        help=(
            "Figure of a host that lacks a metric, where that is not required. "
            "Related: required."
        ),
    ),
)
