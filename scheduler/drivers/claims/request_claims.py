# SPDX-License-Identifier: Apache-2.0
"""The claims of one decision: tried in order, checked, and recorded."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from ...candidates import AllocationRequest, Offer
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
from ...placement.answers import ConsumerAllocations
from ...request import Request
from ..caller import Caller
from ..instances import PlacedInstance, read_attributes
from ..parts import Parts
from ..record import (
    COLLIDED,
    DEVICES_CLAIMED_FIRST,
    MEMBER_CLAIMED_FIRST,
    OTHER_CLAIMED_FIRST,
    OUTDATED,
    RELEASED,
    ClaimAttempt,
    DecisionRecord,
)
from ..restrictions import evacuated_from
from .contention import Contention
from .fits import FitCheck
from .groups import GroupCheck
from .journaled import JournaledClaims
from .levels import LevelCheck
from .rechecks import Rechecks

LOG = logging.getLogger(__name__)


class StaleOffer(Exception):
    """Raised when Placement refuses what it had offered; a new query may help."""


class RequestClaims:
    """Claims the candidates that a decision selected.

    Parameters
    ----------
    may_give_up : bool
        Whether to raise `StaleOffer` once `MAX_REFUSED` candidates were refused.

    Raises
    ------
    InvalidRequest
        Neither the request nor its context has the instances' project or user.
    """

    def __init__(  # noqa: PLR0913 - one by name
        self,
        parts: Parts,
        caller: Caller,
        request: Request,
        uuids: Sequence[str],
        record: DecisionRecord,
        rechecks: Rechecks,
        levels: LevelCheck,
        fits: FitCheck,
        *,
        contention: Contention,
        may_give_up: bool = False,
    ) -> None:
        self._parts = parts
        self.contention = contention
        self._global_request_id = caller.global_request_id
        self._evacuated_from = evacuated_from(request, parts.table)
        self._group = GroupCheck(
            parts.placement,
            request.server_group,
            () if request.skips_filters else parts.filters,
            uuids,
            table=parts.table,
            waiter=parts.waiter,
            global_request_id=caller.global_request_id,
        )
        self._levels = levels
        self._fits = fits
        self._record = record
        self._rechecks = rechecks
        self._claims = JournaledClaims(
            parts, caller, request, record, self._evacuated_from
        )
        self._wanted: dict[str, AllocationRequest] = {}
        self._has_contended = False
        self._n_contended = 0
        self._may_give_up = may_give_up
        self._n_refused = 0

    def claim_host(
        self, uuid: str, hosts: HostBatch, index: int, ledger: Offer
    ) -> int | None:
        """Claim one of a host's candidates for an instance, in Placement's order.

        Only the candidates that passed the filters are tried.

        Returns
        -------
        int or None
            The candidate that was granted; None: another host must be tried.
        """
        node_uuid, host = hosts.value("uuid", index), hosts.value("host", index)
        if not (self._group.may_try(node_uuid) and self._levels.may_try()):
            return None
        chosen = read_attributes(hosts, index)
        if not self._rechecks.passes(uuid, chosen):
            ledger.refuse_all(node_uuid)  # it is no alternate either
            return None
        left = hosts.candidates_of(index)
        while (candidate := ledger.next_candidate(node_uuid, left)) is not None:
            if not self._rechecks.still_fits(uuid, chosen, ledger, candidate):
                self._refuse(candidate, ledger)
                self._give_up_stale_offer()
                continue
            if not self._fits.reserve(uuid, hosts, index, ledger, candidate):
                self._note(uuid, host, OUTDATED, DEVICES_CLAIMED_FIRST)
                ledger.mark_refused(candidate)
                continue
            answer = self._claim({uuid: ledger.request(candidate)}, [host])
            if answer.result is ClaimResult.CLAIMED:
                if not self._has_place(uuid, host, answer):
                    ledger.mark_refused(candidate)
                    continue
                if not self._may_keep(uuid, node_uuid, host, answer):
                    return None  # it may be tried again where the group settles
                ledger.reserve(candidate)
                return candidate
            self._fits.give_back(uuid)
            if answer.result is ClaimResult.CONTENDED:
                self._count_contended(answer)
                break  # busy, not full: trying another host is faster
            self._refuse(candidate, ledger)
            self._give_up_stale_offer()
        return None

    def _give_up_stale_offer(self) -> None:
        """Raise once many refused claims have shown an answer to be stale.

        Raises
        ------
        StaleOffer
        """
        self._n_refused += 1
        if (
            self._may_give_up
            and self._n_refused >= MAX_REFUSED
            and not self._claims.made
        ):
            raise StaleOffer

    def _has_place(self, uuid: str, host: str, answer: ClaimAnswer) -> bool:
        """Return whether a granted claim fits its host after those reserved earlier.

        If not, it is released. One that an earlier request made is not judged: the
        host may count it already.
        """
        if answer.is_found or self._fits.may_keep(uuid):
            return True
        self._release(uuid)
        self._note(uuid, host, COLLIDED, DEVICES_CLAIMED_FIRST)
        for each in (self._parts.contention, self.contention):
            each.note(is_refused=True, n_attempts=1)
        return False

    def _may_keep(
        self, uuid: str, node_uuid: str, host: str, answer: ClaimAnswer
    ) -> bool:
        """Return whether rules about other instances let one keep its claim.

        These are the policy of its server group and rules about places. A claim that
        it may not keep is released.
        """
        with self._record.timed("group"):
            if not self._group.may_stay(uuid, node_uuid, host, self._wanted[uuid]):
                why = MEMBER_CLAIMED_FIRST
            elif not self._levels.may_stay(uuid, node_uuid):
                why = f"{OTHER_CLAIMED_FIRST}{self._levels.why}"
            else:
                return True
        if answer.is_found:
            raise AllocationUpdateFailed(
                f"Consumer {uuid} holds what an earlier request claimed on host "
                f"{host}, where the policy of its server group or a rule about places "
                "does not allow it"
            )
        self._leave(uuid)
        self._record_released([uuid], why)
        return False

    def _leave(self, uuid: str) -> None:
        """Release a claim because of another instance, which may change it, too.

        Raises
        ------
        PlacementUnavailable
            It could not be released: it is not one that an earlier request made.
        """
        for n_left in reversed(range(GROUP_MAX_RELEASES)):
            try:
                self._release(uuid)
                return
            except AllocationUpdateFailed as e:
                if not n_left:
                    raise PlacementUnavailable(f"{e}") from e

    def _count_contended(self, answer: ClaimAnswer) -> None:
        self._has_contended = True
        self._n_contended += 1
        if self._n_contended >= MAX_CONTENDED:
            raise PlacementUnavailable(
                f"Placement reported changing providers for {self._n_contended} claims "
                f"in a row, each sent several times: {answer.last.detail}"
            )

    @property
    def may_add(self) -> bool:
        """Whether an instance may keep what it holds, and be granted more."""
        return bool(self._evacuated_from)

    def has_claimed(self, uuid: str) -> bool:
        """Return whether this request has a claim for an instance."""
        return uuid in self._claims.made

    def held_candidate(self, uuid: str, ledger: Offer) -> int | None:
        """Return the candidate that an instance has held since an earlier request."""
        held = self._parts.placement.allocations(
            uuid, global_request_id=self._global_request_id
        )
        return _candidate_held_by(held, ledger, excluding=self._evacuated_from)

    def take_over(self, placed: PlacedInstance, ledger: Offer) -> bool:
        """Rewrite the allocations that an earlier request claimed for an instance.

        The earlier request cannot release it after that. Returns whether it may stay.
        """
        self._fits.give_back(placed.instance_uuid)  # elsewhere
        request = {placed.instance_uuid: ledger.request(placed.candidate)}
        answer = self._claim(request, [placed.value("host")])
        return answer.result is ClaimResult.CLAIMED and self._may_keep(
            placed.instance_uuid, placed.value("uuid"), placed.value("host"), answer
        )

    @property
    def counts_others(self) -> bool:
        """Whether the filters count instances that others place at the same time."""
        return self._levels.is_active

    def may_try_again(self, n_rounds: int) -> bool:
        """Return whether to try all hosts again, after so many rounds.

        True if, since the last call, a host was only busy or the instance left one
        because of its server group, or if a rule about places made it leave one and it
        has no other yet.
        """
        rounds = [self._levels.max_rounds] if self._levels.should_retry() else []
        if self._group.retarget_after_leaving():
            rounds.append(self._group.max_rounds)
        if rounds:
            return n_rounds < max(rounds)
        was, self._has_contended = self._has_contended, False
        return was and n_rounds < MAX_ROUNDS

    def _claim(
        self, requests: Mapping[str, AllocationRequest], hosts: Sequence[str]
    ) -> ClaimAnswer:
        self._wanted.update(requests)
        answer = self._claims.claim(requests, hosts)
        if answer.result is ClaimResult.CLAIMED and not answer.is_found:
            self._n_contended = 0
        self._record_attempt(list(requests), hosts, answer)
        return answer

    def claim_together(
        self, placed: Sequence[PlacedInstance], ledger: Offer
    ) -> list[str]:
        """Claim for several instances; return those that got no host.

        A POST has at most `MAX_CLAIMED_TOGETHER` of them: Placement needs some 10 ms
        for each, and the answer must arrive within its timeout.
        """
        self._rechecks.read(placed)
        current = [each for each in placed if self._is_current(each, ledger)]
        kept = {each.instance_uuid for each in current}
        left = [p.instance_uuid for p in placed if p.instance_uuid not in kept]
        for first in range(0, len(current), MAX_CLAIMED_TOGETHER):
            part = current[first : first + MAX_CLAIMED_TOGETHER]
            left += self._claim_halves(part, ledger)
        return left

    def _is_current(self, placed: PlacedInstance, ledger: Offer) -> bool:
        """Return whether a host is unchanged; otherwise release its reservation."""
        uuid, candidate = placed.instance_uuid, placed.candidate
        host = placed.chosen.values
        if not self._rechecks.passes(uuid, host):
            ledger.release(candidate)
            ledger.refuse_all(placed.value("uuid"))
            return False
        if not self._rechecks.still_fits(uuid, host, ledger, candidate):
            ledger.release(candidate)
            self._refuse(candidate, ledger)
            return False
        if not self._fits.reserve_placed(placed, ledger):
            self._note(uuid, placed.value("host"), OUTDATED, DEVICES_CLAIMED_FIRST)
            ledger.release(candidate)
            ledger.mark_refused(candidate)
            return False
        return True

    def _claim_halves(
        self, placed: Sequence[PlacedInstance], ledger: Offer
    ) -> list[str]:
        """Claim for several instances at once; return those that were refused.

        Placement does not say which one it refused: a refused set is split in halves,
        so that the others keep their claims.
        """
        requests = {p.instance_uuid: ledger.request(p.candidate) for p in placed}
        answer = self._claim(requests, [p.value("host") for p in placed])
        if answer.result is ClaimResult.CLAIMED:
            return [
                each.instance_uuid
                for each in placed
                if not self._keeps_placed(each, answer, ledger)
            ]
        if len(placed) == 1:
            self._return_to_ledger(placed[0], answer, ledger)
            return [placed[0].instance_uuid]
        middle = len(placed) // 2
        refused = self._claim_halves(placed[:middle], ledger)
        return refused + self._claim_halves(placed[middle:], ledger)

    def _keeps_placed(
        self, placed: PlacedInstance, answer: ClaimAnswer, ledger: Offer
    ) -> bool:
        node_uuid, host = placed.value("uuid"), placed.value("host")
        uuid = placed.instance_uuid
        if not self._has_place(uuid, host, answer):
            ledger.mark_refused(placed.candidate)
        elif self._may_keep(uuid, node_uuid, host, answer):
            return True
        ledger.release(placed.candidate)
        return False

    def _return_to_ledger(
        self, placed: PlacedInstance, answer: ClaimAnswer, ledger: Offer
    ) -> None:
        """Release the reservations of a claim that Placement did not grant."""
        self._fits.give_back(placed.instance_uuid)
        ledger.release(placed.candidate)
        if answer.result is ClaimResult.REFUSED:
            self._refuse(placed.candidate, ledger)

    def _refuse(self, candidate: int, ledger: Offer) -> None:
        ledger.mark_refused(candidate)
        self._parts.candidates.exclude(*ledger.locate(candidate))

    def _record_attempt(
        self, uuids: Sequence[str], hosts: Sequence[str], answer: ClaimAnswer
    ) -> None:
        for each in (self._parts.contention, self.contention):
            each.note(
                is_refused=answer.result is not ClaimResult.CLAIMED,
                n_attempts=answer.n_attempts,
            )
        self._record.claims.append(
            ClaimAttempt(
                instance_uuids=tuple(uuids),
                hosts=tuple(hosts),
                result=answer.result.value,
                n_attempts=answer.n_attempts,
                detail=answer.last.detail,
                at_ms=self._record.elapsed_ms(self._parts.clock()),
            )
        )

    def mark_answered(self) -> None:
        """Record that the answer names these claims: they are in use."""
        self._claims.mark_answered()

    def release(self) -> None:
        """Release all claims; those that cannot be released now are released later.

        A failed release does not replace the error of the request.
        """
        self._fits.give_back_all()
        released, left = self._claims.release_all()
        self._record_released(released, "")
        self._record_released(left, "once Placement answers")

    def _release(self, uuid: str) -> None:
        self._fits.give_back(uuid)
        self._claims.release(uuid)

    def _record_released(self, uuids: Sequence[str], when: str) -> None:
        if uuids:
            at_ms = self._record.elapsed_ms(self._parts.clock())
            attempt = ClaimAttempt(tuple(uuids), (), RELEASED, 0, when, at_ms)
            self._record.claims.append(attempt)

    def _note(self, uuid: str, host: str, result: str, why: str) -> None:
        """Record and log why a claim was released, or not sent."""
        LOG.info("Not claiming host %s for instance %s: %s", host, uuid, why)
        at_ms = self._record.elapsed_ms(self._parts.clock())
        attempt = ClaimAttempt((uuid,), (host,), result, 0, why, at_ms)
        self._record.claims.append(attempt)


def _candidate_held_by(
    held: ConsumerAllocations, offer: Offer, *, excluding: AbstractSet[str]
) -> int | None:
    """Return the candidate that equals a consumer's allocations, if there is one.

    Parameters
    ----------
    excluding : set of str
        Root providers of hosts on which it may hold other resources (evacuation).
    """
    roots = {root for uuid in held.resources if (root := offer.root_of(uuid))}
    is_partial = bool(excluding & held.resources.keys())
    for root in roots - excluding:
        for number in offer.numbers_of(root):
            granted = offer.resources_of(number)
            if is_partial:
                is_it = all(held.resources.get(u) == r for u, r in granted.items())
            else:
                is_it = held.matches(offer.request(number))
            if is_it:
                return number
    return None
