# SPDX-License-Identifier: Apache-2.0
"""Claim what was selected, all of it or nothing, and release it again."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from ...errors import AllocationUpdateFailed
from ...waiting import Rng, SystemWaiter, Waiter
from ..candidates import AllocationRequest
from ..client import ConsumerAllocations, PlacementClient, WriteAnswer, doubled
from .engine import (
    NOTHING,
    AllocationsInDoubt,
    Held,
    Rewrite,
    Sending,
    Wanted,
)


class ClaimResult(enum.Enum):
    """What became of a claim."""

    CLAIMED = "claimed"
    #: Capacity, inventory or provider are gone: this candidate is dead.
    REFUSED = "refused"
    #: Providers kept changing until the bound: the candidate may be good still.
    CONTENDED = "contended"


def claim_result(rewrite: Rewrite, what: str) -> ClaimResult:
    """Return what became of a claim, where a refusal is an answer.

    Raises
    ------
    AllocationUpdateFailed
        Other writers changed the consumers until the bound.
    """
    answer = rewrite.answer
    if answer.is_done:
        return ClaimResult.CLAIMED
    if answer.is_consumer_conflict:
        rewrite.must_be_done(what)
    is_busy = answer.is_concurrent_update
    return ClaimResult.CONTENDED if is_busy else ClaimResult.REFUSED


@dataclass(frozen=True, slots=True)
class Claim:
    """What one consumer was claimed, or may have been.

    Attributes
    ----------
    request : mapping
        The allocation request.
    before : ConsumerAllocations or None
        What the consumer held, where the claim was added to it (evacuation).
    generation : int or None
        At which it rests after a write of ours; None: that is not known.
    is_ours : bool
        Whether Placement granted it to us, so that no other request has answered it.
    named : int or None
        The generation that the first write without an answer named.
    written : int or None
        The highest generation that a write of ours can have given it.
    is_late : bool
        Whether a write that got no answer may still arrive.
    """

    request: AllocationRequest
    before: ConsumerAllocations | None = None
    generation: int | None = None
    is_ours: bool = False
    named: int | None = None
    written: int | None = None
    is_late: bool = False

    @property
    def whole(self) -> AllocationRequest:
        """All that the consumer holds while it holds the claim."""
        if self.before is None:
            return self.request
        return doubled(self.before, self.request)

    @property
    def rest(self) -> AllocationRequest:
        """What it holds without the claim."""
        return (self.before or NOTHING).request

    @property
    def late_at(self) -> int | None:
        """The generation that a late write names, if it can be done at all.

        What is added to an evacuated instance names the generation that it had.
        """
        return self.named if self.before is None else self.before.consumer_generation

    @property
    def newest(self) -> int:
        """The highest generation that a write of ours can have given it."""
        return self.generation or self.written or (self.named or 0) + 1

    def is_newest(self, generation: int) -> bool:
        """Return whether no other request can have answered it since.

        At the even generation after ours, a release of ours is under way, or another
        request takes it over and has not answered yet.
        """
        is_next = generation == self.newest + 1 and generation % 2 == 0
        return generation <= self.newest or is_next


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """What became of a claim, and what it took.

    Attributes
    ----------
    result : ClaimResult
    n_attempts : int
        How often it was sent.
    last : WriteAnswer
        Placement's last answer.
    claims : mapping
        Consumer UUID to what it was claimed; empty where it was refused.
    is_found : bool
        Whether the consumers held all of it before: an earlier request may have
        claimed it, and it may be in use.
    left : mapping
        Where it was refused: what a write without an answer may claim yet, by consumer.
    """

    result: ClaimResult
    n_attempts: int
    last: WriteAnswer
    claims: Mapping[str, Claim] = field(default_factory=dict)
    is_found: bool = False
    left: Mapping[str, Claim] = field(default_factory=dict)


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
    sending: Sending | None = None,
) -> ClaimAnswer:
    """Claim a candidate for each consumer: all of them or none.

    Several are one POST, of which Placement does not say which one it refused.

    Parameters
    ----------
    allocation_requests : mapping
        Consumer UUID to the candidate.
    evacuated_from : set of str
        Providers of the host that the instance is evacuated from: what it holds there
        is kept, and the claim is added.
    sending : callable, optional
        Called before each write, with the generations that it names and what is held.

    Raises
    ------
    AllocationUpdateFailed
        A consumer holds what this request did not claim.
    AllocationsInDoubt
        No answer came, and Placement could not be asked what became of it.
    PlacementError
        Placement could not do its part; nothing was left behind.
    """
    owner = ConsumerAllocations({}, None, project_id, user_id)
    plan = _ClaimPlan(allocation_requests, owner, evacuated_from)
    rewrite = Rewrite(
        client,
        allocation_requests,
        plan,
        waiter=waiter or SystemWaiter(),
        rng=rng,
        global_request_id=global_request_id,
        assumed=dict.fromkeys(allocation_requests, NOTHING),
        takes_over=True,
        sending=sending,
    )
    try:
        rewrite.run()
    except AllocationsInDoubt as e:
        e.left = plan.late(rewrite)
        raise
    except AllocationUpdateFailed as e:
        e.left = plan.late(rewrite) | plan.held()
        raise
    result = claim_result(rewrite, plan.failed())
    answer = ClaimAnswer(result, rewrite.n_writes, rewrite.answer)
    if result is not ClaimResult.CLAIMED:
        return replace(answer, left=plan.late(rewrite))
    return replace(answer, claims=plan.claims(rewrite), is_found=rewrite.is_found)


@dataclass(slots=True)
class _ClaimPlan:
    """Hold what is wanted, beside what is kept in an evacuation."""

    requests: Mapping[str, AllocationRequest]
    owner: ConsumerAllocations
    evacuated_from: AbstractSet[str]
    before: dict[str, ConsumerAllocations] = field(default_factory=dict)
    seen: Held = field(default_factory=dict)

    def __call__(self, held: Held) -> dict[str, Wanted]:
        self.seen = held
        if all(self._is_reached(uuid, mine) for uuid, mine in held.items()):
            return {}
        return {uuid: self._wanted(uuid, mine) for uuid, mine in held.items()}

    def _is_reached(self, uuid: str, mine: ConsumerAllocations) -> bool:
        request = self.requests[uuid]
        if mine.are(Claim(request, self.before.get(uuid)).whole) or mine.are(request):
            return True
        return uuid not in self.before and self._is_added(uuid, mine)

    def _is_added(self, uuid: str, mine: ConsumerAllocations) -> bool:
        """Return whether an earlier request has added the claim to what was held."""
        added = self.requests[uuid]["allocations"]
        kept = {u: r for u, r in mine.resources.items() if u not in added}
        before = replace(mine, resources=kept)
        if not self.evacuated_from & kept.keys():
            return False
        if not mine.are(Claim(self.requests[uuid], before).whole):
            return False
        self.before[uuid] = before
        return True

    def _wanted(self, uuid: str, mine: ConsumerAllocations) -> Wanted:
        if not mine.resources:
            self.before.pop(uuid, None)
            return Wanted(self.requests[uuid], self.owner)
        if not self.evacuated_from & mine.resources.keys():
            raise AllocationUpdateFailed(
                f"Failed to update allocations for consumer {uuid}. Error: it holds "
                "allocations that this request did not make, of the resource providers "
                f"{', '.join(sorted(mine.resources))}."
            )
        self.before[uuid] = mine
        return Wanted(doubled(mine, self.requests[uuid]), self.owner)

    def claims(self, rewrite: Rewrite) -> dict[str, Claim]:
        """Return what was granted."""
        late = self.late(rewrite)
        return {
            uuid: replace(
                late.get(uuid) or Claim(request, self.before.get(uuid)),
                generation=rewrite.held[uuid].consumer_generation,
                is_ours=not rewrite.is_found,
            )
            for uuid, request in self.requests.items()
        }

    def held(self) -> dict[str, Claim]:
        """Return what consumers hold as it is wanted, by whichever request."""
        return {
            uuid: Claim(request, self.before.get(uuid), written=generation)
            for uuid, request in self.requests.items()
            if (generation := self.seen[uuid].consumer_generation) is not None
            and self._is_reached(uuid, self.seen[uuid])
        }

    def late(self, rewrite: Rewrite) -> dict[str, Claim]:
        """Return what a write without an answer has granted, or may grant late."""
        return {
            uuid: Claim(
                self.requests[uuid],
                self.before.get(uuid),
                named=lost[0],
                written=rewrite.written[uuid] if rewrite.is_in_doubt else None,
                is_late=True,
            )
            for uuid, lost in rewrite.lost.items()
        }

    def failed(self) -> str:
        """Return what to say, in nova's words, where consumers kept changing."""
        providers = {p for r in self.requests.values() for p in r["allocations"]}
        return (
            f"Failed to update allocations for consumer {', '.join(self.requests)}. "
            "Error: another writer changed it while it was claimed for the resource "
            f"providers {', '.join(sorted(providers))}"
        )


def release(
    client: PlacementClient,
    consumer_uuid: str,
    claimed: Claim,
    *,
    rng: Rng,
    waiter: Waiter | None = None,
    global_request_id: str | None = None,
) -> bool:
    """Release a claim, if the consumer still holds it and nothing was written since.

    What it held before the claim stays.

    Returns
    -------
    bool
        Whether it was held, and is released.

    Raises
    ------
    AllocationsInDoubt
        No answer came; the same call goes on from there.
    AllocationUpdateFailed
        Other writers kept changing the consumer or its providers.
    PlacementError
        Placement could not do its part.
    """
    plan = _ReleasePlan(consumer_uuid, claimed)
    rewrite = Rewrite(
        client,
        [consumer_uuid],
        plan,
        waiter=waiter or SystemWaiter(),
        rng=rng,
        global_request_id=global_request_id,
        rests=False,
    )
    answer = rewrite.run().answer
    if not answer.is_done and not answer.is_concurrent_update:
        # Its provider has shrunk: what is held cannot be written again as it is.
        plan.may_bump = False
        rewrite.run()
    rewrite.must_be_done(f"Consumer {consumer_uuid} was not released")
    return plan.was_held


@dataclass(slots=True)
class _ReleasePlan:
    """Raise the generation to an even one, then write what is to stay."""

    uuid: str
    claimed: Claim
    was_held: bool = False
    may_bump: bool = True
    #: The highest generation that was seen: one below it is of a new claim, as the
    #: consumer was forgotten since then.
    seen: int = 0

    def __call__(self, held: Held) -> dict[str, Wanted]:
        mine = held[self.uuid]
        generation = mine.consumer_generation
        if generation is None or not mine.are(self.claimed.whole):
            return {}
        if generation < self.seen:
            return {}
        self.seen = generation
        if not self.claimed.is_newest(generation):
            self.was_held = False
            return {}  # another request has taken it over
        self.was_held = True
        if generation % 2 == 0 or not self.may_bump:
            return {self.uuid: Wanted(self.claimed.rest, mine)}
        return {self.uuid: Wanted.same(mine)}
