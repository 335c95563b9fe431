# SPDX-License-Identifier: Apache-2.0
"""[scheduler]: what holds for every driver."""

from oslo_config import cfg

GROUP = "scheduler"

OPTS = (
    cfg.IntOpt(
        "max_attempts",
        default=3,
        min=1,
        help=(
            "How many hosts an instance may be tried on: the one that was selected and "
            "max_attempts - 1 alternates of its cell. 1: no alternates."
        ),
    ),
    cfg.IntOpt(
        "max_placement_results",
        default=1000,
        min=1,
        help=(
            "The limit parameter of GET /allocation_candidates. It counts allocation "
            "candidates, not hosts: a host with nested providers can have many."
        ),
    ),
)
