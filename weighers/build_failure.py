# SPDX-License-Identifier: Apache-2.0
"""How many recent builds failed on the host?"""

from __future__ import annotations

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch
from .base import BaseHostWeigher, Weights


class BuildFailureWeigher(BaseHostWeigher):
    """Prefer hosts with few ``failed_builds``: the multiplier is negated."""

    MULTIPLIER = "build_failure_weight_multiplier"

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return the failed builds, shape (n_hosts,)."""
        weights: Weights = hosts.failed_builds.astype(float)
        return weights

    def multipliers(self, hosts: HostBatch) -> Weights:
        """Return the negated multipliers, those of aggregates too; shape (n_hosts,)."""
        return -super().multipliers(hosts)
