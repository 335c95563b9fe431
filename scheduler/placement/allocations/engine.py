# SPDX-License-Identifier: Apache-2.0
"""The engine that changes consumers' allocations: the only loop that writes them.

    read ─▶ plan ─▶ write ──┬─▶ done ─────▶ final, or written once more (see below)
     ▲                      ├─▶ refused ──▶ late copies are fenced off, then reported
     │                      ├─▶ provider changed: the same write again
     └──── in doubt ◀───────┴─▶ consumer changed, or no answer

The rules:

- A write is *in doubt* once Placement says that a consumer changed (a proxy may have
  sent ours twice) or does not answer. It stays in doubt until the consumers are read.
- An unanswered write may arrive late. Sending the same write again is harmless: both
  name the same generations, so at most one succeeds. Nothing else is written before the
  generation that it names is used up.
- Placement deletes a consumer that is emptied, and its generations restart, so a
  generation does not say who wrote. Therefore what is in use is *final* at an odd
  generation, and a release is only ever sent at an even one: a late release does not
  match what is in use. The write before it, which makes the generation even, writes the
  claim again: if it gets no answer, it is watched for like an unanswered claim.
- A claim rewrites what it finds already claimed, so that the request that claimed it
  cannot release it any more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self

from ...errors import AllocationUpdateFailed, PlacementError, PlacementRejected
from ...waiting import Rng, Waiter
from ..adapter import AnswerLost, Verb
from ..answers import ConsumerAllocations, DesiredAllocations, WriteAnswer
from ..client import PlacementClient
from .limits import (
    FIRST_PAUSE_AFTER_LOSS_S,
    FIRST_PAUSE_S,
    MAX_FENCES,
    MAX_PAUSE_S,
    MAX_WRITES,
)

#: A GET does not show a consumer that exists and holds nothing; the error text of a
#: refused write does. The generation of such a consumer is 0: Placement removes a
#: consumer once it is emptied.
_EXISTS_EMPTY = "expected 0 but got"

#: {provider UUID: {resource class: amount}}.
Resources = Mapping[str, Mapping[str, int]]
#: The allocations by consumer UUID.
AllocationsByConsumer = Mapping[str, ConsumerAllocations]

NOTHING = ConsumerAllocations({})


#: Returns the allocations to write, given those held; empty where the goal is reached.
#: Raises AllocationUpdateFailed where the goal cannot be reached.
Plan = Callable[[AllocationsByConsumer], Mapping[str, DesiredAllocations]]
#: Called before a write, with the generation that the write names for each consumer,
#: and with the allocations held.
BeforeWrite = Callable[[Mapping[str, int | None], AllocationsByConsumer], None]


class AllocationsInDoubt(AnswerLost):
    """Raised when the outcome of a write is unknown.

    Attributes
    ----------
    unresolved : mapping
        The parts of a claim in doubt that consumers may hold; see `Claim`.
    """

    unresolved: Mapping[str, Any] = MappingProxyType({})


@dataclass(slots=True)
class Rewrite:
    """One change of consumers' allocations, all or none; `run` executes it.

    Parameters
    ----------
    plan : callable
        Returns the allocations to write, given those held.
    held : mapping
        The consumers' allocations if `is_known`, as for a new instance, which holds
        nothing. Otherwise they are read first.
    takes_over : bool
        Whether to rewrite allocations that are already as desired.
    ends_final : bool
        Whether what is held must be final in the end; otherwise `plan` is called again
        after each write.
    continues_in_doubt : bool
        Whether to go on after a write without an answer; otherwise AllocationsInDoubt
        is raised, so that the caller can check first whether it may.
    before_write : callable, optional
        Called before each write.
    final_above : mapping
        Generations that in-flight writes of earlier requests name, by consumer: what is
        written is final only at a higher one.
    """

    client: PlacementClient
    uuids: Collection[str]
    plan: Plan
    waiter: Waiter
    rng: Rng
    global_request_id: str | None = None
    held: AllocationsByConsumer = field(default_factory=dict)
    is_known: bool = False
    takes_over: bool = False
    ends_final: bool = True
    continues_in_doubt: bool = True
    before_write: BeforeWrite | None = None
    final_above: Mapping[str, int] = field(default_factory=dict)
    #: The allocations as they were last read.
    read: AllocationsByConsumer = field(init=False, default_factory=dict)
    #: Consumers that exist and hold nothing.
    hidden: set[str] = field(init=False, default_factory=set)
    #: The last write, and the generations that it named.
    wanted: Mapping[str, DesiredAllocations] = field(init=False, default_factory=dict)
    generations: dict[str, int | None] = field(init=False, default_factory=dict)
    #: The highest generation that a write can have given each consumer.
    max_generations: dict[str, int] = field(init=False, default_factory=dict)
    #: Generations that unanswered writes name, the first one first: such a write may
    #: succeed late, if the consumer is ever at that generation again.
    unanswered: dict[str, list[int | None]] = field(init=False, default_factory=dict)
    #: How often a write was sent; 0: nothing had to be done.
    n_writes: int = field(init=False, default=0)
    #: How many writes succeeded since another writer was seen.
    n_done: int = field(init=False, default=0)
    #: Whether Placement has confirmed a write, whatever happened since.
    was_done: bool = field(init=False, default=False)
    #: The lowest generation at which what is written is final, by consumer, once a
    #: write that Placement did not confirm may have been another request's.
    final_from: dict[str, int] = field(init=False, default_factory=dict)
    is_in_doubt: bool = field(init=False, default=False)
    is_reached: bool = field(init=False, default=False)
    #: Whether another request may have reached the goal: it was reached by a write that
    #: Placement did not confirm to us.
    is_found: bool = field(init=False, default=False)
    #: Placement's last answer; 200 where the goal was reached already.
    answer: WriteAnswer = field(init=False, default=WriteAnswer(503))
    error: PlacementError | None = field(init=False, default=None)

    def run(self) -> Self:
        """Do what `plan` returns, or change nothing; `answer` has the outcome.

        Raises
        ------
        AllocationsInDoubt
            A write was sent, and its outcome is unknown.
        AllocationUpdateFailed
            `plan` cannot reach its goal.
        PlacementError
            Placement could not be used; nothing was changed.
        """
        for number in range(MAX_WRITES + 1):
            if number == MAX_WRITES and self.is_known:
                break  # the last read is for writes in doubt only
            if number:
                self._pause(number)
            try:
                answer = self._attempt(may_write=number < MAX_WRITES)
            except AnswerLost as e:
                self.error = e
                if e.is_in_flight:
                    self._note_unanswered()
                self._mark_in_doubt()
                if e.is_in_flight and not self.continues_in_doubt:
                    break
                continue
            except PlacementError as e:
                is_held = self.takes_over and self.is_reached
                is_unfinished = self.is_in_doubt or self.unanswered or is_held
                if isinstance(e, AllocationUpdateFailed) or not is_unfinished:
                    raise
                self.error = e
                continue
            if answer is None:
                break
            self.answer, self.error = answer, None
            if not answer.is_concurrent_update:
                break
        is_done = self.answer.is_done
        # A claim may be held, and not be final.
        is_held = self.takes_over and self.is_reached
        if self.is_in_doubt or (is_held and not is_done):
            raise self._in_doubt() from self.error
        if self.unanswered and not is_done:
            self._end_unanswered()
        if failure := self._failure:
            raise failure
        return self

    def _end_unanswered(self) -> None:
        """Have Placement refuse late writes, or raise that they have to be watched for.

        Raises
        ------
        AllocationsInDoubt
        """
        if not self.ends_final:  # a release: it can be repeated
            raise self._in_doubt() from self.error
        self._fence()
        # A late write can claim once a user has deleted the consumer that refuses it.
        if self.takes_over and self._failure:
            raise self._in_doubt() from self.error

    @property
    def _failure(self) -> PlacementError | None:
        """The last error, unless a write was accepted since."""
        return None if self.answer.is_done else self.error

    def raise_unless_done(self, what: str) -> None:
        """Raise unless Placement accepted the change.

        Raises
        ------
        AllocationUpdateFailed
            Other writers kept changing consumers or providers until the retry limit.
        PlacementRejected
            Placement cannot do it, for example because a provider is gone.
        """
        if self.answer.is_done:
            return
        if self.answer.is_concurrent_update:
            raise AllocationUpdateFailed(
                f"{what}: gave up after {self.n_writes} tries, others kept changing "
                f"the same consumers or providers: {self.answer.detail}"
            )
        raise PlacementRejected(f"{what}: {self.answer.status} {self.answer.detail}")

    def _attempt(self, *, may_write: bool) -> WriteAnswer | None:
        """Read if needed, plan, and write until what the consumers hold is final.

        None: the goal is not reached, and no more writes are allowed.
        """
        if not self.is_known:
            self._read_in_doubt()
        self.wanted = self._planned()
        self.is_in_doubt = False
        if self.wanted and not may_write:
            return None
        if (
            self.wanted and self.hidden and self.takes_over and len(self.uuids) > 1
            and not any(consumer.resources for consumer in self.held.values())
        ):  # fmt: skip
            return WriteAnswer(409, detail="the generation of one of them is hidden")

        is_reached = self.is_reached = not self.wanted
        if is_reached and not self.n_done:
            self.is_found = True
        if is_reached and self.ends_final:
            self.wanted = self._not_final()

        while self.wanted:
            try:
                answer = self._write()
            except PlacementError:
                if self.takes_over or not is_reached:
                    raise
                break  # a conductor's change is complete without the rewrite
            if answer.is_done:
                self._note_done()
                is_reached = self.is_reached = self.ends_final
                self.wanted = self._not_final() if is_reached else self._planned()
                continue
            is_busy = answer.is_concurrent_update and not answer.is_consumer_conflict
            is_conductors = is_reached and not self.takes_over
            if is_busy and is_conductors and self.n_writes < MAX_WRITES:
                self._pause(self.n_writes)
                continue  # a late release names an even generation, and could match it
            is_written = self.n_done and not answer.is_concurrent_update
            if is_conductors or (is_reached and is_written):
                # A provider has shrunk, so what is held can stay but not be rewritten.
                # Or another writer continued from what was written here. What another
                # request has claimed is not answered: that request could release it.
                break
            if answer.is_consumer_conflict:
                self._guess_hidden(exists_empty=_EXISTS_EMPTY in answer.detail)
                self._mark_in_doubt()
            return answer
        return WriteAnswer(200)

    def _guess_hidden(self, *, exists_empty: bool) -> None:
        """Update `hidden` after a conflict, which does not say whose it was.

        Placement checks consumers in the order of the write. Those that are to hold
        nothing are the first ones, and are guessed first.
        """
        to_be_empty = {
            uuid
            for uuid, wanted in self.wanted.items()
            if not wanted.request["allocations"]
            and self.held[uuid].consumer_generation is None
        }
        if not exists_empty:
            self.hidden = set(self.wanted) - self.hidden if self.hidden else set()
        elif to_be_empty and not self.hidden:
            self.hidden = to_be_empty
        else:
            self.hidden = set(self.wanted)

    def _has_landed(self) -> bool:
        """Return whether the last write succeeded without Placement's confirmation.

        A write that named no generation does not count: allocations at generation 1 may
        also be another request's.
        """
        return bool(self.wanted) and all(
            self.generations[uuid] is not None
            and self.read[uuid].matches(wanted.request)
            and self.read[uuid].consumer_generation == self.max_generations[uuid]
            for uuid, wanted in self.wanted.items()
        )

    def _read_in_doubt(self) -> None:
        """Read, and count the last write if it succeeded without confirmation.

        Of a claim, another request for the same instance may have sent the same write,
        and may have been answered: the claim is not ours then, and is raised above the
        generation at which that request can release it.
        """
        confirmed = self.held
        self._read()
        if self.takes_over and any(
            held.consumer_generation != confirmed[uuid].consumer_generation
            for uuid, held in self.held.items()
            if uuid in confirmed
        ):
            self.n_done = 0
        if not self._has_landed():
            return
        self.n_done += 1
        if self.takes_over:
            self.is_found = True
            for uuid in self.wanted:
                self.final_from.setdefault(uuid, self.max_generations[uuid] + 1)

    def _planned(self) -> Mapping[str, DesiredAllocations]:
        """Return the allocations to write; if `plan` fails, read and plan once more."""
        try:
            return self.plan(self.held)
        except AllocationUpdateFailed:
            # Two reads are no snapshot: what moved from one consumer to another between
            # them is seen twice, or not at all.
            self._read()
            return self.plan(self.held)

    def _not_final(self) -> Mapping[str, DesiredAllocations]:
        """Return the allocations to rewrite because they are not final yet."""
        if not self.n_done and not self.takes_over:
            return {}
        wanted = {}
        for uuid, held in self.held.items():
            lowest_final = max(
                self.final_above.get(uuid, 0) + 1, self.final_from.get(uuid, 0)
            )
            if self.takes_over and uuid in self.unanswered:
                # A late write must be distinguishable after this consumer is deleted.
                lowest_final = max(lowest_final, (self.unanswered[uuid][0] or 0) + 2)
            generation = held.consumer_generation or 0
            is_final = (
                self.n_done and generation % 2 == 1 and generation >= lowest_final
            )
            if held.resources and not is_final:
                wanted[uuid] = DesiredAllocations.unchanged(held, self._type_of(uuid))
        return wanted

    def _type_of(self, uuid: str) -> str | None:
        return self.wanted[uuid].consumer_type if uuid in self.wanted else None

    def _read(self) -> None:
        request_id = self.global_request_id
        self.held = self.read = {
            uuid: self.client.allocations(uuid, global_request_id=request_id)
            for uuid in self.uuids
        }
        self.is_known = True

    def _write(self) -> WriteAnswer:
        """Send the desired allocations: of one consumer, or of several in one POST."""
        self.n_writes += 1
        self.generations = {}
        bodies: dict[str, Any] = {}
        for uuid, wanted in self.wanted.items():
            generation = self.held[uuid].consumer_generation
            if generation is None and uuid in self.hidden:
                generation = 0
            self.generations[uuid] = generation
            self.max_generations[uuid] = (generation or 0) + 1
            bodies[uuid] = wanted.body(generation)
        if self.before_write is not None:
            self.before_write(self.generations, self.held)
        verb, url, body = Verb.POST, "/allocations", bodies
        if len(bodies) == 1:
            [(uuid, body)] = bodies.items()
            verb, url = Verb.PUT, f"/allocations/{uuid}"
        return self.client.write(
            verb, url, body, global_request_id=self.global_request_id
        )

    def _put(
        self, uuid: str, wanted: DesiredAllocations, generation: int | None
    ) -> WriteAnswer:
        return self.client.put_allocations(
            uuid, wanted.body(generation), global_request_id=self.global_request_id
        )

    def _mark_in_doubt(self) -> None:
        self.is_known = self.is_reached = False
        self.is_in_doubt = True

    def _note_unanswered(self) -> None:
        for uuid, generation in self.generations.items():
            self.unanswered.setdefault(uuid, []).append(generation)

    def _note_done(self) -> None:
        """Update `held` after a successful write."""
        self.n_done += 1
        self.was_done = True
        self.hidden.clear()
        held = dict(self.held)
        for uuid, wanted in self.wanted.items():
            parts = wanted.request["allocations"].items()
            resources = {provider: dict(part["resources"]) for provider, part in parts}
            generation = self.max_generations[uuid]
            held[uuid] = NOTHING
            if resources:
                held[uuid] = replace(
                    wanted.owner, resources=resources, consumer_generation=generation
                )
        self.held = held

    def _fence(self) -> None:
        """Use up the generations that late writes name, for one of the consumers.

        Placement then refuses such a write for all of its consumers.
        """
        try:
            for _ in range(MAX_FENCES):
                self._read()
                if not self._planned():  # the write has arrived
                    self.answer = self._attempt(may_write=True) or self.answer
                    if self.answer.is_done:
                        return
                if self._is_fenced():
                    return
            raise self._in_doubt()
        except AllocationUpdateFailed:
            pass  # another writer has used up the generations
        except PlacementError as e:
            raise self._in_doubt() from e

    def _is_fenced(self) -> bool:
        """Use up a generation if necessary; return False to read and try again."""
        # A write without allocations does not change an empty consumer that exists.
        uuid = max(self.unanswered, key=lambda u: bool(self.read[u].resources))
        held, unanswered = self.held[uuid], self.unanswered[uuid]
        generation = held.consumer_generation
        if generation is None and any(
            named_generation is not None for named_generation in unanswered
        ):
            return False
        if generation not in unanswered:
            return True
        if generation is None and self.takes_over:
            # nova may give the instance its allocations back once the request fails,
            # and could not if the consumer existed. `Orphans` knows where it is.
            return True
        owner = held if held.resources else self.wanted[uuid].owner
        unchanged_allocations = DesiredAllocations(
            held.request, owner, self._type_of(uuid)
        )
        answer = self._put(uuid, unchanged_allocations, generation)
        if answer.is_consumer_conflict and _EXISTS_EMPTY not in answer.detail:
            return False  # the late write may have changed the consumer
        next_generation = (generation or 0) + 1
        if answer.is_done and held.resources and next_generation % 2 == 0:
            answer = self._put_final(uuid, unchanged_allocations, next_generation)
        return answer.is_done or answer.is_consumer_conflict

    def _put_final(
        self, uuid: str, same: DesiredAllocations, generation: int
    ) -> WriteAnswer:
        """Write what is in use once more, so that it is final at an odd generation.

        After a lost answer, a consumer conflict shows that the write has arrived.
        """
        for number in range(1, MAX_WRITES):
            with contextlib.suppress(PlacementError):
                answer = self._put(uuid, same, generation)
                if not answer.is_concurrent_update or answer.is_consumer_conflict:
                    return answer
            self._pause(number)
        return self._put(uuid, same, generation)

    def _in_doubt(self) -> AllocationsInDoubt:
        self.is_in_doubt = True
        self._note_unanswered()
        refusal = self.answer.detail and f"Placement refused it: {self.answer.detail}."
        return AllocationsInDoubt(
            f"{self.error or refusal or 'A write got no answer.'} Its outcome is "
            f"unknown for the consumers {', '.join(self.uuids)}. Repeat the call once "
            "Placement answers: completed changes are recognized.",
            is_in_flight=True,
        )

    def _pause(self, number: int) -> None:
        first_s = FIRST_PAUSE_AFTER_LOSS_S if self.error else FIRST_PAUSE_S
        longest_s = min(first_s * 2 ** (number - 1), MAX_PAUSE_S)
        self.waiter.sleep(float(self.rng.uniform(0, longest_s)))
