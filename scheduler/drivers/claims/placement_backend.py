# SPDX-License-Identifier: Apache-2.0
"""The claims of a request in Placement, each in the journal until it is settled."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from ... import tracing
from ...candidates import AllocationRequest, Offer
from ...errors import (
    MAX_MESSAGE,
    AllocationUpdateFailed,
    InvalidRequest,
    PlacementError,
    SchedulerError,
    shortened,
)
from ...placement.allocations.claims import (
    Claim,
    ClaimAnswer,
    ClaimResult,
    claim,
)
from ...placement.allocations.engine import AllocationsByConsumer, AllocationsInDoubt
from ...placement.allocations.journal_entry import JournalEntry
from ...placement.allocations.releases import release
from ...placement.answers import ConsumerAllocations
from ...placement.candidates_source import CountedClaim
from ..prepared import PreparedRequest
from ..record import COLLIDED, FAILED, OUTDATED, RELEASED, ClaimAttempt
from ..restrictions import evacuated_from

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


class PlacementBackend:
    """Writes a request's claims to Placement, and releases them if the request fails.

    Claims that are in doubt, or cannot be released now, are handed to `Orphans`.
    `RecordedClaims` has the same methods.

    Attributes
    ----------
    evacuated_from : frozenset of str
        Providers of the evacuated host: the instance keeps its allocations from them in
        addition to the claim.

    Raises
    ------
    InvalidRequest
        Neither the request nor its context has the instances' project or user.
    """

    def __init__(self, prepared: PreparedRequest) -> None:
        self._parts = parts = prepared.parts
        request, caller = prepared.request, prepared.caller
        self._global_request_id = caller.global_request_id
        self._owner: dict[str, str] = {}
        for name in ("project_id", "user_id"):
            owner = getattr(request, name) or getattr(caller, name)
            if not owner:
                raise InvalidRequest(
                    f"Neither RequestSpec nor the request context has a {name}: an "
                    "allocation needs an owner"
                )
            self._owner[name] = str(owner)
        self._record = prepared.record
        self._n_recorded = len(prepared.record.claims)
        uuids = prepared.instance_uuids
        held = (self.held(uuid).resources.keys() for uuid in uuids)
        self.evacuated_from = evacuated_from(request, parts.table, held)
        #: How many times the last claim was sent to Placement.
        self._n_writes = 0
        #: The claims that Placement granted to this request, by instance.
        self._claimed = parts.orphans.granted_claims()
        #: The claims of earlier requests that this request took over, by instance.
        self._taken_over: dict[str, Claim] = {}
        #: The journal entries of claims that are not known to be released, by instance.
        self._entries: dict[str, JournalEntry] = {}
        #: The writes of the claim or release that is under way.
        self._under_way: list[tuple[str, int]] = []
        #: The claims whose amounts are subtracted from cached candidates.
        self._counted: list[CountedClaim] = []

    def claim(
        self,
        requests: Mapping[str, AllocationRequest],
        hosts: Sequence[str],
        *,
        is_held: bool = False,
        shared: AbstractSet[str] = frozenset(),
    ) -> ClaimAnswer:
        """Claim for one instance, or for several in one POST: all of them or none.

        The journal records the claim, and its amounts are subtracted from cached
        candidates. A claim that is in doubt or interrupted is handed to `Orphans`.

        Parameters
        ----------
        requests : mapping of str to AllocationRequest
            The allocation request of each instance, by UUID.
        is_held : bool
            Whether an earlier request has claimed the same, so that this request takes
            that claim over.
        shared : set of str
            Requested providers outside the hosts' trees.

        Raises
        ------
        PlacementError
            The claim is in doubt, or Placement does not answer.
        """
        parts, began = self._parts, self._parts.candidates.next_sequence()
        self._n_writes = 0
        with (
            self._record.timed("claim"),
            tracing.span("claim", hosts=hosts, instances=list(requests)) as span,
        ):
            try:
                self._entries.update(parts.journal.record(requests, self._owner))
                answer = claim(
                    parts.placement,
                    requests,
                    **self._owner,
                    rng=parts.rng,
                    waiter=parts.waiter,
                    global_request_id=self._global_request_id,
                    evacuated_from=self.evacuated_from,
                    shared=shared,
                    before_write=self._record_write,
                    final_above=parts.orphans.late_generations(requests),
                    is_held=is_held,
                )
                if answer.result is not ClaimResult.CLAIMED:
                    self._end_claim(requests, answer.unresolved)
                elif answer.is_found:
                    self._taken_over.update(answer.claims)
                else:
                    self._claimed.update(answer.claims)
                    for uuid, claimed in answer.claims.items():
                        parts.journal.record_grant(self._entries[uuid], claimed)
                    counted = parts.candidates.count_claim(
                        requests.values(), began=began
                    )
                    self._counted.append(counted)
            except SchedulerError as e:
                in_doubt_errors = (AllocationsInDoubt, AllocationUpdateFailed)
                self._end_claim(
                    requests, e.unresolved if isinstance(e, in_doubt_errors) else {}
                )
                detail = shortened(str(e), MAX_MESSAGE)
                self.record(FAILED, [*requests], hosts, detail, self._n_writes)
                raise
            except BaseException:
                for uuid in requests:
                    self._hand_to_orphans(uuid)
                raise
            finally:
                self._forget_writes()
            if span is not None:
                span.set_attribute("moorage.answer", answer.result.value)
                span.set_attribute("moorage.attempts", answer.n_attempts)
        return answer

    def _end_claim(
        self, requests: Iterable[str], unresolved: Mapping[str, Claim]
    ) -> None:
        """Remove the journal entries of a claim that was not granted.

        Parameters
        ----------
        unresolved : mapping of str to Claim
            By instance, what unanswered writes may still claim: it is handed to
            `Orphans`.
        """
        for uuid, claimed in unresolved.items():
            self._hand_to_orphans(uuid, claimed)
        self._remove_from_journal(requests)

    def record(
        self,
        result: str,
        uuids: Sequence[str],
        hosts: Sequence[str],
        detail: str,
        n_attempts: int = 0,
    ) -> None:
        """Record an attempt to claim, and log why there is no claim of these hosts."""
        if hosts and (message := _NOT_CLAIMED.get(result)):
            LOG.info(message, ", ".join(hosts), ", ".join(uuids), detail)
        self._record.claims.append(
            ClaimAttempt(
                instance_uuids=tuple(uuids),
                hosts=() if result == RELEASED else tuple(hosts),
                result=result,
                n_attempts=n_attempts,
                detail=detail,
                at_ms=self._record.elapsed_ms(self._parts.clock()),
            )
        )

    @property
    def attempts(self) -> Sequence[ClaimAttempt]:
        """The attempts to claim that this object has recorded so far."""
        return self._record.claims[self._n_recorded :]

    def has_claimed(self, instance_uuid: str | None = None) -> bool:
        """Return whether a claim of this object is held; None: for any instance."""
        if instance_uuid is None:
            return bool(self._claimed)
        return instance_uuid in self._claimed

    def held(self, instance_uuid: str) -> ConsumerAllocations:
        """Return an instance's allocations in Placement."""
        return self._parts.placement.allocations(
            instance_uuid, global_request_id=self._global_request_id
        )

    def exclude(self, offer: Offer, candidate: int) -> None:
        """Exclude a candidate from the answer of Placement that it belongs to."""
        self._parts.candidates.exclude(*offer.locate(candidate))

    def _record_write(
        self,
        generations: Mapping[str, int | None],
        held: AllocationsByConsumer,
        before: AllocationsByConsumer,
    ) -> None:
        """Count a write of a claim; if it names generations, record them."""
        self._n_writes += 1
        for uuid, generation in generations.items():
            if generation is None:
                continue
            self._note_write(uuid, generation)
            entry, allocations = self._entries[uuid], held[uuid]
            claimed = Claim(entry.request, before.get(uuid))
            if allocations.matches(claimed.combined_request):
                self._parts.journal.record_rewrite(entry, generation, claimed.before)
            else:
                kept = allocations if allocations.resources else None
                self._parts.journal.record_retry(entry, generation, kept)

    def _note_write(self, uuid: str, generation: int) -> None:
        """Have another request of this process know a write that may be late."""
        self._under_way.append((uuid, generation))
        self._parts.orphans.note_write(uuid, generation)

    def _forget_writes(self) -> None:
        self._parts.orphans.forget_writes(self._under_way)
        self._under_way.clear()

    def _remove_from_journal(self, uuids: Iterable[str]) -> None:
        entries = [self._entries.pop(uuid) for uuid in uuids if uuid in self._entries]
        self._parts.journal.resolve(entries)

    def mark_answered(self) -> None:
        """Record that the answer to the conductor has these claims: they are in use.

        `Orphans` drops the orphans of earlier requests for these instances. It watches
        for unanswered writes, as they may arrive after an instance is deleted.
        """
        claims = {**self._claimed, **self._taken_over}
        self._parts.orphans.forget_claimed(claims)
        for uuid, claimed in claims.items():
            if claimed.is_in_flight:
                self._watch(uuid, claimed)

    def _watch(self, uuid: str, late_claim: Claim) -> None:
        """Let `Orphans` watch for an unanswered write, which may arrive late."""
        orphan = self._parts.journal.watch(uuid, late_claim, self._owner)
        self._parts.orphans.add(uuid, orphan)

    def release(self, uuid: str) -> None:
        """Release this request's claim for an instance.

        Raises
        ------
        AllocationUpdateFailed, PlacementUnavailable
            The claim is not released.
        """
        try:
            was_held = release(
                self._parts.placement,
                uuid,
                self._claimed[uuid],
                rng=self._parts.rng,
                watch=lambda late_claim: self._watch(uuid, late_claim),
                before_rewrite=lambda generation: self._note_write(uuid, generation),
                before_removal=lambda claimed: self._note_removal(uuid, claimed),
                waiter=self._parts.waiter,
                global_request_id=self._global_request_id,
            )
        finally:
            self._forget_writes()
        released = self._claimed.pop(uuid)
        if released.is_in_flight or not was_held:
            # An unanswered write may still claim. Or another request has taken the
            # claim over: if that request fails, it leaves the release to this one.
            late_claim = dataclasses.replace(released, generation=None, is_ours=False)
            self._hand_to_orphans(uuid, late_claim)
        else:
            self._remove_from_journal([uuid])

    def _note_removal(self, uuid: str, claimed: Claim) -> None:
        """Note what of a claim certainly is ours once it is being removed."""
        self._claimed[uuid] = claimed
        self._parts.journal.record_removal(self._entries[uuid], claimed)

    def release_all(self) -> tuple[list[str], list[str]]:
        """Release all claims.

        Returns
        -------
        released, unreleased : list of str
            The instances whose claims are released, and those whose claims are handed
            to `Orphans`, to be released in the background.
        """
        released: list[str] = []
        with self._record.timed("release"):
            for uuid in list(self._claimed):
                try:
                    self.release(uuid)
                except PlacementError as e:
                    LOG.warning(
                        "Releasing claims failed: %s; retrying in the background", e
                    )
                    break  # each other claim would wait as long for Placement
                released.append(uuid)
        unreleased = list(self._claimed)
        for uuid in unreleased:
            self._hand_to_orphans(uuid, self._claimed.pop(uuid))
        # A write of this request may have made a claim that it took over: the first
        # one, if it got no answer, or the one that takes over, if the consumer was
        # deleted and has reached the same generation again. `Orphans` finds out
        # whether the claim is in use.
        for uuid, claimed in self._taken_over.items():
            self._hand_to_orphans(uuid, claimed)
        self._taken_over.clear()
        # The amounts of claims in doubt are added back, too: if they are not free,
        # Placement refuses the next claim of them.
        for counted in self._counted:
            self._parts.candidates.release(counted)
        self._counted.clear()
        return released, unreleased

    def _hand_to_orphans(self, uuid: str, claimed: Claim | None = None) -> None:
        """Hand a claim to `Orphans`; None: as the journal entry describes it."""
        if uuid in self._entries:
            self._parts.journal.hand_to_orphans(self._entries.pop(uuid), claimed)
