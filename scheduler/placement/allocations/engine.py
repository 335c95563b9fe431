# SPDX-License-Identifier: Apache-2.0
"""Change what consumers hold: the one loop that writes allocations.

    read ─▶ plan ─▶ write ──┬─▶ done ─────▶ at rest, or once more (see below)
     ▲                      ├─▶ refused ──▶ late copies are fenced off, then reported
     │                      ├─▶ provider changed: the same write again
     └──── in doubt ◀───────┴─▶ consumer changed, or no answer

The rules:

- A write is *in doubt* once Placement says that a consumer changed (a proxy may have
  sent ours twice) or no answer comes. It stays so until the consumers were read.
- A write without an answer may arrive late. The same write sent again is harmless, as
  both name the same generations and one at most is done. Nothing else is written before
  the generation that it names is used up.
- A consumer that is emptied is forgotten, and its generations begin anew, so a
  generation does not say who wrote. Therefore what is in use *rests* at an odd
  generation, and a release is only ever sent at an even one: a release that comes late
  does not match what is in use.
- What a claim finds instead of making it, it writes again, so that the request that
  made it cannot release it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self

from ...errors import AllocationUpdateFailed, PlacementError, PlacementRejected
from ...waiting import Rng, Waiter
from ..candidates import AllocationRequest
from ..client import AnswerLost, ConsumerAllocations, PlacementClient, WriteAnswer
from .limits import (
    FIRST_PAUSE_AFTER_LOSS_S,
    FIRST_PAUSE_S,
    MAX_PAUSE_S,
    MAX_WRITES,
)

#: GET does not show that a consumer exists which holds nothing; the refusal of a write
#: does. Its generation is 0, as Placement removes one that is emptied.
_EXISTS_EMPTY = "expected 0 but got"

#: {provider UUID: {resource class: amount}}.
Resources = Mapping[str, Mapping[str, int]]
#: Consumer UUID to what it holds.
Held = Mapping[str, ConsumerAllocations]

NOTHING = ConsumerAllocations({})


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one consumer is to hold.

    Attributes
    ----------
    request : mapping
        An allocation request.
    owner : ConsumerAllocations
        Its project and user are the consumer's.
    consumer_type : str, optional
        For clients that speak 1.38; None: the body does not name it.
    """

    request: AllocationRequest
    owner: ConsumerAllocations
    consumer_type: str | None = None

    @classmethod
    def same(
        cls, held: ConsumerAllocations, consumer_type: str | None = None
    ) -> Wanted:
        """Return what a consumer holds, for itself or for another."""
        return cls(held.request, held, consumer_type)

    @classmethod
    def nothing(
        cls, held: ConsumerAllocations, consumer_type: str | None = None
    ) -> Wanted:
        """Return nothing, instead of what a consumer holds."""
        return cls({"allocations": {}}, held, consumer_type)

    def body(self, generation: int | None) -> dict[str, Any]:
        """Return what Placement is sent for one consumer."""
        body = {
            **self.request,
            "project_id": self.owner.project_id,
            "user_id": self.owner.user_id,
            "consumer_generation": generation,
        }
        typed = self.consumer_type
        return body if typed is None else {**body, "consumer_type": typed}


#: What is to be written, given what is held; empty where the aim is reached. It raises
#: AllocationUpdateFailed where the aim cannot be reached.
Plan = Callable[[Held], Mapping[str, Wanted]]
#: Called before a write with the generation that it names for each consumer.
Sending = Callable[[Mapping[str, int | None], Held], None]


class AllocationsInDoubt(AnswerLost):
    """Raised when Placement does not say what became of a write.

    Attributes
    ----------
    left : mapping
        What consumers may hold of a claim that is in doubt; see `Claim`.
    """

    left: Mapping[str, Any] = MappingProxyType({})


@dataclass(slots=True)
class Rewrite:
    """One change of what some consumers hold, all of them or none; `run` makes it.

    Parameters
    ----------
    plan : callable
        Says what is to be written, given what is held.
    assumed : mapping, optional
        What to plan by at first, instead of reading it: a new instance holds nothing.
    takes_over : bool
        Whether what is found as it is wanted is written again.
    rests : bool
        Whether what is written comes to rest at an odd generation; else `plan` is asked
        again after each write.
    sending : callable, optional
        Called before each write.
    """

    client: PlacementClient
    uuids: Collection[str]
    plan: Plan
    waiter: Waiter
    rng: Rng
    global_request_id: str | None = None
    assumed: Held | None = None
    takes_over: bool = False
    rests: bool = True
    sending: Sending | None = None
    #: What the consumers hold, where `is_known`; else it has to be read first.
    held: Held = field(init=False)
    is_known: bool = field(init=False)
    #: What they held when they were read last.
    read: Held = field(init=False, default_factory=dict)
    #: Consumers that exist and hold nothing.
    hidden: set[str] = field(init=False, default_factory=set)
    #: The last write, and the generations that it named.
    wanted: Mapping[str, Wanted] = field(init=False, default_factory=dict)
    named: Mapping[str, int | None] = field(init=False, default_factory=dict)
    #: The highest generation that a write can have given each consumer.
    written: dict[str, int] = field(init=False, default_factory=dict)
    #: Generations that writes without an answer name, the first one first: they may
    #: arrive late, if the consumer is ever at that generation again.
    lost: dict[str, list[int | None]] = field(init=False, default_factory=dict)
    #: How often a write was sent; 0: there was nothing to do.
    n_writes: int = field(init=False, default=0)
    n_done: int = field(init=False, default=0)
    is_in_doubt: bool = field(init=False, default=False)
    is_reached: bool = field(init=False, default=False)
    #: Whether Placement confirmed none of our writes before the aim was seen reached:
    #: another request may have reached it.
    is_found: bool = field(init=False, default=False)
    #: Placement's last answer; 200 where the aim was found reached.
    answer: WriteAnswer = field(init=False, default_factory=lambda: WriteAnswer(503))
    error: PlacementError | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.held, self.is_known = self.assumed or {}, self.assumed is not None

    def run(self) -> Self:
        """Do what `plan` says, or leave everything as it is, and say so in `answer`.

        Raises
        ------
        AllocationsInDoubt
            A write was sent, and Placement did not say what became of it.
        AllocationUpdateFailed
            As `plan` raises it.
        PlacementError
            Placement could not do its part; nothing was changed.
        """
        for number in range(MAX_WRITES + 1):
            if number == MAX_WRITES and self.is_known:
                break  # the last look is for what is in doubt
            if number:
                self._pause(number)
            if self._try(may_write=number < MAX_WRITES):
                break
        if self.is_in_doubt or (self.is_held and not self.answer.is_done):
            raise self._in_doubt() from self.error
        if self.lost and not self.answer.is_done:
            if not self.rests:  # a release: one that comes late harms nothing
                raise self._in_doubt() from self.error
            self._fence()
        if self.error is not None and not self.answer.is_done:
            raise self.error
        return self

    def must_be_done(self, what: str) -> None:
        """Raise unless it was done.

        Raises
        ------
        AllocationUpdateFailed
            Other writers changed consumers or providers until the bound.
        PlacementRejected
            Placement cannot do it, such as where a provider is gone.
        """
        if self.answer.is_done:
            return
        if self.answer.is_concurrent_update:
            raise AllocationUpdateFailed(
                f"{what}: given up after {self.n_writes} tries, others kept changing "
                f"the same consumers or providers: {self.answer.detail}"
            )
        raise PlacementRejected(f"{what}: {self.answer.status} {self.answer.detail}")

    @property
    def is_held(self) -> bool:
        """Whether a claim is held as it is wanted, though it may not be at rest yet."""
        return self.takes_over and self.is_reached

    def _try(self, *, may_write: bool) -> bool:
        """Return whether that is all that can be done."""
        try:
            answer = self._attempt(may_write=may_write)
        except AllocationUpdateFailed:
            raise
        except AnswerLost as e:
            self._note_loss(e)
            return False
        except PlacementError as e:
            if not (self.is_in_doubt or self.lost or self.is_held):
                raise
            self.error = e
            return False
        if answer is None:
            return True
        self.answer, self.error = answer, None
        return not answer.is_concurrent_update

    def _attempt(self, *, may_write: bool) -> WriteAnswer | None:
        """Read where that is needed, plan, and write until consumers are at rest.

        None: the aim is not reached, and may not be written any more.
        """
        if not self.is_known:
            self._read()
            self.is_in_doubt = False
            self.n_done += self._has_landed()
        self.wanted = self._planned()
        if self.wanted and not may_write:
            return None
        if self.wanted and self.is_hidden_among_several:
            return WriteAnswer(409, detail="the generation of one of them is hidden")
        is_reached = self.is_reached = not self.wanted
        self.is_found |= is_reached and not self.n_done
        if is_reached and self.rests:
            self.wanted = self._to_rest()
        while self.wanted:
            answer = self._write_again() if is_reached else self._write()
            if answer is None:
                return WriteAnswer(200)
            if not answer.is_done:
                return answer
            self._note_done()
            is_reached = self.is_reached = self.rests
            self.wanted = self._to_rest() if self.rests else self._planned()
        return WriteAnswer(200)

    def _has_landed(self) -> bool:
        """Return whether the last write was done, though Placement did not say so.

        What is held at generation 1 may be another request's as well.
        """
        return bool(self.wanted) and all(
            self.named[uuid] is not None
            and self.read[uuid].are(wanted.request)
            and self.read[uuid].consumer_generation == (self.named[uuid] or 0) + 1
            for uuid, wanted in self.wanted.items()
        )

    def _write_again(self) -> WriteAnswer | None:
        """Write what is as it should be; None: it stays as it is.

        A claim has to be written. A conductor's change is done all the same.
        """
        try:
            answer = self._write()
        except PlacementError:
            if self.takes_over:
                raise
            return None
        if answer.is_done or (self.takes_over and answer.is_concurrent_update):
            return answer
        # A provider has shrunk: it can only be kept. Or another writer went on from
        # what was done here.
        self.is_in_doubt = False
        return None

    @property
    def is_hidden_among_several(self) -> bool:
        """Whether one of several consumers has a generation that cannot be read."""
        is_empty = not any(mine.resources for mine in self.held.values())
        return (
            self.takes_over and len(self.uuids) > 1 and is_empty and bool(self.hidden)
        )

    def _planned(self) -> Mapping[str, Wanted]:
        try:
            return self.plan(self.held)
        except AllocationUpdateFailed:
            # Two reads are no snapshot: what was moved from one consumer to the other
            # between them is seen twice, or not at all.
            self._read()
            return self.plan(self.held)

    def _to_rest(self) -> Mapping[str, Wanted]:
        """Return what has to be written again although it is as it should be."""
        return {
            uuid: Wanted.same(held, self._type_of(uuid))
            for uuid, held in self.held.items()
            if held.resources and not self._rests(uuid, held.consumer_generation or 0)
        }

    def _rests(self, uuid: str, generation: int) -> bool:
        if not self.n_done:
            return not self.takes_over
        if self.takes_over and uuid in self.lost:
            # What comes late must be seen to be that, once this is deleted.
            return generation % 2 == 1 and generation > (self.lost[uuid][0] or 0) + 1
        return generation % 2 == 1

    def _type_of(self, uuid: str) -> str | None:
        return self.wanted[uuid].consumer_type if uuid in self.wanted else None

    def _read(self) -> None:
        to = self.global_request_id
        self.held = self.read = {
            uuid: self.client.allocations(uuid, global_request_id=to)
            for uuid in self.uuids
        }
        self.is_known = True

    def _write(self) -> WriteAnswer:
        self.n_writes += 1
        self.named = {uuid: self._generation(uuid) for uuid in self.wanted}
        self.written |= {u: (named or 0) + 1 for u, named in self.named.items()}
        if self.sending is not None:
            self.sending(self.named, self.held)
        answer = self._send(self.wanted, self.named)
        if answer.is_consumer_conflict:
            self.hidden.clear()
            if _EXISTS_EMPTY in answer.detail:
                self.hidden.update(self.wanted)
            self._doubt()
        return answer

    def _generation(self, uuid: str) -> int | None:
        generation = self.held[uuid].consumer_generation
        return 0 if generation is None and uuid in self.hidden else generation

    def _send(
        self, wanted: Mapping[str, Wanted], named: Mapping[str, int | None]
    ) -> WriteAnswer:
        bodies = {uuid: w.body(named[uuid]) for uuid, w in wanted.items()}
        to = self.global_request_id
        if len(bodies) > 1:
            return self.client.post_allocations(bodies, global_request_id=to)
        [(uuid, body)] = bodies.items()
        return self.client.put_allocations(uuid, body, global_request_id=to)

    def _doubt(self) -> None:
        self.is_known = self.is_reached = False
        self.is_in_doubt = True

    def _note_loss(self, e: AnswerLost) -> None:
        self.error = e
        if e.is_in_flight:
            self._note_in_flight()
        self._doubt()

    def _note_in_flight(self) -> None:
        for uuid, named in self.named.items():
            self.lost.setdefault(uuid, []).append(named)

    def _note_done(self) -> None:
        """Take over what was written as what is held."""
        self.n_done += 1
        self.hidden.clear()
        written = {
            uuid: _after(wanted, self.named[uuid])
            for uuid, wanted in self.wanted.items()
        }
        self.held = {**self.held, **written}

    def _fence(self) -> None:
        """Use up the generations that late writes name; one consumer suffices."""
        try:
            self._read()
            if not self._planned():  # it has arrived
                self.answer = self._attempt(may_write=True) or self.answer
                if self.answer.is_done:
                    return
            if not self._is_fenced():
                raise self._in_doubt()
        except AllocationUpdateFailed:
            pass  # another writer has used them up
        except PlacementError as e:
            raise self._in_doubt() from e

    def _is_fenced(self) -> bool:
        # Writing nothing to a consumer that is known and empty changes nothing.
        uuid = max(self.lost, key=lambda u: bool(self.read[u].resources))
        held, lost = self.held[uuid], self.lost[uuid]
        named = held.consumer_generation
        if named is None and any(each is not None for each in lost):
            return False
        if named not in lost:
            return True
        owner = held if held.resources else self.wanted[uuid].owner
        same = Wanted(held.request, owner, self._type_of(uuid))
        answer = self._send({uuid: same}, {uuid: named})
        after = (named or 0) + 1
        if answer.is_done and held.resources and after % 2 == 0:
            # What is in use rests at an odd generation.
            answer = self._send({uuid: same}, {uuid: after})
        return answer.is_done or answer.is_consumer_conflict

    def _in_doubt(self) -> AllocationsInDoubt:
        self.is_in_doubt = True
        self._note_in_flight()
        return AllocationsInDoubt(
            f"{self.error or 'A write got no answer.'} It is not known whether it was "
            f"done to the consumers {', '.join(self.uuids)}. Repeat it once Placement "
            "answers: what is done already is recognized.",
            is_in_flight=True,
        )

    def _pause(self, number: int) -> None:
        first_s = FIRST_PAUSE_AFTER_LOSS_S if self.error else FIRST_PAUSE_S
        longest_s = min(first_s * 2 ** (number - 1), MAX_PAUSE_S)
        self.waiter.sleep(float(self.rng.uniform(0, longest_s)))


def _after(wanted: Wanted, named: int | None) -> ConsumerAllocations:
    """Return what a consumer holds after a write that named a generation."""
    resources = {
        uuid: dict(part["resources"])
        for uuid, part in wanted.request["allocations"].items()
    }
    if not resources:
        return NOTHING
    generation = (named or 0) + 1
    return replace(wanted.owner, resources=resources, consumer_generation=generation)
