# SPDX-License-Identifier: Apache-2.0
"""Take the first host that fits: a scheduler driver."""

from moorage.objects import Selection
from moorage.scheduler.drivers.base import BaseSchedulerDriver, DecisionSteps
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.hosts import HostBatch


class FirstFit(BaseSchedulerDriver):
    """Choose the first host that passes the filters and grants the claim."""

    def select(self, steps: DecisionSteps) -> list[list[Selection]]:
        """Claim a host for each instance; the hosts after it are its alternates."""
        hosts = steps.candidates
        for uuid in steps.instance_uuids:
            hosts = _claim_first(steps, steps.passing(hosts, uuid), uuid)
        return steps.selections(alternates=steps.passing(hosts, uuid))


def _claim_first(steps: DecisionSteps, hosts: HostBatch, uuid: str) -> HostBatch:
    """Return the hosts, with the instance counted on the one that was claimed."""
    for index in range(len(hosts)):
        claimed = steps.claim(hosts, index, uuid)
        if claimed is not None:
            return claimed
    raise NoValidHost("There are not enough hosts available.")
