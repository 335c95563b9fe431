# SPDX-License-Identifier: Apache-2.0
"""Claims that are answered as they were when the decision was made."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from ...candidates import Offer
from ...hosts import HostBatch
from ...placement.allocations.claims import ClaimResult
from ...placement.allocations.limits import GROUP_MAX_ROUNDS
from ..instances import PlacedInstance
from ..record import (
    COLLIDED,
    DEVICES_CLAIMED_FIRST,
    MEMBER_CLAIMED_FIRST,
    OTHER_CLAIMED_FIRST,
    OUTDATED,
    RELEASED,
    ClaimAttempt,
)
from .contention import Contention
from .rechecks import CHANGED

#: Results of attempts that are no answers of Placement.
_NOT_SENT: Final = (OUTDATED, RELEASED, COLLIDED)


class RecordedClaims:
    """Repeats the claims of a decision from its record; nothing is sent.

    Parameters
    ----------
    attempts : sequence of ClaimAttempt
        Those of the pass that is repeated, in their order.
    contention : Contention
        As it was when that pass began.

    Attributes
    ----------
    n_assumed : int
        Claims that the record does not have, such as on another host than then: each
        is taken for granted.
    """

    #: An evacuation may hold another host; what it was granted is in the record.
    may_add = False
    #: A view has no instances of concurrent requests.
    counts_others = False

    def __init__(
        self, attempts: Sequence[ClaimAttempt], contention: Contention
    ) -> None:
        self.contention = contention
        self._left = deque(attempts)
        #: Instances and service hosts that were outdated: those of all their nodes.
        self._outdated: set[tuple[str, str]] = set()
        #: Service hosts that an instance had to leave because of others.
        self._abandoned: set[str] = set()
        self.n_assumed = 0

    def claim_host(
        self, uuid: str, hosts: HostBatch, index: int, ledger: Offer
    ) -> int | None:
        """Return the candidate of a host that was granted; None: none was."""
        node_uuid, host = hosts.value("uuid", index), hosts.value("host", index)
        if self._was_outdated(uuid, host):
            ledger.refuse_all(node_uuid)
            return None
        if self._was_skipped(uuid, host):
            return None
        among = hosts.candidates_of(index)
        while (candidate := ledger.next_candidate(node_uuid, among)) is not None:
            if self._had_changed(uuid, host):
                ledger.mark_refused(candidate)
                continue
            result = self._answer([uuid], [host])
            if result is ClaimResult.CONTENDED or self._was_released(uuid, host):
                return None
            if result is ClaimResult.CLAIMED and not self._had_collided(uuid):
                ledger.reserve(candidate)
                return candidate
            ledger.mark_refused(candidate)
        return None

    def claim_together(
        self, placed: Sequence[PlacedInstance], ledger: Offer
    ) -> list[str]:
        """Return the instances that got no host, of those claimed at once."""
        current = [each for each in placed if self._is_current(each, ledger)]
        kept = {each.instance_uuid for each in current}
        left = [p.instance_uuid for p in placed if p.instance_uuid not in kept]
        return left + self._claim_halves(current, ledger) if current else left

    def _is_current(self, placed: PlacedInstance, ledger: Offer) -> bool:
        uuid, host = placed.instance_uuid, placed.value("host")
        if self._was_outdated(uuid, host):
            ledger.release(placed.candidate)
            ledger.refuse_all(placed.value("uuid"))
            return False
        if self._had_changed(uuid, host):
            ledger.release(placed.candidate)
            ledger.mark_refused(placed.candidate)
            return False
        return True

    def _claim_halves(
        self, placed: Sequence[PlacedInstance], ledger: Offer
    ) -> list[str]:
        uuids = [each.instance_uuid for each in placed]
        result = self._answer(uuids, [each.value("host") for each in placed])
        if result is ClaimResult.CLAIMED:
            released = [p for p in placed if self._is_left(p, ledger)]
            for each in released:
                ledger.release(each.candidate)
            return [each.instance_uuid for each in released]
        if len(placed) == 1:
            ledger.release(placed[0].candidate)
            if result is ClaimResult.REFUSED:
                ledger.mark_refused(placed[0].candidate)
            return uuids
        middle = len(placed) // 2
        refused = self._claim_halves(placed[:middle], ledger)
        return refused + self._claim_halves(placed[middle:], ledger)

    def _is_left(self, placed: PlacedInstance, ledger: Offer) -> bool:
        if self._had_collided(placed.instance_uuid):
            ledger.mark_refused(placed.candidate)
            return True
        return self._was_released(placed.instance_uuid, placed.value("host"))

    def held_candidate(self, uuid: str, ledger: Offer) -> int | None:  # noqa: ARG002 - of the interface
        """Return None: the record does not say what an instance held before."""
        return None

    def take_over(self, placed: PlacedInstance, ledger: Offer) -> bool:  # noqa: ARG002 - as above
        """Return True."""
        return True

    def may_try_again(self, n_rounds: int) -> bool:
        """Return whether all hosts were tried again: more attempts were made."""
        if n_rounds >= GROUP_MAX_ROUNDS:
            return False  # with other options none may be that of the next attempt
        return any(each.result not in (RELEASED, COLLIDED) for each in self._left)

    def _answer(self, uuids: Sequence[str], hosts: Sequence[str]) -> ClaimResult:
        if self._is_next(tuple(uuids), tuple(hosts)):
            attempt = self._left.popleft()
            result = ClaimResult(attempt.result)
            self.contention.note(
                is_refused=result is not ClaimResult.CLAIMED,
                n_attempts=attempt.n_attempts,
            )
            return result
        self.n_assumed += 1
        return ClaimResult.CLAIMED

    def _is_next(self, uuids: tuple[str, ...], hosts: tuple[str, ...]) -> bool:
        if not self._left or self._left[0].result in _NOT_SENT:
            return False
        attempt = self._left[0]
        return (attempt.instance_uuids, attempt.hosts) == (uuids, hosts)

    def _was_skipped(self, uuid: str, host: str) -> bool:
        """Return whether a host was not tried since an instance had to leave one.

        Until the rule was read again, a server group avoided the host that was left,
        or all but that of its members, and a rule about places all hosts.
        """
        if not self._abandoned:
            return False
        attempts = [each for each in self._left if uuid in each.instance_uuids]
        if not attempts:
            return host in self._abandoned
        return (attempts[0].instance_uuids, attempts[0].hosts) != ((uuid,), (host,))

    def _was_released(self, uuid: str, host: str) -> bool:
        """Return whether a rule about other instances made one leave its host."""
        reasons = (MEMBER_CLAIMED_FIRST, OTHER_CLAIMED_FIRST)
        if not self._left or not self._left[0].detail.startswith(reasons):
            return False
        if self._left[0].instance_uuids != (uuid,):
            return False
        self._left.popleft()
        self._abandoned.add(host)
        return True

    def _had_collided(self, uuid: str) -> bool:
        """Return whether another instance got its CPUs or devices first."""
        attempt = self._left[0] if self._left else None
        if attempt is None or attempt.result != COLLIDED:
            return False
        if attempt.instance_uuids != (uuid,):
            return False
        self._left.popleft()
        self.contention.note(is_refused=True, n_attempts=1)
        return True

    def _was_outdated(self, uuid: str, host: str) -> bool:
        """Return whether filters rejected the host as it was just before the claim."""
        of_candidate = (CHANGED, DEVICES_CLAIMED_FIRST)
        while self._is_outdated(uuid, host) and (
            self._left[0].detail not in of_candidate
        ):
            self._left.popleft()
            self._outdated.add((uuid, host))
        return (uuid, host) in self._outdated

    def _had_changed(self, uuid: str, host: str) -> bool:
        """Return whether a candidate did not match, or fit, any more."""
        if self._is_outdated(uuid, host):
            self._left.popleft()
            return True
        return False

    def _is_outdated(self, uuid: str, host: str) -> bool:
        if not self._left or self._left[0].result != OUTDATED:
            return False
        attempt = self._left[0]
        return (attempt.instance_uuids, attempt.hosts) == ((uuid,), (host,))
