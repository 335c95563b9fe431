# SPDX-License-Identifier: Apache-2.0
"""Claims that no report includes: given back once nobody holds them any more."""

from __future__ import annotations

import logging
from collections.abc import Collection

from .errors import PlacementError
from .hosts import Claimed, HostTable
from .placement.allocations.limits import (
    REVIEW_AGAIN_S,
    REVIEW_MAX_READS,
    STOP_S,
    UPKEEP_AGAIN_S,
    UPKEEP_GRACE_S,
    UPKEEP_MAX_READS,
    UPKEEP_ROUND_S,
)
from .placement.client import ConsumerAllocations, PlacementClient
from .waiting import Spawner, Task, Waiter

LOG = logging.getLogger(__name__)


class ClaimUpkeep:
    """Look after what claims took of hosts in the table.

    A claim whose allocation is gone (its build failed, its instance was deleted) is
    given back, membership in a server group and all. One that is still held, but that
    no report has included for long, is taken to be in the reports: only what it took
    on top of them is given back.

    Parameters
    ----------
    max_age_s : float or None
        Seconds after which a report should have included a claim; None: the source
        does not report what is used, so claims are all that is known of it.
    waiter : Waiter
        Ages are measured by it: the system's clock may be set.
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
        self._spawner = spawner
        # By this clock: that of another scheduler, which claimed, may be wrong.
        self._known_since: dict[Claimed, float] = {}
        self._asked_at: dict[Claimed, float] = {}
        self._stop = spawner.event()
        self._thread: Task | None = None

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._thread = self._spawner.spawn(self._run, name="claim-upkeep")

    def stop(self) -> None:
        """End; a question to Placement on its way is not waited for longer than 3 s."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(STOP_S)

    def _run(self) -> None:
        while not self._stop.wait(UPKEEP_ROUND_S):
            self.look()

    def look(self) -> None:
        """Look at the claims whose turn it is, those first that waited for longest.

        A Placement that is away changes nothing.
        """
        now = self._clock()
        claims = self._table.claims()
        self._known_since = {c: self._known_since.get(c, now) for c in claims}
        self._asked_at = {c: self._asked_at[c] for c in claims if c in self._asked_at}
        due = [claim for claim in claims if self._is_due(claim, now)]
        due.sort(key=self._waits_since)
        for claim in due[:UPKEEP_MAX_READS]:
            if self._stop.is_set():
                return
            # First: one that Placement cannot tell of does not hold up the others.
            self._asked_at[claim] = now
            try:
                self._look_at(claim, now)
            except PlacementError as e:
                LOG.debug("Claims are looked at once Placement answers: %s", e)
                return

    def review(self, node_uuids: Collection[str]) -> bool:
        """Look now at claims on these compute nodes, the oldest ones first.

        Not at all where they are many, and not at those that were just looked at: it is
        done while a request waits.

        Returns
        -------
        bool
            Whether something was given back, so that hosts have more than they had.
        """
        now, nodes = self._clock(), frozenset(node_uuids)
        due = [
            claim
            for claim in self._table.claims()
            if claim.node_uuid in nodes and self._is_reviewable(claim, now)
        ]
        due.sort(key=lambda claim: claim.claimed_at)
        is_freed = False
        for claim in due[:REVIEW_MAX_READS]:
            self._asked_at[claim] = now
            try:
                is_freed |= self._look_at(claim, now)
            except PlacementError as e:
                LOG.debug("Claims cannot be looked at: %s", e)
                break
        return is_freed

    def _is_reviewable(self, claim: Claimed, now: float) -> bool:
        asked_at = self._asked_at.get(claim)
        return asked_at is None or abs(now - asked_at) >= REVIEW_AGAIN_S

    def _is_due(self, claim: Claimed, now: float) -> bool:
        if now - self._known_since[claim] < UPKEEP_GRACE_S:
            return False
        return (
            claim not in self._asked_at or now - self._asked_at[claim] >= UPKEEP_AGAIN_S
        )

    def _waits_since(self, claim: Claimed) -> float:
        return self._asked_at.get(claim, self._known_since[claim])

    def _look_at(self, claim: Claimed, now: float) -> bool:
        """Return whether the claim has ended, and was given back."""
        held = self._placement.allocations(claim.instance_uuid)
        if not self._is_on(claim.node_uuid, held):
            LOG.info(
                "Instance %s holds nothing of host %s any more: what it took there is "
                "given back",
                claim.instance_uuid,
                claim.host,
            )
            self._table.give_back(claim.host, claim.instance_uuid)
            return True
        if self._is_old(claim, now):
            self._table.settle(claim.node_uuid, [claim.instance_uuid])
        return False

    def _is_old(self, claim: Claimed, now: float) -> bool:
        limit_s, since = self.max_age_s, self._known_since.get(claim, now)
        return limit_s is not None and now - since > limit_s

    def _is_on(self, node_uuid: str, held: ConsumerAllocations) -> bool:
        """Return whether a consumer may still hold something of a host.

        What it holds of a host's children only is not known to be of that host: it is
        believed to be unless another host is told.
        """
        elsewhere = any(map(self._table.has_node, held.resources))
        return node_uuid in held.resources or (bool(held.resources) and not elsewhere)
