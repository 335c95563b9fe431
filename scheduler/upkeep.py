# SPDX-License-Identifier: Apache-2.0
"""Claims that no report includes: given back once nobody holds them any more."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Final

from .errors import PlacementError
from .hosts import Claimed, HostTable
from .placement.client import ConsumerAllocations, PlacementClient

LOG = logging.getLogger(__name__)

#: Seconds for which a claim is believed: a build takes some to begin.
_BELIEVED_S: Final = 30.0

#: Seconds between two looks at the same claim.
_AGAIN_S: Final = 60.0

#: Seconds between two rounds, and claims that one round asks Placement for at most.
_ROUND_EVERY_S: Final = 5.0
_MAX_ASKED: Final = 50

#: Claims that a request asks for at most before it is told that there is no host, and
#: seconds for which the answer about one will do.
_MAX_REVIEWED: Final = 20
_REVIEWED_S: Final = 5.0

#: Seconds for which the end waits for a question to Placement that is on its way.
_END_S: Final = 3.0


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
    clock : callable
        Returns now, seconds since the epoch.
    """

    def __init__(
        self,
        table: HostTable,
        placement: PlacementClient,
        *,
        max_age_s: float | None,
        clock: Callable[[], float],
    ) -> None:
        self._table = table
        self._placement = placement
        self.max_age_s = max_age_s
        self._clock = clock
        # By this clock: that of another scheduler, which claimed, may be wrong.
        self._known_since: dict[Claimed, float] = {}
        self._asked_at: dict[Claimed, float] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._thread = threading.Thread(
            target=self._run, name="claim-upkeep", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End; a question to Placement on its way is not waited for longer than 3 s."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_END_S)

    def _run(self) -> None:
        while not self._stop.wait(_ROUND_EVERY_S):
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
        for claim in due[:_MAX_ASKED]:
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
        for claim in due[:_MAX_REVIEWED]:
            self._asked_at[claim] = now
            try:
                is_freed |= self._look_at(claim, now)
            except PlacementError as e:
                LOG.debug("Claims cannot be looked at: %s", e)
                break
        return is_freed

    def _is_reviewable(self, claim: Claimed, now: float) -> bool:
        asked_at = self._asked_at.get(claim)
        return asked_at is None or abs(now - asked_at) >= _REVIEWED_S

    def _is_due(self, claim: Claimed, now: float) -> bool:
        if now - self._known_since[claim] < _BELIEVED_S:
            return False
        return claim not in self._asked_at or now - self._asked_at[claim] >= _AGAIN_S

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
