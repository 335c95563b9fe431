# SPDX-License-Identifier: Apache-2.0
"""The better of two random hosts: a scheduler driver for Moorage."""

import numpy as np
import numpy.typing as npt

from moorage.scheduler.drivers.base import (
    BaseSchedulerDriver,
    DecisionSteps,
    Selections,
)
from moorage.scheduler.hosts import HostBatch


class TwoChoices(BaseSchedulerDriver):
    """Claim the better of two random hosts that pass the filters.

    Hosts fill almost as evenly as if the best of all were claimed, and schedulers that
    decide at the same time seldom choose the same one.
    """

    def select(self, steps: DecisionSteps) -> Selections:
        """Return the hosts and their alternates; the scheduler does all the rest."""

        def weigh(hosts: HostBatch, uuid: str) -> npt.NDArray[np.float64]:
            return _two_before_all(steps.rng, steps.weights(hosts, uuid))

        return steps.select_by_weight(weigh)


def _two_before_all(
    rng: np.random.Generator, weights: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return weights that are the highest for two random hosts, in their order."""
    if len(weights) < 3:
        return weights
    raised = weights.copy()
    two = rng.choice(len(weights), size=2, replace=False)
    raised[two] += 1 + weights.max() - weights.min()
    return raised
