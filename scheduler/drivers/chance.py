# SPDX-License-Identifier: Apache-2.0
"""The driver "chance": select hosts that pass the filters at random."""

from __future__ import annotations

from .base import BaseSchedulerDriver, DecisionSteps, Selections


class ChanceScheduler(BaseSchedulerDriver):
    """Select each host that passes with the same probability; no weigher runs."""

    def select(self, steps: DecisionSteps) -> Selections:
        """Return random hosts; see `BaseSchedulerDriver`."""
        return steps.select_by_weight(lambda hosts, _uuid: steps.rng.random(len(hosts)))
