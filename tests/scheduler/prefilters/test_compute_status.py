# SPDX-License-Identifier: Apache-2.0
"""Disabled compute services are left out."""

from __future__ import annotations

from oslo_config import cfg

from moorage.objects import RequestSpec
from moorage.scheduler.hosts.aggregates import AggregateMap
from moorage.scheduler.placement.query import Requirements
from moorage.scheduler.prefilters import PrefilterRequest
from moorage.scheduler.prefilters.traits import compute_status_filter


def test_disabled_services_are_forbidden() -> None:
    requirements = Requirements()

    compute_status_filter(
        PrefilterRequest(RequestSpec(), requirements, AggregateMap(), cfg.ConfigOpts())
    )

    assert requirements == Requirements(root_forbidden={"COMPUTE_STATUS_DISABLED"})
