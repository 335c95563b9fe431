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

    A claim whose allocation is gone (its build failed, its instance was deleted) is
    released in the table, together with its membership in a server group. A claim that
    is still held, but that no report included for a long time, is assumed to be in the
    reports: only what it consumes on top of them is released. A reservation that is not
    granted within seconds is one of a scheduler that has ended, and is released.

    Parameters
    ----------
    max_age_s : float or None
        Seconds after which a report should have included a claim; None: the source
        does not report usage, so claims are the only information about it.
    waiter : Waiter
        Measures ages by a monotonic clock: the system clock may be set.
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
        self._checking = Periodic(
            self.reconcile,
            RECONCILE_ROUND_S,
            log=LOG,
            what="Comparing claims with Placement",
            name="claim-reconciler",
            spawner=spawner,
        )

    def start(self) -> None:
        """Start checking, in a separate thread."""
        self._checking.start()

    def stop(self) -> None:
        """Stop; wait for a call to Placement in progress, but at most 3 s."""
        self._checking.stop(STOP_S)

    def reconcile(self) -> None:
        """Check the claims that are due, those first that have waited longest.

        While Placement is unavailable, nothing changes.
        """
        now = self._clock()
        claims = self._table.claims.unreported()
        self._checked_at = {
            c: self._checked_at[c] for c in claims if c in self._checked_at
        }
        due = [claim for claim in claims if self._is_due(claim, now)]
        due.sort(key=lambda claim: self._checked_at.get(claim, claim.since))
        for claim in due[:RECONCILE_MAX_READS]:
            if self._checking.is_stopping:
                return
            # Set before the check: a claim that cannot be checked must not delay the
            # others.
            self._checked_at[claim] = now
            try:
                self._check(claim, now)
            except PlacementError as e:
                LOG.debug("Checking claims failed: %s; retrying later", e)
                return

    def review(self, node_uuids: Collection[str]) -> bool:
        """Check claims on these compute nodes at once: reservations, then the oldest.

        A request is waiting: the number of checks is limited, and claims that were
        just checked are skipped.

        Returns
        -------
        bool
            Whether a claim was released, so that hosts have more capacity than before.
        """
        now, nodes = self._clock(), frozenset(node_uuids)
        due = [
            claim
            for claim in self._table.claims.unreported()
            if claim.node_uuid in nodes and self._is_reviewable(claim, now)
        ]
        due.sort(key=lambda claim: (not claim.is_reserved, claim.claimed_at))
        is_freed = False
        for claim in due[:REVIEW_MAX_READS]:
            self._checked_at[claim] = now
            try:
                is_freed |= self._check(claim, now)
            except PlacementError as e:
                LOG.debug("Checking claims failed: %s", e)
                break
        return is_freed

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
        """Return whether the claim has ended, and was released in the table."""
        held = self._placement.allocations(claim.instance_uuid)
        if not self._may_be_on(claim.node_uuid, held):
            LOG.info(
                "Instance %s has no allocation on host %s any more: releasing its "
                "claim in the host table",
                claim.instance_uuid,
                claim.host,
            )
            self._release(claim, held)
            return True
        if self._is_overdue(claim, now):
            self._table.claims.mark_reported(claim.node_uuid, [claim.instance_uuid])
        return False

    def _release(self, claim: UnreportedClaim, held: ConsumerAllocations) -> None:
        """Release a claim; the instance stays where it is on another node of the host.

        A build that fails on a node of Ironic is tried on others of the same service.
        """
        if claim.host in map(self._table.host_of, held.resources):
            self._table.claims.mark_reported(claim.node_uuid, [claim.instance_uuid])
        else:
            self._table.claims.release(claim.host, claim.instance_uuid)

    def _is_overdue(self, claim: UnreportedClaim, now: float) -> bool:
        return self.max_age_s is not None and now - claim.since > self.max_age_s

    def _may_be_on(self, node_uuid: str, held: ConsumerAllocations) -> bool:
        """Return whether a consumer may still have an allocation on a host.

        Allocations of child providers alone do not name the host: they are assumed to
        be its, unless the consumer holds something of another host.
        """
        elsewhere = any(map(self._table.has_node, held.resources))
        return node_uuid in held.resources or (bool(held.resources) and not elsewhere)
