# SPDX-License-Identifier: Apache-2.0
"""The claims of a request in Placement, each in the journal until it is settled."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ... import tracing
from ...candidates import AllocationRequest, Offer
from ...errors import (
    AllocationUpdateFailed,
    InvalidRequest,
    PlacementError,
    SchedulerError,
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
from ...request import Request
from ..prepared import Caller, PreparedRequest
from ..record import ClaimAttempt
from ..restrictions import evacuated_from

LOG = logging.getLogger(__name__)


class PlacementBackend:
    """Writes claims to Placement, and knows which of them must be released.

    What is in doubt, or cannot be released now, is handed to `Orphans`.

    Attributes
    ----------
    n_writes : int
        How many writes the last claim has sent.

    Raises
    ------
    InvalidRequest
        Neither the request nor its context has the instances' project or user.
    """

    is_live = True

    def __init__(self, prepared: PreparedRequest) -> None:
        self._parts = parts = prepared.parts
        request, caller = prepared.request, prepared.caller
        self._global_request_id = caller.global_request_id
        self._owner = {
            name: _owner(request, caller, name) for name in ("project_id", "user_id")
        }
        self._record = prepared.record
        self._n_recorded = len(prepared.record.claims)
        self.evacuated_from = evacuated_from(request, parts.table)
        self.n_writes = 0
        #: Those that this request made, by instance.
        self._made: dict[str, Claim] = {}
        #: Earlier ones that this request found and took over.
        self._found: dict[str, Claim] = {}
        #: The journal entries of claims that are not known to be released.
        self._entries: dict[str, JournalEntry] = {}
        self._counted: list[CountedClaim] = []

    def claim(
        self,
        requests: Mapping[str, AllocationRequest],
        hosts: Sequence[str],
        *,
        is_held: bool = False,
    ) -> ClaimAnswer:
        """Claim for one instance, or for several in one POST."""
        began = self._parts.candidates.tick()
        self.n_writes = 0
        with (
            self._record.timed("claim"),
            tracing.span("claim", hosts=hosts, instances=list(requests)) as span,
            self._tracked(requests),
        ):
            answer = claim(
                self._parts.placement,
                requests,
                **self._owner,
                rng=self._parts.rng,
                waiter=self._parts.waiter,
                global_request_id=self._global_request_id,
                evacuated_from=self.evacuated_from,
                before_write=self._record_write,
                final_above=self._parts.orphans.late_generations(requests),
                is_held=is_held,
            )
            self._account(requests, answer, began)
            span.set("moorage.answer", answer.result.value)
            span.set("moorage.attempts", answer.n_attempts)
        return answer

    @property
    def attempts(self) -> Sequence[ClaimAttempt]:
        """Those of this attempt so far."""
        return self._record.claims[self._n_recorded :]

    def has_claimed(self, instance_uuid: str | None = None) -> bool:
        """Return whether a claim of this attempt is held; None: of any instance."""
        if instance_uuid is None:
            return bool(self._made)
        return instance_uuid in self._made

    def held(self, instance_uuid: str) -> ConsumerAllocations | None:
        """Return what an instance holds in Placement."""
        return self._parts.placement.allocations(
            instance_uuid, global_request_id=self._global_request_id
        )

    def exclude(self, offer: Offer, candidate: int) -> None:
        """Exclude a candidate from the answer of Placement that it belongs to."""
        self._parts.candidates.exclude(*offer.locate(candidate))

    def _account(
        self,
        requests: Mapping[str, AllocationRequest],
        answer: ClaimAnswer,
        began: int,
    ) -> None:
        """Record claims, also against cached answers that do not include them."""
        if answer.result is not ClaimResult.CLAIMED:
            for uuid, late in answer.unresolved.items():
                self._hand_to_orphans(uuid, late)
            self._settle(requests)
        elif answer.is_found:
            self._found.update(answer.claims)
        else:
            self._made.update(answer.claims)
            for uuid, made in answer.claims.items():
                self._parts.journal.record_grant(self._entries[uuid], made.generation)
            counted = self._parts.candidates.count_claim(requests.values(), began=began)
            self._counted.append(counted)

    @contextmanager
    def _tracked(self, requests: Mapping[str, AllocationRequest]) -> Iterator[None]:
        """Record claims; hand those in doubt or interrupted to `Orphans`."""
        self._entries.update(self._parts.journal.record(requests, self._owner))
        try:
            yield
        except (AllocationsInDoubt, AllocationUpdateFailed) as e:
            for uuid, unresolved in e.unresolved.items():
                self._hand_to_orphans(uuid, unresolved)
            self._settle(requests)
            raise
        except SchedulerError:
            self._settle(requests)  # nothing was left behind
            raise
        except BaseException:
            for uuid in requests:
                self._hand_to_orphans(uuid)
            raise

    def _record_write(
        self, generations: Mapping[str, int | None], held: AllocationsByConsumer
    ) -> None:
        """Record the generation at which a claim is about to be sent again."""
        self.n_writes += 1
        for uuid, named in generations.items():
            entry, mine = self._entries[uuid], held[uuid]
            recorded = Claim(entry.request, entry.before)
            if named is not None and mine.matches(recorded.combined_request):
                self._parts.journal.record_rewrite(entry, named)
            elif named is not None:
                before = mine if mine.resources else None
                self._parts.journal.record_retry(entry, named, before)

    def _settle(self, uuids: Iterable[str]) -> None:
        entries = [self._entries.pop(uuid) for uuid in uuids if uuid in self._entries]
        self._parts.journal.resolve(entries)

    def mark_answered(self) -> None:
        """Record that the answer names these claims: they are in use.

        Orphans of earlier requests for these instances are forgotten. Unanswered writes
        are watched, as they may arrive after an instance is deleted.
        """
        claims = {**self._made, **self._found}
        self._parts.orphans.forget_claimed(claims)
        for uuid, mine in claims.items():
            if mine.is_in_flight:
                self._watch(uuid, mine)

    def _watch(self, uuid: str, late: Claim) -> None:
        """Watch for an unanswered write of a claim, which may arrive late."""
        orphan = self._parts.journal.watch(uuid, late, self._owner)
        self._parts.orphans.add(uuid, orphan)

    def release(self, uuid: str) -> None:
        """Release this request's claim for an instance."""
        was_held = release(
            self._parts.placement,
            uuid,
            self._made[uuid],
            rng=self._parts.rng,
            watch=lambda late: self._watch(uuid, late),
            waiter=self._parts.waiter,
            global_request_id=self._global_request_id,
        )
        made = self._made.pop(uuid)
        if made.is_in_flight or not was_held:
            # An unanswered write may claim it again. Or another request has taken it
            # over, and leaves it to this one if it fails.
            late = dataclasses.replace(made, generation=None, is_ours=False)
            self._hand_to_orphans(uuid, late)
        else:
            self._settle([uuid])

    def release_all(self) -> tuple[list[str], list[str]]:
        """Release all claims, now or in the background."""
        released: list[str] = []
        with self._record.timed("release"):
            for uuid in list(self._made):
                try:
                    self.release(uuid)
                except PlacementError as e:
                    LOG.warning(
                        "Releasing claims failed: %s; retrying in the background", e
                    )
                    break  # the others would wait as long, one after another
                released.append(uuid)
        left = list(self._made)
        for uuid in left:
            self._hand_to_orphans(uuid, self._made.pop(uuid))
        # What another request made belongs to it. A write of ours that Placement did
        # not confirm may have made the others: evidence decides.
        for uuid, found in self._found.items():
            if not found.is_foreign:
                self._hand_to_orphans(uuid, found)
        self._settle(self._found)
        self._found.clear()
        # Claims in doubt are counted as free, too: Placement refuses them if not.
        for counted in self._counted:
            self._parts.candidates.release(counted)
        self._counted.clear()
        return released, left

    def _hand_to_orphans(self, uuid: str, claimed: Claim | None = None) -> None:
        """Hand a claim to `Orphans`; None: what its journal entry says."""
        if uuid in self._entries:
            self._parts.journal.hand_to_orphans(self._entries.pop(uuid), claimed)


def _owner(request: Request, caller: Caller, name: str) -> str:
    """Return the project or user of the request, otherwise of its context."""
    owner = request.field(name) or getattr(caller, name)
    if not owner:
        raise InvalidRequest(
            f"Neither RequestSpec nor the request context has a {name}: an allocation "
            "needs an owner"
        )
    return str(owner)
