# SPDX-License-Identifier: Apache-2.0
"""How many builds failed on the host lately?"""

from __future__ import annotations

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch
from .base import BaseHostWeigher, Weights


class BuildFailureWeigher(BaseHostWeigher):
    """Weigh down by ``failed_builds``: the multiplier is used negated."""

    MULTIPLIER = "build_failure_weight_multiplier"

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return failed builds, shape (n_hosts,)."""
        weights: Weights = hosts.failed_builds.astype(float)
        return weights

    def multipliers(self, hosts: HostBatch) -> Weights:
        """Return the negated multipliers, an aggregate's own too; shape (n_hosts,)."""
        return -super().multipliers(hosts)
