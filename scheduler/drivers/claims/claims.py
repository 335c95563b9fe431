# SPDX-License-Identifier: Apache-2.0
"""The claims of one attempt, which are checked before and after, and recorded.

hosts, candidates ─▶ Claims ─▶ checks ▸ backend ▸ checks ─▶ granted, or the next
                                        Placement, or the record of a decision
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ....filters.locality import LocalityFilter
from ...candidates import AllocationRequest, Offer, resources_of
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
    """Raised when Placement refuses many candidates that it had offered.

    A new query for candidates may help.
    """


def checks_of(
    prepared: PreparedRequest, offer: Offer, hosts: HostBatch
) -> list[ClaimCheck]:
    """Return the checks that apply to a request, in the order in which they run.

    A rule that no filter enforces for the request is not checked either; for example,
    no filter runs for forced hosts.

    Parameters
    ----------
    hosts : HostBatch
        The hosts that the decision reads.
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
        LevelCheck(prepared, offer, filter_)
        for filter_ in filters
        if isinstance(filter_, LocalityFilter)
    ]
    return checks


class Claims:
    """Claims candidates of an offer, and keeps only claims that all checks allow.

    Parameters
    ----------
    checks : sequence of ClaimCheck
        The checks as `checks_of` returns them.
    contentions : sequence of Contention
        The shares of refused claims; every claim updates each of them.
    may_give_up : bool
        Whether to raise `StaleOffer` once `MAX_REFUSED` candidates were refused and no
        claim was granted.

    Attributes
    ----------
    backend : PlacementBackend or RecordedClaims
        Sends the claims, or answers them from a record; knows the granted claims.
    is_counting : bool
        Whether filters run again before a further round; see `ClaimCheck`.
    may_add : bool
        Whether a claim may add allocations to those that an evacuated instance holds.
    has_refused_earlier : bool
        Whether a check has refused a claim that an earlier request made.
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
        self.has_refused_earlier = False
        self._contentions = contentions
        self._may_give_up = may_give_up
        self._n_refused = 0
        self._has_contended = False
        self._n_contended = 0

    # -- the loop over hosts and candidates --------------------------------------------

    def claim_host(
        self, uuid: str, hosts: HostBatch, index: int, eligible: HostBatch
    ) -> Assignment | None:
        """Claim one of a host's candidates for an instance.

        The candidates that passed the filters are tried in Placement's order.

        Parameters
        ----------
        eligible : HostBatch
            See `ClaimCheck.after`.

        Returns
        -------
        Assignment or None
            None: no claim was granted; the caller must try another host.

        Raises
        ------
        StaleOffer
            Placement has refused so many candidates that the offer is likely stale.
        """
        node_uuid, numbers = hosts.value("uuid", index), hosts.candidates_of(index)
        while (number := self._offer.next_candidate(node_uuid, numbers)) is not None:
            assignment = self._prepared.assign(uuid, hosts, index, self._offer, number)
            if not all(check.may_try(assignment) for check in self._checks):
                return None
            refusal = self._check_before(assignment)
            if refusal is None:
                host, request = assignment.value("host"), self._offer.request(number)
                shared = self._shared([request])
                answer = self.backend.claim({uuid: request}, [host], shared=shared)
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
        """Claim for several instances, whose candidates are reserved in the offer.

        A POST has at most `MAX_CLAIMED_TOGETHER` instances: Placement needs some 10 ms
        for each, and the answer must arrive before the request times out.

        Returns
        -------
        list of str
            The UUIDs of instances that got no host; their candidates are no longer
            reserved.
        """
        for check in self._checks:
            check.read(assignments)
        refusals = {a.instance_uuid: self._check_before(a) for a in assignments}
        allowed = [a for a in assignments if refusals[a.instance_uuid] is None]
        for start in range(0, len(allowed), MAX_CLAIMED_TOGETHER):
            assignments_of_post = allowed[start : start + MAX_CLAIMED_TOGETHER]
            refusals.update(self._claim(assignments_of_post, eligible))
        refused = [a for a in assignments if refusals[a.instance_uuid] is not None]
        for assignment in refused:
            self._offer.release(assignment.candidate)
        return [assignment.instance_uuid for assignment in refused]

    def _check_before(self, assignment: Assignment) -> Refusal | None:
        """Return why a claim must not be sent, and record that; None: send it."""
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
        """Claim for instances in one POST; return the refusals by instance UUID.

        Placement does not say for which instance it refused a POST. So the instances
        are split into halves, which are claimed one after the other.

        Parameters
        ----------
        is_held : bool
            Whether the instance holds the candidate already; see `take_over`.
        """
        requests = {
            a.instance_uuid: self._offer.request(a.candidate) for a in assignments
        }
        hosts = [assignment.value("host") for assignment in assignments]
        shared = self._shared(requests.values())
        answer = self.backend.claim(requests, hosts, is_held=is_held, shared=shared)
        self._report_answer([*requests], hosts, answer)
        if answer.result is ClaimResult.CLAIMED or len(assignments) == 1:
            refusals = [self._check_after(a, answer, eligible) for a in assignments]
            pairs = zip(requests, refusals, strict=True)
            return {uuid: refusal for uuid, refusal in pairs if refusal is not None}
        middle = len(assignments) // 2
        refused = self._claim(assignments[:middle], eligible)
        return refused | self._claim(assignments[middle:], eligible)

    def _shared(self, requests: Iterable[AllocationRequest]) -> frozenset[str]:
        """Return the providers of claims outside the hosts' trees, in an evacuation."""
        if not self.backend.evacuated_from:
            return frozenset()
        providers = {uuid for request in requests for uuid in request["allocations"]}
        has_node, root_of = self._prepared.parts.table.has_node, self._offer.root_of
        return frozenset(
            uuid for uuid in providers if not has_node(root_of(uuid) or "")
        )

    def _check_after(
        self, assignment: Assignment, answer: ClaimAnswer, eligible: HostBatch
    ) -> Refusal | None:
        """Return why an instance does not get, or keep, a claim; None: it keeps it.

        A granted claim that a check refuses is released.

        Raises
        ------
        AllocationUpdateFailed
            A check refuses a claim that an earlier request made, and that is not ours
            to release.
        PlacementUnavailable
            The claim could not be released.
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
            self.has_refused_earlier = True
            raise AllocationUpdateFailed(
                f"Consumer {uuid} holds what an earlier request claimed on host "
                f"{assignment.value('host')}, where the policy of its server group "
                "or a rule about places does not allow it"
            )
        self._drop(assignment, refusal)
        # A failed release is tried again: the server group of the instance may change
        # the claim at the same time.
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
        """Undo what checks did for a refused claim; exclude its candidate or host."""
        for check in self._checks:
            check.undo(assignment.instance_uuid)
        if refusal.excluded is Excluded.HOST:
            # The host does not become an alternate either.
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
        """Return whether to try all hosts again after `n_rounds` rounds.

        The checks decide if any of them does not return None. Otherwise, all hosts are
        tried again, `MAX_ROUNDS` rounds at most, if a host was busy in the last round.
        """
        answers = [check.may_retry(n_rounds) for check in self._checks]
        if decided := [answer for answer in answers if answer is not None]:
            return any(decided)
        had_contended, self._has_contended = self._has_contended, False
        return had_contended and n_rounds < MAX_ROUNDS

    # -- claims of an earlier, repeated request ----------------------------------------

    def held_candidate(self, uuid: str) -> int | None:
        """Return the candidate that an earlier request claimed, if there is one."""
        held_allocations = self.backend.held(uuid)
        if held_allocations is None:
            return None
        offer, evacuated_from = self._offer, self.backend.evacuated_from
        roots = {
            root for uuid in held_allocations.resources if (root := offer.root_of(uuid))
        }
        # The allocations on the host that the instance is evacuated from are not part
        # of a candidate.
        is_partial = bool(evacuated_from & held_allocations.resources.keys())
        for root in roots - evacuated_from:
            for number in offer.numbers_of(root):
                granted = resources_of(offer.request(number))
                if is_partial and all(
                    held_allocations.resources.get(provider_uuid)
                    == granted[provider_uuid]
                    for provider_uuid in granted
                ):
                    return number
                if not is_partial and held_allocations.matches(offer.request(number)):
                    return number
        return None

    def take_over(self, assignment: Assignment, eligible: HostBatch) -> bool:
        """Rewrite an earlier request's claim; return whether the instance keeps it.

        After that, the earlier request cannot release the claim.

        Raises
        ------
        AllocationUpdateFailed
            The host has changed since the decision read it, and is not suitable now.
        """
        for check in self._checks:
            check.undo(assignment.instance_uuid)  # for hosts that were tried before
        if (refusal := self._check_before(assignment)) is not None:
            raise AllocationUpdateFailed(
                f"Consumer {assignment.instance_uuid} holds what an earlier request "
                f"claimed on host {assignment.value('host')}, which is not suitable "
                f"any more: {'; '.join(refusal.details)}"
            )
        return not self._claim([assignment], eligible, is_held=True)

    # -- the end -----------------------------------------------------------------------

    def release(self) -> None:
        """Release all claims, and record that.

        A claim that cannot be released now is released later: a failed release does not
        replace the error of the request.
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
