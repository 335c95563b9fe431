# SPDX-License-Identifier: Apache-2.0
"""Disabled compute services are left out."""

from __future__ import annotations

from oslo_config import cfg

from moorage.objects import RequestSpec
from moorage.scheduler.placement.query import Requirements
from moorage.scheduler.prefilters import PrefilterRequest
from moorage.scheduler.prefilters.compute_status import compute_status_filter


class NoAggregates:
    def uuids_with_metadata(self, key: str, value: str) -> frozenset[str]:
        return frozenset()


def test_disabled_services_are_forbidden() -> None:
    requirements = Requirements()

    compute_status_filter(
        PrefilterRequest(RequestSpec(), requirements, NoAggregates(), cfg.ConfigOpts())
    )

    assert requirements == Requirements(root_forbidden={"COMPUTE_STATUS_DISABLED"})
