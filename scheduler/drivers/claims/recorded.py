# SPDX-License-Identifier: Apache-2.0
"""Answer the claims of a replayed decision from its record; nothing is sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from ...candidates import AllocationRequest, Offer
from ...errors import PlacementUnavailable
from ...hosts import HostBatch
from ...placement.allocations.claims import ClaimAnswer, ClaimResult
from ...placement.allocations.limits import GROUP_MAX_ROUNDS
from ...placement.answers import ConsumerAllocations, WriteAnswer
from ..instances import Assignment
from ..record import (
    COLLIDED,
    DEVICES_CLAIMED_FIRST,
    FAILED,
    MEMBER_CLAIMED_FIRST,
    OTHER_CLAIMED_FIRST,
    OUTDATED,
    RELEASED,
    ClaimAttempt,
)
from .checks import CHANGED, ClaimCheck, Excluded, Refusal

#: Results of attempts that are no answers of Placement.
_NOT_SENT: Final = (OUTDATED, RELEASED, COLLIDED)


class RecordedClaims(ClaimCheck):
    """Answers claims from the record of a decision.

    It is both the backend of `Claims` and the only check.

    Parameters
    ----------
    attempts : sequence of ClaimAttempt
        The claim attempts of the attempt that is repeated, in their order. In a dry
        run there are none, and every claim is granted.

    Attributes
    ----------
    n_assumed : int
        The number of claims that the record does not have, for example because the
        replay tries another host. They are answered as granted.
    """

    #: No host: which claims were granted to an evacuated instance is in the record.
    evacuated_from: frozenset[str] = frozenset()

    def __init__(self, attempts: Sequence[ClaimAttempt] = ()) -> None:
        self._recorded = tuple(attempts)
        self._pending = deque(attempts)
        #: Pairs of an instance and a service host that was outdated for it; all nodes
        #: of the host count.
        self._outdated: set[tuple[str, str]] = set()
        #: Service hosts on which a claim was released because of other instances.
        self._abandoned: set[str] = set()
        self.n_assumed = 0

    # -- as a check --------------------------------------------------------------------

    def may_try(self, assignment: Assignment) -> bool:
        """Return whether a host was not skipped; see `_was_skipped`."""
        return not self._was_skipped(assignment.instance_uuid, assignment.value("host"))

    def before(self, assignment: Assignment) -> Refusal | None:
        """Return a refusal if the host, or the candidate, was outdated."""
        uuid, host = assignment.instance_uuid, assignment.value("host")
        if self._was_outdated(uuid, host):
            return Refusal(OUTDATED, (), Excluded.HOST)
        if self._is_outdated(uuid, host):
            self._pending.popleft()
            return Refusal(OUTDATED, (), Excluded.CANDIDATE)
        return None

    def after(
        self, assignment: Assignment, answer: ClaimAnswer, eligible: HostBatch
    ) -> Refusal | None:
        """Return a refusal if the claim was released again."""
        uuid, host = assignment.instance_uuid, assignment.value("host")
        if self._had_collided(uuid):
            return Refusal(COLLIDED, (), Excluded.CANDIDATE)
        if self._was_released(uuid, host):
            return Refusal(RELEASED, (), Excluded.NOTHING)
        return None

    def may_retry(self, n_rounds: int) -> bool | None:
        """Return whether all hosts were tried again: whether more attempts follow."""
        if n_rounds >= GROUP_MAX_ROUNDS:
            return False  # with other options, no host may match the next attempt
        return any(
            attempt.result not in (RELEASED, COLLIDED) for attempt in self._pending
        )

    # -- as a backend ------------------------------------------------------------------

    @property
    def attempts(self) -> Sequence[ClaimAttempt]:
        """The recorded attempts that were repeated so far."""
        return self._recorded[: len(self._recorded) - len(self._pending)]

    def claim(
        self,
        requests: Mapping[str, AllocationRequest],
        hosts: Sequence[str],
        *,
        is_held: bool = False,
        shared: AbstractSet[str] = frozenset(),
    ) -> ClaimAnswer:
        """Return the recorded answer."""
        attempt = self._pending[0] if self._pending else None
        if (
            attempt is None
            or attempt.result in _NOT_SENT
            or attempt.instance_uuids != tuple(requests)
            or attempt.hosts != tuple(hosts)
        ):
            self.n_assumed += 1
            return ClaimAnswer(ClaimResult.CLAIMED, 0, WriteAnswer(0))
        self._pending.popleft()
        if attempt.result == FAILED:
            raise PlacementUnavailable(attempt.detail)
        last = WriteAnswer(0, detail=attempt.detail)
        return ClaimAnswer(ClaimResult(attempt.result), attempt.n_attempts, last)

    def record(
        self,
        result: str,
        uuids: Sequence[str],
        hosts: Sequence[str],
        detail: str,
        n_attempts: int = 0,
    ) -> None:
        """Do nothing: the record of the repeated decision has the attempt already."""

    def has_claimed(self, instance_uuid: str | None = None) -> bool:
        """Return False: there is nothing to release."""
        return False

    def held(self, instance_uuid: str) -> ConsumerAllocations | None:
        """Return None: the record does not say what an instance held before."""
        return None

    def exclude(self, offer: Offer, candidate: int) -> None:
        """Do nothing: a replay must not affect other decisions."""

    def release(self, instance_uuid: str) -> None:
        """Do nothing."""

    def release_all(self) -> tuple[list[str], list[str]]:
        """Return no instances."""
        return [], []

    def mark_answered(self) -> None:
        """Do nothing."""

    # -- the attempts ------------------------------------------------------------------

    def _was_skipped(self, uuid: str, host: str) -> bool:
        """Return whether a host was not tried because a claim had been released before.

        After a release, the check of server groups skips the host of the released
        claim, or all hosts but that of the other members, and the check of places skips
        all hosts. They do so until `ClaimCheck.may_retry` is called.
        """
        if not self._abandoned:
            return False
        attempts = [a for a in self._pending if uuid in a.instance_uuids]
        if not attempts:
            return host in self._abandoned
        return (attempts[0].instance_uuids, attempts[0].hosts) != ((uuid,), (host,))

    def _was_released(self, uuid: str, host: str) -> bool:
        """Return whether the claim was released because of other instances.

        If so, remove the recorded release, and add the host to `_abandoned`.
        """
        reasons = (MEMBER_CLAIMED_FIRST, OTHER_CLAIMED_FIRST)
        if not self._pending or not self._pending[0].detail.startswith(reasons):
            return False
        if self._pending[0].instance_uuids != (uuid,):
            return False
        self._pending.popleft()
        self._abandoned.add(host)
        return True

    def _had_collided(self, uuid: str) -> bool:
        """Return whether another instance got the CPUs or devices first.

        If so, remove the recorded refusal.
        """
        attempt = self._pending[0] if self._pending else None
        if attempt is None or attempt.result != COLLIDED:
            return False
        if attempt.instance_uuids != (uuid,):
            return False
        self._pending.popleft()
        return True

    def _was_outdated(self, uuid: str, host: str) -> bool:
        """Return whether filters rejected the host just before the claim.

        If so, remove the recorded rejections.
        """
        of_candidate = (CHANGED, DEVICES_CLAIMED_FIRST)
        while self._is_outdated(uuid, host) and (
            self._pending[0].detail not in of_candidate
        ):
            self._pending.popleft()
            self._outdated.add((uuid, host))
        return (uuid, host) in self._outdated

    def _is_outdated(self, uuid: str, host: str) -> bool:
        if not self._pending or self._pending[0].result != OUTDATED:
            return False
        attempt = self._pending[0]
        return (attempt.instance_uuids, attempt.hosts) == ((uuid,), (host,))
