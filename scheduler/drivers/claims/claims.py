# SPDX-License-Identifier: Apache-2.0
"""The claims of one attempt: tried in order, checked before and after, recorded.

hosts, candidates ─▶ Claims ─▶ checks ▸ backend ▸ checks ─▶ granted, or the next
                                        Placement, or the record of a decision
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ....filters.locality import LocalityFilter
from ...candidates import Offer, resources_of
from ...errors import AllocationUpdateFailed, PlacementUnavailable
from ...hosts import HostBatch
from ...placement.allocations.claims import ClaimAnswer, ClaimResult
from ...placement.allocations.limits import (
    GROUP_MAX_RELEASES,
    MAX_CLAIMED_TOGETHER,
    MAX_CONTENDED,
    MAX_REFUSED,
    MAX_ROUNDS,
)
from ..instances import Assignment
from ..prepared import PreparedRequest
from ..record import COLLIDED, RELEASED
from .checks import ClaimCheck, Excluded, FitCheck, FreshState, Refusal
from .contention import Contention
from .groups import FILTER_OF_POLICY, GroupCheck
from .levels import LevelCheck
from .placement_backend import PlacementBackend
from .recorded import RecordedClaims

_CELLS_FILTER: Final = "NUMATopologyFilter"
_DEVICES_FILTER: Final = "PciPassthroughFilter"


class StaleOffer(Exception):
    """Raised when Placement refuses what it had offered; a new query may help."""


def checks_of(
    prepared: PreparedRequest, offer: Offer, hosts: HostBatch
) -> list[ClaimCheck]:
    """Return the checks that concern a request, in the order in which they are asked.

    What no filter that applies to the request enforces, such as where a host is forced,
    is not checked either.

    Parameters
    ----------
    hosts : HostBatch
        Those that the decision reads.
    """
    request, filters = prepared.request, prepared.filters
    names: set[str | None] = {type(filter_).__name__ for filter_ in filters}
    checks: list[ClaimCheck] = [FreshState(prepared, offer)]
    needed = {_CELLS_FILTER} if request.numa is not None else set()
    needed |= {_DEVICES_FILTER} if request.pci_requests else set()
    if needed and needed <= names:
        checks.append(FitCheck(prepared, offer, since=hosts.revision))
    group = request.server_group
    if group is not None and FILTER_OF_POLICY.get(group.policy or "") in names:
        checks.append(GroupCheck(prepared, offer, group))
    checks += [
        LevelCheck(prepared, filter_)
        for filter_ in filters
        if isinstance(filter_, LocalityFilter)
    ]
    return checks


class Claims:
    """Claims candidates of an offer, and keeps only claims that all checks allow.

    Parameters
    ----------
    checks : sequence of ClaimCheck
        As `checks_of` returns them.
    contentions : sequence of Contention
        The shares of refused claims, which its claims change.
    may_give_up : bool
        Whether to raise `StaleOffer` once `MAX_REFUSED` candidates were refused.

    Attributes
    ----------
    backend : PlacementBackend or RecordedClaims
        Has the claims that are held.
    is_counting : bool
        Whether filters run again before a further round; see `ClaimCheck`.
    may_add : bool
        Whether an instance may keep what it holds, and be granted more.
    """

    def __init__(
        self,
        prepared: PreparedRequest,
        offer: Offer,
        backend: PlacementBackend | RecordedClaims,
        checks: Sequence[ClaimCheck],
        contentions: Sequence[Contention],
        *,
        may_give_up: bool = False,
    ) -> None:
        self._prepared = prepared
        self._offer = offer
        self.backend = backend
        self._checks = checks
        self.is_counting = any(check.is_counting for check in checks)
        self.may_add = bool(backend.evacuated_from)
        self._contentions = contentions
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
                host, request = assignment.value("host"), self._offer.request(number)
                answer = self.backend.claim({uuid: request}, [host])
                self._report_answer([uuid], [host], answer)
                refusal = self._check_after(assignment, answer, eligible)
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
        refusals = {a.instance_uuid: self._check_before(a) for a in assignments}
        allowed = [a for a in assignments if refusals[a.instance_uuid] is None]
        for first in range(0, len(allowed), MAX_CLAIMED_TOGETHER):
            part = allowed[first : first + MAX_CLAIMED_TOGETHER]
            refusals.update(self._claim(part, eligible))
        refused = [a for a in assignments if refusals[a.instance_uuid] is not None]
        for assignment in refused:
            self._offer.release(assignment.candidate)
        return [assignment.instance_uuid for assignment in refused]

    def _check_before(self, assignment: Assignment) -> Refusal | None:
        """Return why a claim is not sent, after it was recorded."""
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
            a.instance_uuid: self._offer.request(a.candidate) for a in assignments
        }
        hosts = [assignment.value("host") for assignment in assignments]
        answer = self.backend.claim(requests, hosts, is_held=is_held)
        self._report_answer([*requests], hosts, answer)
        if answer.result is ClaimResult.CLAIMED or len(assignments) == 1:
            refusals = [self._check_after(a, answer, eligible) for a in assignments]
            pairs = zip(requests, refusals, strict=True)
            return {uuid: refusal for uuid, refusal in pairs if refusal is not None}
        middle = len(assignments) // 2
        refused = self._claim(assignments[:middle], eligible)
        return refused | self._claim(assignments[middle:], eligible)

    def _check_after(
        self, assignment: Assignment, answer: ClaimAnswer, eligible: HostBatch
    ) -> Refusal | None:
        """Return why an instance does not get, or keep, a claim; release it then.

        Raises
        ------
        AllocationUpdateFailed
            It is not ours to release: an earlier request made it.
        PlacementUnavailable
            It could not be released.
        """
        if answer.result is not ClaimResult.CLAIMED:
            is_refused = answer.result is ClaimResult.REFUSED
            excluded = Excluded.CANDIDATE_OF_ANSWER if is_refused else Excluded.NOTHING
            not_granted = Refusal(answer.result.value, [answer.last.detail], excluded)
            self._drop(assignment, not_granted)
            return not_granted
        refusal = None
        for check in self._checks:
            refusal = check.after(assignment, answer, eligible)
            if refusal is not None:
                break
        if refusal is None:
            return None
        uuid = assignment.instance_uuid
        if answer.is_found:
            raise AllocationUpdateFailed(
                f"Consumer {uuid} holds what an earlier request claimed on host "
                f"{assignment.value('host')}, where the policy of its server group "
                "or a rule about places does not allow it"
            )
        self._drop(assignment, refusal)
        # Its server group may change the claim at the same time.
        for n_retries in reversed(range(GROUP_MAX_RELEASES)):
            try:
                self.backend.release(uuid)
                break
            except AllocationUpdateFailed as e:
                if not n_retries:
                    raise PlacementUnavailable(f"{e}") from e
        self._report_refusal(assignment, refusal)
        return refusal

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

    # -- claims of an earlier, repeated request ----------------------------------------

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
        released, unreleased = self.backend.release_all()
        for uuids, when in ((released, ""), (unreleased, "once Placement answers")):
            if uuids:
                self.backend.record(RELEASED, uuids, (), when)

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
        self.backend.record(result, uuids, hosts, detail, answer.n_attempts)

    def _report_refusal(self, assignment: Assignment, refusal: Refusal) -> None:
        """Count, record and log a refusal by a check."""
        if refusal.result == COLLIDED:
            for contention in self._contentions:
                contention.note(is_refused=True, n_attempts=1)
        uuids, hosts = [assignment.instance_uuid], [assignment.value("host")]
        for detail in refusal.details:
            self.backend.record(refusal.result, uuids, hosts, detail)
