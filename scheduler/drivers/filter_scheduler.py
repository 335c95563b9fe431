# SPDX-License-Identifier: Apache-2.0
"""The driver "filter_scheduler": filter hosts, weigh them, claim the best one."""

from __future__ import annotations

from .base import BaseSchedulerDriver, DecisionSteps, Selections


class FilterScheduler(BaseSchedulerDriver):
    """Filter, weigh and claim hosts as nova's scheduler does, in the same order."""

    def select(self, steps: DecisionSteps) -> Selections:
        """Return the hosts of the highest weight; see `BaseSchedulerDriver`."""
        return steps.select_by_weight()
