# SPDX-License-Identifier: Apache-2.0
"""Claim candidates in Placement, all of them or none."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ...candidates import AllocationRequest
from ...errors import AllocationUpdateFailed
from ...waiting import Rng, SystemWaiter, Waiter
from ..answers import (
    ConsumerAllocations,
    DesiredAllocations,
    WriteAnswer,
    combine_allocations,
)
from ..client import PlacementClient
from .engine import NOTHING, AllocationsByConsumer, AllocationsInDoubt, Rewrite

#: Called before a write of a claim: with the generation that the write names for each
#: consumer, the allocations held, and those before a claim that was added to them.
BeforeClaim = Callable[
    [Mapping[str, int | None], AllocationsByConsumer, AllocationsByConsumer], None
]


class ClaimResult(enum.Enum):
    """The outcome of a claim."""

    CLAIMED = "claimed"
    #: Capacity, inventory or provider are gone: the candidate cannot be claimed.
    REFUSED = "refused"
    #: Providers kept changing until the retry limit: the candidate may still be free.
    CONTENDED = "contended"


def claim_result(rewrite: Rewrite, what: str) -> ClaimResult:
    """Return the outcome of a claim for which Placement may refuse a candidate.

    Raises
    ------
    AllocationUpdateFailed
        Other writers kept changing the consumers until the retry limit.
    """
    answer = rewrite.answer
    if answer.is_done:
        return ClaimResult.CLAIMED
    if answer.is_consumer_conflict:
        rewrite.raise_unless_done(what)
    is_contended = answer.is_concurrent_update
    return ClaimResult.CONTENDED if is_contended else ClaimResult.REFUSED


@dataclass(frozen=True, slots=True)
class Claim:
    """The allocations that one consumer was granted, or may have been granted.

    Attributes
    ----------
    request : mapping
        The allocation request.
    before : ConsumerAllocations or None
        What the consumer held before, if the claim was added to it (evacuation).
    generation : int or None
        The generation at which the claim is final after our write; even: the one at
        which it is being removed; None: unknown.
    is_ours : bool
        Whether Placement granted the claim to us, so that no other request has answered
        it.
    named_generation : int or None
        The generation that the first unanswered write named.
    written_generation : int or None
        The highest generation that a write of ours can have given the consumer.
    is_in_flight : bool
        Whether an unanswered write may still arrive.
    """

    request: AllocationRequest
    before: ConsumerAllocations | None = None
    generation: int | None = None
    is_ours: bool = False
    named_generation: int | None = None
    written_generation: int | None = None
    is_in_flight: bool = False

    @property
    def combined_request(self) -> AllocationRequest:
        """All that the consumer holds while it holds the claim."""
        if self.before is None:
            return self.request
        return combine_allocations(self.before, self.request)

    @property
    def base_request(self) -> AllocationRequest:
        """What the consumer holds without the claim."""
        return (self.before or NOTHING).request

    @property
    def late_write_generation(self) -> int:
        """The highest generation at which a late write can succeed.

        0: it can succeed only while the consumer does not exist. A claim that is added
        for an evacuation names the generation that the consumer had before.
        """
        return max(
            (self.before or NOTHING).consumer_generation or 0,
            self.named_generation or 0,
            (self.written_generation or 0) - 1,
        )

    def as_held(self, held: ConsumerAllocations) -> Claim | None:
        """Return the claim as added to whatever else the consumer holds now.

        A conductor removes the evacuated host and keeps what was added. Another request
        for the evacuation, also of another scheduler, may have added a further host. A
        late write may name the claim alone, if it was sent before the consumer was
        read. None: the consumer does not hold the claim.
        """
        if held.matches(self.combined_request):
            return self
        if self.before is None:
            return None
        added = self.request["allocations"].keys()
        kept = {p: r for p, r in held.resources.items() if p not in added}
        claim = replace(
            self,
            before=replace(held, resources=kept) if kept else None,
            generation=None,
            is_ours=False,
            written_generation=held.consumer_generation,
        )
        return claim if held.matches(claim.combined_request) else None

    def as_whole(self) -> Claim:
        """Return the claim together with what the consumer held before.

        A late write of the claim allocates both, also for an instance that is gone:
        neither is in use then.
        """
        return replace(self, request=self.combined_request, before=None)

    def being_removed(self, generation: int) -> Claim:
        """Return the claim as it is once a write that removes it has been sent.

        Parameters
        ----------
        generation : int
            The generation that the write names.
        """
        is_known = self.is_ours and generation % 2 == 0
        return replace(
            self, generation=generation if is_known else None, is_ours=is_known
        )

    def is_still_ours(self, generation: int) -> bool:
        """Return whether no other request can have answered the claim since.

        At the even generation after ours, a release of ours is in progress, or another
        request takes the claim over and has not answered yet. At a lower one, the
        consumer was removed, and another request has made it: generations begin at 1
        again.
        """
        is_next = generation - 1 == self.generation and generation % 2 == 0
        return generation == self.generation or is_next


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """The outcome of a claim, and the granted allocations.

    Attributes
    ----------
    result : ClaimResult
    n_attempts : int
        How often the claim was sent.
    last : WriteAnswer
        Placement's last answer.
    claims : mapping
        The granted claim by consumer UUID; empty if it was refused.
    is_found : bool
        Whether the consumers already held the whole claim: an earlier request may have
        made it, and it may be in use.
    unresolved : mapping
        If the claim was refused: what unanswered writes may still claim, by consumer.
    """

    result: ClaimResult
    n_attempts: int
    last: WriteAnswer
    claims: Mapping[str, Claim] = field(default_factory=dict)
    is_found: bool = False
    unresolved: Mapping[str, Claim] = field(default_factory=dict)


def claim(  # noqa: PLR0913 - a claim says who, what, for whom, and how to wait
    client: PlacementClient,
    allocation_requests: Mapping[str, AllocationRequest],
    *,
    project_id: str,
    user_id: str,
    rng: Rng,
    waiter: Waiter | None = None,
    global_request_id: str | None = None,
    evacuated_from: AbstractSet[str] = frozenset(),
    shared: AbstractSet[str] = frozenset(),
    before_write: BeforeClaim | None = None,
    final_above: Mapping[str, int] = MappingProxyType({}),
    is_held: bool = False,
) -> ClaimAnswer:
    """Claim a candidate for each consumer: all of them or none.

    Several consumers are one POST; Placement does not say which one it refused.

    Parameters
    ----------
    allocation_requests : mapping
        The candidate by consumer UUID.
    evacuated_from : set of str
        Providers of the host that the instance is evacuated from: its allocations there
        stay, and the claim is added to them.
    shared : set of str
        Providers outside the trees of hosts, such as shared storage: what an evacuated
        instance holds from them is not the claim's.
    before_write : callable, optional
        Called before each write; see `BeforeClaim`.
    final_above : mapping, optional
        See `Orphans.late_generations`.
    is_held : bool
        Whether the consumers probably hold the claim already, so that they are read
        first.

    Raises
    ------
    AllocationUpdateFailed
        A consumer holds allocations that this request did not claim.
    AllocationsInDoubt
        Placement did not answer, and the outcome could not be read.
    PlacementError
        Placement could not be used; no allocation was left behind.
    """
    owner = ConsumerAllocations({}, None, project_id, user_id)
    plan = _ClaimPlan(allocation_requests, owner, evacuated_from, shared)

    def note_write(
        generations: Mapping[str, int | None], held: AllocationsByConsumer
    ) -> None:
        if before_write is not None:
            before_write(generations, held, plan.before)

    rewrite = Rewrite(
        client,
        allocation_requests,
        plan,
        waiter=waiter or SystemWaiter(),
        rng=rng,
        global_request_id=global_request_id,
        held=dict.fromkeys(allocation_requests, NOTHING),
        is_known=not is_held,
        takes_over=True,
        before_write=note_write,
        final_above=final_above,
    )
    result = ClaimResult.CLAIMED
    try:
        if not rewrite.run().answer.is_done:
            result = claim_result(rewrite, plan.failed())
    except AllocationsInDoubt as e:
        e.unresolved = plan.in_doubt(rewrite)
        raise
    except AllocationUpdateFailed as e:
        # The allocations of other requests are not ours to resolve. Of claims that were
        # granted, perhaps without an answer, another writer may have removed some
        # since, and left the others.
        e.unresolved = plan.unanswered_claims(rewrite) | {
            uuid: claimed
            for uuid, claimed in plan.in_doubt(rewrite).items()
            if uuid in plan.before
            or rewrite.was_done
            or rewrite.held[uuid].matches(claimed.request)
        }
        raise
    n_writes, last_answer = rewrite.n_writes, rewrite.answer
    if result is not ClaimResult.CLAIMED:
        unresolved = plan.unanswered_claims(rewrite)
        return ClaimAnswer(result, n_writes, last_answer, unresolved=unresolved)
    return ClaimAnswer(
        result,
        n_writes,
        last_answer,
        claims=plan.claims(rewrite),
        is_found=rewrite.is_found,
    )


@dataclass(slots=True)
class _ClaimPlan:
    """Plans a claim, in addition to an evacuated instance's old allocations."""

    requests: Mapping[str, AllocationRequest]
    owner: ConsumerAllocations
    evacuated_from: AbstractSet[str]
    shared: AbstractSet[str]
    before: dict[str, ConsumerAllocations] = field(default_factory=dict)
    #: What the claim was added to by any write, though it may be gone since: a late one
    #: gives it back.
    added_to: dict[str, ConsumerAllocations] = field(default_factory=dict)
    #: Consumers that were read without allocations of the evacuated host: the instance
    #: is resized or migrated, and a conductor that reverts that gives them back.
    moved: set[str] = field(default_factory=set)

    def __call__(self, held: AllocationsByConsumer) -> dict[str, DesiredAllocations]:
        self.moved.update(
            uuid
            for uuid, consumer in held.items()
            if consumer is not NOTHING  # which was assumed, not read
            and self.evacuated_from.isdisjoint(consumer.resources)
        )
        if not any(consumer.resources for consumer in held.values()):
            self.before.clear()
            return {
                uuid: DesiredAllocations(self.requests[uuid], self.owner)
                for uuid in held
            }
        if all(self._is_reached(uuid, consumer) for uuid, consumer in held.items()):
            return {}
        return {uuid: self._added(uuid, consumer) for uuid, consumer in held.items()}

    def _is_reached(self, uuid: str, consumer: ConsumerAllocations) -> bool:
        """Return whether a consumer holds the claim, whichever request made it."""
        request = self.requests[uuid]
        combined_request = Claim(request, self.before.get(uuid)).combined_request
        if consumer.matches(combined_request) or consumer.matches(request):
            return True
        # An earlier request may have added the claim to what the failed host has, or
        # this one, and something else that was held has been released since.
        claimed = request["allocations"].keys() - self.shared
        kept_resources = {
            provider: amounts
            for provider, amounts in consumer.resources.items()
            if provider not in claimed
        }
        before = replace(consumer, resources=kept_resources)
        if not self.evacuated_from & kept_resources.keys():
            return False
        if not consumer.matches(Claim(request, before).combined_request):
            return False
        self.before[uuid] = before
        return True

    def _added(self, uuid: str, consumer: ConsumerAllocations) -> DesiredAllocations:
        """Return the claim, in addition to what an evacuated instance holds."""
        request = self.requests[uuid]
        if not consumer.resources:
            self.before.pop(uuid, None)
            return DesiredAllocations(request, self.owner)
        is_evacuated = self.evacuated_from & consumer.resources.keys()
        if not is_evacuated or uuid in self.moved:
            raise AllocationUpdateFailed(
                f"Failed to update allocations for consumer {uuid}. Error: it holds "
                "allocations that this request did not make, of the resource providers "
                f"{', '.join(sorted(consumer.resources))}."
            )
        self.before[uuid] = self.added_to[uuid] = consumer
        return DesiredAllocations(combine_allocations(consumer, request), self.owner)

    def claims(self, rewrite: Rewrite) -> dict[str, Claim]:
        """Return the granted claims."""
        unanswered = self.unanswered_claims(rewrite) if rewrite.unanswered else {}
        return {
            uuid: replace(
                unanswered.get(uuid) or Claim(request, self.before.get(uuid)),
                generation=rewrite.held[uuid].consumer_generation,
                is_ours=not rewrite.is_found,
            )
            for uuid, request in self.requests.items()
        }

    def unanswered_claims(self, rewrite: Rewrite) -> dict[str, Claim]:
        """Return the claims that unanswered writes have made, or may make late."""
        return {
            uuid: Claim(
                self.requests[uuid],
                self._before(uuid, rewrite),
                named_generation=generations[0],
                written_generation=max(generation or 0 for generation in generations)
                + 1,
                is_in_flight=True,
            )
            for uuid, generations in rewrite.unanswered.items()
        }

    def _before(self, uuid: str, rewrite: Rewrite) -> ConsumerAllocations | None:
        """Return what a consumer has beside a claim, or may have after a late write."""
        in_flight = self.added_to.get(uuid) if uuid in rewrite.unanswered else None
        return self.before.get(uuid) or in_flight

    def in_doubt(self, rewrite: Rewrite) -> dict[str, Claim]:
        """Return all claims: the last write may name only some of the consumers."""
        return {
            uuid: Claim(
                request,
                self._before(uuid, rewrite),
                named_generation=rewrite.unanswered.get(uuid, [None])[0],
                written_generation=rewrite.max_generations.get(uuid),
                is_in_flight=True,
            )
            for uuid, request in self.requests.items()
        }

    def failed(self) -> str:
        """Return nova's error text for a claim whose consumers kept changing."""
        providers = {
            provider
            for request in self.requests.values()
            for provider in request["allocations"]
        }
        return (
            f"Failed to update allocations for consumer {', '.join(self.requests)}. "
            "Error: another writer changed it while it was claimed for the resource "
            f"providers {', '.join(sorted(providers))}"
        )
