# SPDX-License-Identifier: Apache-2.0
"""[solver]: the driver that places all instances of a request at once."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "solver"

OPTS = (
    cfg.FloatOpt(
        "time_limit",
        default=1.0,
        min=0.01,
        max=600.0,
        mutable=True,
        help=(
            "Seconds that the driver solver may take to place the instances of one "
            "request. Once they are over, the request is decided as by the driver "
            "filter_scheduler. Related: driver in [moorage]."
        ),
    ),
)
