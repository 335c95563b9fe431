# SPDX-License-Identifier: Apache-2.0
"""Compare pending claims with Placement; release those whose allocations are gone."""

from __future__ import annotations

import logging
from collections.abc import Collection

from .errors import PlacementError
from .hosts import HostTable, UnreportedClaim
from .periodic import Periodic
from .placement.allocations.limits import (
    RECONCILE_GRACE_S,
    RECONCILE_INTERVAL_S,
    RECONCILE_MAX_READS,
    RECONCILE_ROUND_S,
    RESERVATION_GRACE_S,
    REVIEW_INTERVAL_S,
    REVIEW_MAX_READS,
    STOP_S,
)
from .placement.answers import ConsumerAllocations
from .placement.client import PlacementClient
from .waiting import Spawner, Waiter

LOG = logging.getLogger(__name__)


class ClaimReconciler:
    """Reconcile the host table's pending claims with Placement's allocations.

    A claim whose allocation no longer exists (the build failed, or the instance was
    deleted) is released in the table, together with the instance's membership in a
    server group. If the allocation still exists, but no report has included the claim
    for a long time, the reports are assumed to include it, and the table no longer
    adds the claim's usage to the reported usage. A reservation that Placement has not
    granted within seconds is released: the scheduler that made it has ended.

    Parameters
    ----------
    max_age_s : float or None
        Seconds after which a report should have included a claim; None: the source
        does not report usage, which is known from claims alone.
    waiter : Waiter
        Has the monotonic clock by which ages are measured: the system clock may be set
        back or forward.
    """

    def __init__(
        self,
        table: HostTable,
        placement: PlacementClient,
        *,
        max_age_s: float | None,
        waiter: Waiter,
        spawner: Spawner,
    ) -> None:
        self._table = table
        self._placement = placement
        self.max_age_s = max_age_s
        self._clock = waiter.monotonic
        self._checked_at: dict[UnreportedClaim, float] = {}
        self._periodic = Periodic(
            self.reconcile,
            RECONCILE_ROUND_S,
            log=LOG,
            what="Comparing claims with Placement",
            name="claim-reconciler",
            spawner=spawner,
        )

    def start(self) -> None:
        """Start to check claims periodically, in a separate thread."""
        self._periodic.start()

    def stop(self) -> None:
        """Stop the checks; wait at most 3 s for a running call to Placement."""
        self._periodic.stop(STOP_S)

    def reconcile(self) -> None:
        """Check the claims that are due, in descending order of the time they waited.

        While Placement is unavailable, nothing changes.
        """
        now = self._clock()
        claims = self._table.claims.unreported()
        self._checked_at = {
            claim: self._checked_at[claim]
            for claim in claims
            if claim in self._checked_at
        }
        due = [claim for claim in claims if self._is_due(claim, now)]
        due.sort(key=lambda claim: self._checked_at.get(claim, claim.since))
        for claim in due[:RECONCILE_MAX_READS]:
            if self._periodic.is_stopping:
                return
            # Set before the check: a claim whose check fails must not be the first one
            # again the next time.
            self._checked_at[claim] = now
            try:
                self._check(claim, now)
            except PlacementError as e:
                LOG.debug("Checking claims failed: %s; retrying later", e)
                return

    def review(self, node_uuids: Collection[str]) -> bool:
        """Check claims on these compute nodes now: reservations, then the oldest.

        A request waits for the result. Therefore the number of checks is limited, and
        claims that were just checked are skipped.

        Returns
        -------
        bool
            Whether a claim was released, so that a host has more free capacity.
        """
        now, nodes = self._clock(), frozenset(node_uuids)
        due = [
            claim
            for claim in self._table.claims.unreported()
            if claim.node_uuid in nodes and self._is_reviewable(claim, now)
        ]
        due.sort(key=lambda claim: (not claim.is_reserved, claim.claimed_at))
        is_any_released = False
        for claim in due[:REVIEW_MAX_READS]:
            self._checked_at[claim] = now
            try:
                is_any_released |= self._check(claim, now)
            except PlacementError as e:
                LOG.debug("Checking claims failed: %s", e)
                break
        return is_any_released

    def _is_reviewable(self, claim: UnreportedClaim, now: float) -> bool:
        if claim.is_reserved and now - claim.since < RESERVATION_GRACE_S:
            return False  # Placement may be about to grant it
        checked_at = self._checked_at.get(claim)
        return checked_at is None or abs(now - checked_at) >= REVIEW_INTERVAL_S

    def _is_due(self, claim: UnreportedClaim, now: float) -> bool:
        grace_s = RESERVATION_GRACE_S if claim.is_reserved else RECONCILE_GRACE_S
        if now - claim.since < grace_s:
            return False
        return (
            claim not in self._checked_at
            or now - self._checked_at[claim] >= RECONCILE_INTERVAL_S
        )

    def _check(self, claim: UnreportedClaim, now: float) -> bool:
        """Check a claim, and return whether it was released: its allocation is gone.

        A claim that a report should have included by now is marked as reported.
        """
        allocations = self._placement.allocations(claim.instance_uuid)
        if not self._may_be_on(claim.node_uuid, allocations):
            LOG.info(
                "Instance %s has no allocation on host %s any more: releasing its "
                "claim in the host table",
                claim.instance_uuid,
                claim.host,
            )
            self._release(claim, allocations)
            return True
        if self._is_overdue(claim, now):
            self._table.claims.mark_reported(claim.node_uuid, [claim.instance_uuid])
        return False

    def _release(
        self, claim: UnreportedClaim, allocations: ConsumerAllocations
    ) -> None:
        """Release a claim in the table.

        If the instance has allocations on another node of the same host, it remains on
        the host, and only the claimed node's usage is reduced: with Ironic, a build
        that fails on one node is retried on other nodes of the service.
        """
        if claim.host in map(self._table.host_of, allocations.resources):
            self._table.claims.mark_reported(claim.node_uuid, [claim.instance_uuid])
        else:
            self._table.claims.release(claim.host, claim.instance_uuid)

    def _is_overdue(self, claim: UnreportedClaim, now: float) -> bool:
        return self.max_age_s is not None and now - claim.since > self.max_age_s

    def _may_be_on(self, node_uuid: str, allocations: ConsumerAllocations) -> bool:
        """Return whether a consumer may still have an allocation on a compute node.

        Allocations from child providers do not name a compute node. They are assumed to
        be on this one, unless the consumer has an allocation on another one.
        """
        resources = allocations.resources
        is_on_another = any(map(self._table.has_node, resources))
        return node_uuid in resources or (bool(resources) and not is_on_another)
