# SPDX-License-Identifier: Apache-2.0
"""Change what consumers hold by what they hold: all of them at once, or none.

    read each consumer ─▶ plan ─▶ one POST with the generations read ─▶ done
            ▲                             │
            └── somebody changed one, or the answer was lost ◀──┘

The same write sent twice is done once at most: both name the same generations. So a
plan that sees its aim reached says so, and everything else is tried again. (Placement
forgets a consumer that was cleared, and its generations begin anew: a clearing whose
answer was lost must not be followed at once by a claim for the same consumer.)
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tenacity

from ..errors import AllocationUpdateFailed, PlacementError, PlacementRejected
from ..placement.candidates import AllocationRequest
from ..placement.claims import MAX_FIRST_LOOK_WAIT_S, ClaimResult
from ..placement.client import AnswerLost, ConsumerAllocations, WriteAnswer
from .client import ConductorClient, ConsumerType

#: How often consumers are read and written while somebody else changes them.
MAX_ATTEMPTS = 5

# GET does not tell the generation of a consumer that exists and holds nothing.
_HIDDEN_GENERATION = re.compile(r"expected (\d+) but got None")


#: {provider UUID: {resource class: amount}}.
Resources = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one consumer is to hold.

    Attributes
    ----------
    request : mapping
        An allocation request.
    owner : ConsumerAllocations
        Its project and user are the consumer's.
    consumer_type : ConsumerType
    """

    request: AllocationRequest
    owner: ConsumerAllocations
    consumer_type: ConsumerType

    @classmethod
    def same(cls, held: ConsumerAllocations, consumer_type: ConsumerType) -> Wanted:
        """What a consumer holds, for itself or for another."""
        return cls(request_for(held.resources), held, consumer_type)

    @classmethod
    def nothing(cls, held: ConsumerAllocations, consumer_type: ConsumerType) -> Wanted:
        """Nothing, instead of what it holds."""
        return cls({"allocations": {}}, held, consumer_type)


def request_for(resources: Resources) -> AllocationRequest:
    """Return the allocation request for some resources."""
    return {"allocations": {u: {"resources": dict(r)} for u, r in resources.items()}}


#: Consumer UUID to what it holds.
Held = Mapping[str, ConsumerAllocations]
#: What is to be written, given what is held; empty where the aim is reached. It raises
#: AllocationUpdateFailed where the aim cannot be reached.
Plan = Callable[[Held], Mapping[str, Wanted]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a plan.

    Attributes
    ----------
    answer : WriteAnswer
        Placement's last; 200 where it was found done.
    held : mapping
        What was read last: before the write, or after one whose answer was lost.
    n_writes : int
        How often it was sent; 0: there was nothing to be done.
    """

    answer: WriteAnswer
    held: Held
    n_writes: int

    def must_be_done(self, what: str) -> None:
        """Raise unless it was done.

        Raises
        ------
        AllocationUpdateFailed
            Somebody else changed consumers or providers until the bound.
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

    def claim_result(self, what: str) -> ClaimResult:
        """Tell what became of a claim, where a refusal is an answer.

        Raises
        ------
        AllocationUpdateFailed
            Somebody else changed the consumers until the bound.
        """
        if self.answer.is_consumer_conflict:
            self.must_be_done(what)
        if self.answer.is_concurrent_update:
            return ClaimResult.CONTENDED
        done = self.answer.is_done
        return ClaimResult.CLAIMED if done else ClaimResult.REFUSED


def rewrite(
    client: ConductorClient,
    consumer_uuids: Iterable[str],
    plan: Plan,
    *,
    global_request_id: str | None = None,
) -> Outcome:
    """Do what `plan` says of some consumers.

    Raises
    ------
    AnswerLost
        A write was sent and Placement did not say what became of it; the same call
        finds out, once it answers again.
    PlacementError
        Placement could not do its part, or `plan` raised it; nothing was changed.
    """
    job = _Rewrite(client, tuple(consumer_uuids), plan, global_request_id)
    return job.run()


@dataclass(slots=True)
class _Rewrite:
    client: ConductorClient
    uuids: tuple[str, ...]
    plan: Plan
    global_request_id: str | None
    n_writes: int = 0
    held: Held = field(default_factory=dict)
    wanted: Mapping[str, Wanted] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    lost: AnswerLost | None = None

    def run(self) -> Outcome:
        tries = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(MAX_ATTEMPTS),
            wait=self._wait,
            retry=(
                tenacity.retry_if_result(_is_to_be_tried_again)
                | tenacity.retry_if_exception_type(AnswerLost)
            ),
            retry_error_callback=_last_result,
            sleep=self.client.sleep,
        )
        try:
            answer: WriteAnswer = tries(self._attempt)
        except AnswerLost as e:
            raise self._in_doubt(e) from e
        if self.lost and not answer.is_done and not self._fence():
            raise self._in_doubt(self.lost) from self.lost
        return Outcome(answer, self.held, self.n_writes)

    def _attempt(self) -> WriteAnswer:
        try:
            self._look()
            return self._write() if self.wanted else WriteAnswer(200)
        except AnswerLost as e:
            self.lost = e if e.is_in_flight else self.lost
            raise
        except AllocationUpdateFailed:
            raise
        except PlacementError as e:
            if self.lost is None:
                raise
            raise self.lost from e

    def _look(self) -> None:
        """Read the consumers, and plan."""
        self.held = self._read()
        try:
            self.wanted = self.plan(self.held)
        except AllocationUpdateFailed:
            # Two reads are no snapshot: what was moved from one consumer to the other
            # between them is seen twice, or not at all.
            self.held = self._read()
            self.wanted = self.plan(self.held)

    def _read(self) -> dict[str, ConsumerAllocations]:
        to = self.global_request_id
        return {
            uuid: self.client.allocations(uuid, global_request_id=to)
            for uuid in self.uuids
        }

    def _write(self) -> WriteAnswer:
        self.n_writes += 1
        answer = self._post(self.wanted)
        if answer.is_consumer_conflict:
            self._learn(answer)
        return answer

    def _post(self, wanted: Mapping[str, Wanted]) -> WriteAnswer:
        return self.client.post_allocations(
            {uuid: self._body(uuid, w) for uuid, w in wanted.items()},
            global_request_id=self.global_request_id,
        )

    def _body(self, uuid: str, wanted: Wanted) -> dict[str, Any]:
        generation = self.held[uuid].consumer_generation
        if generation is None:
            generation = self.generations.get(uuid)
        return {
            **wanted.request,
            "project_id": wanted.owner.project_id,
            "user_id": wanted.owner.user_id,
            "consumer_type": wanted.consumer_type,
            "consumer_generation": generation,
        }

    def _learn(self, answer: WriteAnswer) -> None:
        """Note the generation of a consumer that holds nothing and yet exists."""
        self.generations.clear()
        if hidden := _HIDDEN_GENERATION.search(answer.detail):
            empty = [u for u in self.wanted if not self.held[u].resources]
            self.generations.update(dict.fromkeys(empty, int(hidden[1])))

    def _fence(self) -> bool:
        """Use up a generation that a write on its way names, so that it must fail.

        One consumer suffices: a write is atomic. It is one that holds something, where
        there is one, since writing nothing to one that holds nothing only makes it
        known.
        """
        uuid = max(self.wanted, key=lambda u: bool(self.held[u].resources))
        request = request_for(self.held[uuid].resources)
        same = dataclasses.replace(self.wanted[uuid], request=request)
        try:
            return self._post({uuid: same}).is_done
        except PlacementError:
            return False

    def _in_doubt(self, lost: AnswerLost) -> AnswerLost:
        if self.lost is None:
            return lost  # Placement said that it failed
        return AnswerLost(
            f"{lost} It could not be found out whether it was done to the consumers "
            f"{', '.join(self.uuids)}. Repeat it once Placement answers: what is done "
            "already is recognized.",
            is_in_flight=True,
        )

    def _wait(self, state: tenacity.RetryCallState) -> float:
        most = MAX_FIRST_LOOK_WAIT_S * 2 ** (state.attempt_number - 1)
        return float(self.client.rng.uniform(0, most))


def _is_to_be_tried_again(answer: WriteAnswer) -> bool:
    return answer.is_concurrent_update


def _last_result(state: tenacity.RetryCallState) -> Any:  # noqa: ANN401 - tenacity's type
    return state.outcome.result() if state.outcome else None
