# SPDX-License-Identifier: Apache-2.0
"""The claims of one attempt: tried in order, checked before and after, recorded.

hosts, candidates ─▶ Claims ─▶ checks ▸ backend ▸ checks ─▶ granted, or the next
                                        Placement, or the record of a decision
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from ...candidates import AllocationRequest, Offer, resources_of
from ...errors import (
    MAX_MESSAGE,
    AllocationUpdateFailed,
    PlacementUnavailable,
    SchedulerError,
    shortened,
)
from ...hosts import HostBatch
from ...placement.allocations.claims import ClaimAnswer, ClaimResult
from ...placement.allocations.limits import (
    GROUP_MAX_RELEASES,
    MAX_CLAIMED_TOGETHER,
    MAX_CONTENDED,
    MAX_REFUSED,
    MAX_ROUNDS,
)
from ...placement.answers import ConsumerAllocations
from ..instances import Assignment
from ..prepared import PreparedRequest
from ..record import COLLIDED, FAILED, OUTDATED, RELEASED, ClaimAttempt
from .checks import ClaimCheck, Excluded, Refusal
from .contention import Contention

LOG = logging.getLogger(__name__)

#: Log lines by the result of an attempt: with hosts, instances and the reason.
_NOT_CLAIMED: Final = {
    OUTDATED: "Not claiming host %s for instance %s: %s",
    COLLIDED: "Not claiming host %s for instance %s: %s",
    RELEASED: "Not claiming host %s for instance %s: %s",
    ClaimResult.REFUSED.value: "Placement refused host %s for instance %s: %s",
    ClaimResult.CONTENDED.value: (
        "Placement reported concurrent updates of host %s for instance %s, until the "
        "retry limit: %s"
    ),
}


class StaleOffer(Exception):
    """Raised when Placement refuses what it had offered; a new query may help."""


class ClaimBackend(Protocol):
    """Answers claims: Placement, or the record of a decision that is repeated.

    Attributes
    ----------
    is_live : bool
        Whether claims are sent; otherwise nothing is recorded of them.
    evacuated_from : frozenset of str
        Providers whose allocations an instance keeps, in addition to its claim.
    n_writes : int
        How many writes the last claim has sent.
    """

    is_live: bool
    evacuated_from: frozenset[str]
    n_writes: int

    @property
    def attempts(self) -> Sequence[ClaimAttempt]:
        """Those of this attempt so far, sent or repeated."""

    def claim(
        self,
        requests: dict[str, AllocationRequest],
        hosts: Sequence[str],
        *,
        is_held: bool = False,
    ) -> ClaimAnswer:
        """Claim for one instance, or for several, all of them or none.

        Parameters
        ----------
        requests : dict of str to AllocationRequest
            By instance.
        is_held : bool
            Whether an earlier request has claimed it, so that it is taken over.

        Raises
        ------
        PlacementError
            It is in doubt, or Placement does not answer.
        """

    def has_claimed(self, instance_uuid: str | None = None) -> bool:
        """Return whether a claim of this attempt is held; None: of any instance."""

    def held(self, instance_uuid: str) -> ConsumerAllocations | None:
        """Return what an instance holds in Placement; None: it is not known."""

    def exclude(self, offer: Offer, candidate: int) -> None:
        """Exclude a candidate from the answer of Placement that it belongs to."""

    def release(self, instance_uuid: str) -> None:
        """Release the claim of an instance.

        Raises
        ------
        AllocationUpdateFailed, PlacementUnavailable
            It is not released.
        """

    def release_all(self) -> tuple[list[str], list[str]]:
        """Release all claims; return instances: released now, and in the background."""

    def mark_answered(self) -> None:
        """Record that the answer names these claims: they are in use."""


class Claims:
    """Claims candidates of an offer, and keeps only claims that all checks allow.

    Parameters
    ----------
    checks : sequence of ClaimCheck
        In the order in which they are asked.
    contention : Contention
        The share of refused claims in this attempt.
    may_give_up : bool
        Whether to raise `StaleOffer` once `MAX_REFUSED` candidates were refused.

    Attributes
    ----------
    backend : ClaimBackend
        Has the claims that are held.
    """

    def __init__(
        self,
        prepared: PreparedRequest,
        offer: Offer,
        backend: ClaimBackend,
        checks: Sequence[ClaimCheck],
        contention: Contention,
        *,
        may_give_up: bool = False,
    ) -> None:
        self._prepared = prepared
        self._offer = offer
        self.backend = backend
        self._checks = checks
        self._contentions = [contention]
        if backend.is_live:
            self._contentions.append(prepared.parts.contention)
        self._may_give_up = may_give_up
        self._n_refused = 0
        self._has_contended = False
        self._n_contended = 0

    # -- the loop over hosts and candidates --------------------------------------------

    def claim_host(
        self, uuid: str, hosts: HostBatch, index: int, eligible: HostBatch
    ) -> Assignment | None:
        """Claim one of a host's candidates for an instance, in Placement's order.

        Only the candidates that passed the filters are tried.

        Parameters
        ----------
        eligible : HostBatch
            See `ClaimCheck.after`.

        Returns
        -------
        Assignment or None
            None: none was granted, another host must be tried.

        Raises
        ------
        StaleOffer
            Many refused claims have shown the offer to be stale.
        """
        node_uuid, among = hosts.value("uuid", index), hosts.candidates_of(index)
        while (number := self._offer.next_candidate(node_uuid, among)) is not None:
            assignment = self._prepared.assign(uuid, hosts, index, self._offer, number)
            if not all(check.may_try(assignment) for check in self._checks):
                return None
            refusal = self._check_before(assignment)
            if refusal is None:
                refusal = self._claim([assignment], eligible).get(uuid)
            if refusal is None:
                self._offer.reserve(number)
                return assignment
            if refusal.result == ClaimResult.CONTENDED.value:
                self._count_contended(refusal)
            if refusal.excluded is Excluded.NOTHING:
                return None  # busy, or about to change: another host is faster
            if refusal.excluded is Excluded.CANDIDATE_OF_ANSWER:
                self._give_up_stale_offer()
        return None

    def claim_together(
        self, assignments: Sequence[Assignment], eligible: HostBatch
    ) -> list[str]:
        """Claim for several instances, whose candidates are reserved.

        A POST has at most `MAX_CLAIMED_TOGETHER` of them: Placement needs some 10 ms
        for each, and the answer must arrive within its timeout.

        Returns
        -------
        list of str
            The instances that got no host; their candidates are no longer reserved.
        """
        for check in self._checks:
            check.read(assignments)
        refusals = {e.instance_uuid: self._check_before(e) for e in assignments}
        allowed = [e for e in assignments if refusals[e.instance_uuid] is None]
        for first in range(0, len(allowed), MAX_CLAIMED_TOGETHER):
            part = allowed[first : first + MAX_CLAIMED_TOGETHER]
            refusals.update(self._claim(part, eligible))
        refused = [e for e in assignments if refusals[e.instance_uuid] is not None]
        for assignment in refused:
            self._offer.release(assignment.candidate)
        return [assignment.instance_uuid for assignment in refused]

    def _check_before(self, assignment: Assignment) -> Refusal | None:
        for check in self._checks:
            if (refusal := check.before(assignment)) is not None:
                self._drop(assignment, refusal)
                self._report_refusal(assignment, refusal)
                return refusal
        return None

    def _claim(
        self,
        assignments: Sequence[Assignment],
        eligible: HostBatch,
        *,
        is_held: bool = False,
    ) -> dict[str, Refusal]:
        """Claim for instances at once; return the refusals by instance.

        Placement does not say which one it refused: a refused set is split in halves,
        so that the others keep their claims.
        """
        requests = {
            e.instance_uuid: self._offer.request(e.candidate) for e in assignments
        }
        hosts = [each.value("host") for each in assignments]
        try:
            answer = self.backend.claim(requests, hosts, is_held=is_held)
        except SchedulerError as e:
            text, n_writes = shortened(str(e), MAX_MESSAGE), self.backend.n_writes
            self._report(FAILED, [*requests], hosts, text, n_writes)
            raise
        self._report_answer([*requests], hosts, answer)
        if answer.result is ClaimResult.CLAIMED:
            objections = [self._check_after(e, answer, eligible) for e in assignments]
            pairs = zip(requests, objections, strict=True)
            return {uuid: refusal for uuid, refusal in pairs if refusal is not None}
        if len(assignments) == 1:
            is_refused = answer.result is ClaimResult.REFUSED
            refusal = Refusal(
                answer.result.value,
                [answer.last.detail],
                Excluded.CANDIDATE_OF_ANSWER if is_refused else Excluded.NOTHING,
            )
            self._drop(assignments[0], refusal)
            return {assignments[0].instance_uuid: refusal}
        middle = len(assignments) // 2
        refused = self._claim(assignments[:middle], eligible)
        return refused | self._claim(assignments[middle:], eligible)

    def _check_after(
        self, assignment: Assignment, answer: ClaimAnswer, eligible: HostBatch
    ) -> Refusal | None:
        """Return why a granted claim is not kept, after it was released.

        Raises
        ------
        AllocationUpdateFailed
            It is not ours to release: an earlier request made it.
        PlacementUnavailable
            It could not be released.
        """
        for check in self._checks:
            refusal = check.after(assignment, answer, eligible)
            if refusal is None:
                continue
            uuid = assignment.instance_uuid
            if answer.is_found:
                raise AllocationUpdateFailed(
                    f"Consumer {uuid} holds what an earlier request claimed on host "
                    f"{assignment.value('host')}, where the policy of its server group "
                    "or a rule about places does not allow it"
                )
            self._drop(assignment, refusal)
            # Its server group may change the claim at the same time.
            for n_left in reversed(range(GROUP_MAX_RELEASES)):
                try:
                    self.backend.release(uuid)
                    break
                except AllocationUpdateFailed as e:
                    if not n_left:
                        raise PlacementUnavailable(f"{e}") from e
            self._report_refusal(assignment, refusal)
            return refusal
        return None

    def _drop(self, assignment: Assignment, refusal: Refusal) -> None:
        """Undo what checks did for a claim, and exclude what is not tried again."""
        for check in self._checks:
            check.undo(assignment.instance_uuid)
        if refusal.excluded is Excluded.HOST:
            # It is no alternate either.
            self._offer.refuse_all(assignment.value("uuid"))
        elif refusal.excluded is not Excluded.NOTHING:
            self._offer.mark_refused(assignment.candidate)
        if refusal.excluded is Excluded.CANDIDATE_OF_ANSWER:
            self.backend.exclude(self._offer, assignment.candidate)

    def _give_up_stale_offer(self) -> None:
        self._n_refused += 1
        if (
            self._may_give_up
            and self._n_refused >= MAX_REFUSED
            and not self.backend.has_claimed()
        ):
            raise StaleOffer

    def _count_contended(self, refusal: Refusal) -> None:
        self._has_contended = True
        self._n_contended += 1
        if self._n_contended >= MAX_CONTENDED:
            raise PlacementUnavailable(
                f"Placement reported changing providers for {self._n_contended} claims "
                f"in a row, each sent several times: {', '.join(refusal.details)}"
            )

    def may_try_again(self, n_rounds: int) -> bool:
        """Return whether to try all hosts again, after so many rounds.

        True if, since the last call, a host was only busy, or a check says so.
        """
        answers = [check.may_retry(n_rounds) for check in self._checks]
        if decided := [answer for answer in answers if answer is not None]:
            return any(decided)
        was, self._has_contended = self._has_contended, False
        return was and n_rounds < MAX_ROUNDS

    @property
    def is_counting(self) -> bool:
        """Whether filters run again before a further round; see `ClaimCheck`."""
        return any(check.is_counting for check in self._checks)

    # -- claims of an earlier, repeated request ----------------------------------------

    @property
    def may_add(self) -> bool:
        """Whether an instance may keep what it holds, and be granted more."""
        return bool(self.backend.evacuated_from)

    def held_candidate(self, uuid: str) -> int | None:
        """Return the candidate that an instance has held since an earlier request."""
        held = self.backend.held(uuid)
        if held is None:
            return None
        offer, evacuated_from = self._offer, self.backend.evacuated_from
        roots = {root for uuid in held.resources if (root := offer.root_of(uuid))}
        # What it holds on the host that it is evacuated from is no part of a candidate.
        is_partial = bool(evacuated_from & held.resources.keys())
        for root in roots - evacuated_from:
            for number in offer.numbers_of(root):
                granted = resources_of(offer.request(number))
                if is_partial and all(
                    held.resources.get(u) == granted[u] for u in granted
                ):
                    return number
                if not is_partial and held.matches(offer.request(number)):
                    return number
        return None

    def take_over(self, assignment: Assignment, eligible: HostBatch) -> bool:
        """Rewrite what an earlier request claimed for an instance; return whether kept.

        The earlier request cannot release it after that.
        """
        for check in self._checks:
            check.undo(assignment.instance_uuid)  # on hosts that were tried
        return not self._claim([assignment], eligible, is_held=True)

    # -- the end -----------------------------------------------------------------------

    def release(self) -> None:
        """Release all claims; those that cannot be released now are released later.

        A failed release does not replace the error of the request.
        """
        for uuid in self._prepared.instance_uuids:
            for check in self._checks:
                check.undo(uuid)
        released, left = self.backend.release_all()
        for uuids, when in ((released, ""), (left, "once Placement answers")):
            if uuids:
                self._report(RELEASED, uuids, (), when)

    # -- the record --------------------------------------------------------------------

    def _report_answer(
        self, uuids: Sequence[str], hosts: Sequence[str], answer: ClaimAnswer
    ) -> None:
        """Count, record and log an answer of the backend."""
        is_claimed = answer.result is ClaimResult.CLAIMED
        if is_claimed and not answer.is_found:
            self._n_contended = 0
        if answer.n_attempts:
            for contention in self._contentions:
                contention.note(is_refused=not is_claimed, n_attempts=answer.n_attempts)
        result, detail = answer.result.value, answer.last.detail
        self._report(result, uuids, hosts, detail, answer.n_attempts)

    def _report_refusal(self, assignment: Assignment, refusal: Refusal) -> None:
        """Count, record and log a refusal by a check."""
        if refusal.result == COLLIDED:
            for contention in self._contentions:
                contention.note(is_refused=True, n_attempts=1)
        uuids, hosts = [assignment.instance_uuid], [assignment.value("host")]
        for detail in refusal.details:
            self._report(refusal.result, uuids, hosts, detail)

    def _report(
        self,
        result: str,
        uuids: Sequence[str],
        hosts: Sequence[str],
        detail: str,
        n_attempts: int = 0,
    ) -> None:
        """Record an attempt, and log why it gave no claim, or not for long."""
        if not self.backend.is_live:
            return
        if hosts and (line := _NOT_CLAIMED.get(result)):
            LOG.info(line, ", ".join(hosts), ", ".join(uuids), detail)
        record, clock = self._prepared.record, self._prepared.parts.clock
        record.claims.append(
            ClaimAttempt(
                instance_uuids=tuple(uuids),
                hosts=() if result == RELEASED else tuple(hosts),
                result=result,
                n_attempts=n_attempts,
                detail=detail,
                at_ms=record.elapsed_ms(clock()),
            )
        )
