# SPDX-License-Identifier: Apache-2.0
"""Claim what was selected, all of it or nothing, and never leave anything behind."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Protocol

import tenacity

from ..errors import AllocationUpdateFailed, PlacementError, PlacementUnavailable
from .candidates import AllocationRequest
from .client import (
    AnswerLost,
    ConsumerAllocations,
    PlacementClient,
    WriteAnswer,
    doubled,
)

#: How often a claim is sent while providers change under it; nova 34's bound.
MAX_ATTEMPTS = 4
#: Longest wait before the second try; it doubles. nova waits up to 2 s.
MAX_FIRST_WAIT_S = 0.05
#: How often we look for the outcome of a write whose answer was lost.
MAX_LOOKS = 4
MAX_FIRST_LOOK_WAIT_S = 0.2


class ClaimResult(enum.Enum):
    """What became of a claim."""

    CLAIMED = "claimed"
    #: Capacity, inventory or provider are gone: this candidate is dead.
    REFUSED = "refused"
    #: Providers kept changing until the bound: the candidate may be good still.
    CONTENDED = "contended"


class ClaimInDoubt(PlacementUnavailable):
    """Say that consumers may hold what nobody could look at or take back.

    `consumer_uuids` are those that have to be released once Placement answers again.
    """

    def __init__(self, message: str, consumer_uuids: tuple[str, ...]) -> None:
        """Tell what happened, and to which consumers."""
        super().__init__(message)
        self.consumer_uuids = consumer_uuids


class Rng(Protocol):
    """What is asked of ``random.Random`` or ``numpy.random.Generator``."""

    def uniform(self, a: float, b: float, /) -> float:
        """Return a number between `a` and `b`."""


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """What became of a claim, and what it took.

    Attributes
    ----------
    result : ClaimResult
    n_attempts : int
        How often it was sent.
    status : int
        Last HTTP status.
    code, detail : str
        Placement's own, where it refused; else empty.
    elapsed_s : float
    before : mapping
        Consumer UUID to what it held before, where the claim was added to it
        (evacuation); `release` needs it so as not to release the source's too.
    """

    result: ClaimResult
    n_attempts: int
    status: int
    code: str
    detail: str
    elapsed_s: float
    before: Mapping[str, ConsumerAllocations] = field(default_factory=dict)


def claim(
    client: PlacementClient,
    consumer_uuid: str,
    allocation_request: AllocationRequest,
    *,
    project_id: str,
    user_id: str,
    global_request_id: str | None = None,
    evacuated_from: AbstractSet[str] = frozenset(),
    rng: Rng,
    sleep: Callable[[float], None] = time.sleep,
) -> ClaimAnswer:
    """Claim one candidate for one consumer.

    Parameters
    ----------
    evacuated_from : set of str
        Providers of the host that the instance is evacuated from: what it holds there
        is kept, and the claim is added.

    Raises
    ------
    AllocationUpdateFailed
        The consumer holds what this request did not claim.
    ClaimInDoubt
        The answer was lost and Placement could not be asked what became of it.
    PlacementError
        Placement could not do its part; nothing was left behind.
    """
    job = _Claim(
        client,
        {consumer_uuid: allocation_request},
        {"project_id": project_id, "user_id": user_id},
        global_request_id,
        evacuated_from,
        rng,
        sleep,
    )
    return job.run()


def claim_all(
    client: PlacementClient,
    allocation_requests: Mapping[str, AllocationRequest],
    *,
    project_id: str,
    user_id: str,
    global_request_id: str | None = None,
    evacuated_from: AbstractSet[str] = frozenset(),
    rng: Rng,
    sleep: Callable[[float], None] = time.sleep,
) -> ClaimAnswer:
    """Claim for several consumers in one POST: all of them or none. Else as `claim`.

    Placement does not say which one it refused.
    """
    job = _Claim(
        client,
        allocation_requests,
        {"project_id": project_id, "user_id": user_id},
        global_request_id,
        evacuated_from,
        rng,
        sleep,
        is_atomic_post=True,
    )
    return job.run()


def release(
    client: PlacementClient,
    consumer_uuids: Iterable[str],
    *,
    before: Mapping[str, ConsumerAllocations] | None = None,
    global_request_id: str | None = None,
) -> None:
    """Release what consumers hold, going on where one fails.

    Parameters
    ----------
    before : mapping, optional
        `ClaimAnswer.before`: these consumers get back what they held.

    Raises
    ------
    PlacementError
        Some could not be released; the message names each and why.
    """
    left: dict[str, PlacementError] = {}
    for uuid in consumer_uuids:
        try:
            _release(client, uuid, (before or {}).get(uuid), global_request_id)
        except PlacementError as e:
            left[uuid] = e
    if left:
        told = "; ".join(f"{uuid}: {e}" for uuid, e in left.items())
        raise PlacementError(f"Allocations were not released: {told}") from next(
            iter(left.values())
        )


def _release(
    client: PlacementClient,
    uuid: str,
    before: ConsumerAllocations | None,
    global_request_id: str | None,
) -> None:
    if before is None:
        client.delete_allocations(uuid, global_request_id=global_request_id)
        return
    now = client.allocations(uuid, global_request_id=global_request_id)
    body = _restoring(before, now.consumer_generation)
    answer = client.put_allocations(uuid, body, global_request_id=global_request_id)
    if not answer.is_done:
        raise AllocationUpdateFailed(f"what it held was not put back: {answer.detail}")


def _restoring(before: ConsumerAllocations, generation: int | None) -> dict[str, Any]:
    return {
        **doubled(before, {"allocations": {}}),
        "project_id": before.project_id,
        "user_id": before.user_id,
        "consumer_generation": generation,
    }


@dataclass(slots=True)
class _Claim:
    """One claim on its way: what is wanted, and what is known of the consumers."""

    client: PlacementClient
    wanted: Mapping[str, AllocationRequest]
    owner: Mapping[str, str]
    global_request_id: str | None
    evacuated_from: AbstractSet[str]
    rng: Rng
    sleep: Callable[[float], None]
    is_atomic_post: bool = False
    n_attempts: int = 0
    generations: dict[str, int] = field(default_factory=dict)
    before: dict[str, ConsumerAllocations] = field(default_factory=dict)

    def run(self) -> ClaimAnswer:
        started = time.monotonic()
        tries = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(MAX_ATTEMPTS),
            wait=self._wait(MAX_FIRST_WAIT_S),
            retry=(
                tenacity.retry_if_result(_is_contended)
                | tenacity.retry_if_exception(_is_known_undone)
            ),
            retry_error_callback=_last_result,
            sleep=self.sleep,
        )
        answer: WriteAnswer = tries(self._attempt)
        return ClaimAnswer(
            _result(answer),
            self.n_attempts,
            answer.status,
            answer.code,
            answer.detail,
            time.monotonic() - started,
            self.before if answer.is_done else {},
        )

    def _attempt(self) -> WriteAnswer:
        answer = self._write()
        if not answer.is_consumer_conflict:
            return answer
        if self._adapt(answer):
            return WriteAnswer(200)
        answer = self._write()
        if answer.is_consumer_conflict:
            raise self._conflict(answer)
        return answer

    def _write(self) -> WriteAnswer:
        """Send it once; where the answer is lost, find out what became of it."""
        self.n_attempts += 1
        bodies = {uuid: self._body(uuid) for uuid in self.wanted}
        try:
            return self._send(bodies)
        except AnswerLost as lost:
            return self._settle(bodies, lost)

    def _send(self, bodies: Mapping[str, Mapping[str, Any]]) -> WriteAnswer:
        to = self.global_request_id
        if self.is_atomic_post:
            return self.client.post_allocations(bodies, global_request_id=to)
        [(uuid, body)] = bodies.items()
        return self.client.put_allocations(uuid, body, global_request_id=to)

    def _body(self, uuid: str) -> dict[str, Any]:
        request: Mapping[str, Any] = self.wanted[uuid]
        if uuid in self.before:
            request = doubled(self.before[uuid], request)
        generation = self.generations.get(uuid)
        return {**request, **self.owner, "consumer_generation": generation}

    def _adapt(self, answer: WriteAnswer) -> bool:
        """Learn what the consumers hold; return whether that is the whole claim."""
        held = {uuid: self._held(uuid) for uuid in self.wanted}
        if all(held[uuid].are(self.wanted[uuid]) for uuid in self.wanted):
            return True
        for uuid, allocations in held.items():
            if allocations.resources:
                self._double(uuid, allocations)
            elif not self.is_atomic_post:
                self._take_over_empty(uuid, answer)
        if not self.generations:
            raise self._conflict(answer)
        return False

    def _double(self, uuid: str, held: ConsumerAllocations) -> None:
        if not self.evacuated_from & held.resources.keys():
            raise AllocationUpdateFailed(
                f"Consumer {uuid} holds allocations that this request did not make, "
                f"of the resource providers {', '.join(sorted(held.resources))}."
            )
        self.before.setdefault(uuid, held)
        self.generations[uuid] = held.consumer_generation or 0

    def _take_over_empty(self, uuid: str, answer: WriteAnswer) -> None:
        # GET does not tell the generation of a consumer that holds nothing; the
        # refusal does: "consumer generation conflict - expected 1 but got None".
        expected = answer.detail.partition("- expected ")[2].split(" ")[0]
        if expected.isdigit():
            self.generations[uuid] = int(expected)
        else:
            self.generations.pop(uuid, None)

    def _held(self, uuid: str) -> ConsumerAllocations:
        return self.client.allocations(uuid, global_request_id=self.global_request_id)

    def _conflict(self, answer: WriteAnswer) -> AllocationUpdateFailed:
        providers = {p for r in self.wanted.values() for p in r["allocations"]}
        return AllocationUpdateFailed(
            f"Somebody else changed one of the consumers {', '.join(self.wanted)} "
            "while it was claimed for the resource providers "
            f"{', '.join(sorted(providers))}: {answer.detail}"
        )

    def _settle(
        self, bodies: Mapping[str, Mapping[str, Any]], lost: AnswerLost
    ) -> WriteAnswer:
        """Return "done" where the write arrived; else make sure it never will.

        Raises
        ------
        AnswerLost
            It did not arrive, and cannot any more.
        ClaimInDoubt
            Placement did not say.
        """
        looks = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(MAX_LOOKS),
            wait=self._wait(MAX_FIRST_LOOK_WAIT_S),
            retry=tenacity.retry_if_result(lambda was_done: was_done is None),
            retry_error_callback=_last_result,
            sleep=self.sleep,
        )
        was_done: bool | None = looks(self._look, bodies, lost)
        if was_done is None:
            raise self._in_doubt(lost) from lost
        if not was_done:
            raise lost
        return WriteAnswer(200)

    def _look(
        self, bodies: Mapping[str, Mapping[str, Any]], lost: AnswerLost
    ) -> bool | None:
        try:
            held = {uuid: self._held(uuid) for uuid in bodies}
            ours = [uuid for uuid in bodies if held[uuid].are(bodies[uuid])]
            if len(ours) == len(bodies):
                return True
            if ours:  # one POST is atomic: somebody changed the others since
                release(self.client, ours, global_request_id=self.global_request_id)
                return False
            if not lost.is_in_flight or any(map(self._is_beyond, held, held.values())):
                return False
            return False if self._fence() else None
        except PlacementError:
            return None  # bounded: the next look may be luckier, or it is in doubt

    def _is_beyond(self, uuid: str, held: ConsumerAllocations) -> bool:
        """Tell whether a consumer has left the generation that our write names."""
        now = held.consumer_generation
        return now is not None and now != self.generations.get(uuid)

    def _fence(self) -> bool:
        """Use up the generation that a write on its way names, so that it must fail.

        One consumer suffices: a write is atomic. False: the write was here first.
        """
        uuid = next(iter(self.wanted))
        before = self.before.get(uuid)
        body = _restoring(before or ConsumerAllocations({}), self.generations.get(uuid))
        return self.client.put_allocations(
            uuid,
            body if before else {**body, **self.owner},
            global_request_id=self.global_request_id,
        ).is_done

    def _in_doubt(self, lost: AnswerLost) -> ClaimInDoubt:
        return ClaimInDoubt(
            f"{lost} It could not be found out whether the claim was made: consumers "
            f"{', '.join(self.wanted)} may hold allocations that have to be released.",
            tuple(self.wanted),
        )

    def _wait(self, first_s: float) -> Callable[[tenacity.RetryCallState], float]:
        def jittered(state: tenacity.RetryCallState) -> float:
            return float(self.rng.uniform(0, first_s * 2 ** (state.attempt_number - 1)))

        return jittered


def _is_contended(answer: WriteAnswer) -> bool:
    return answer.is_concurrent_update and not answer.is_consumer_conflict


def _is_known_undone(e: BaseException) -> bool:
    # Placement said 500 and holds nothing: on PostgreSQL, for one, the first claims of
    # a new project race to create it, and those that lose end so.
    return isinstance(e, AnswerLost) and not e.is_in_flight


def _last_result(state: tenacity.RetryCallState) -> Any:
    return state.outcome.result() if state.outcome else None


def _result(answer: WriteAnswer) -> ClaimResult:
    if answer.is_done:
        return ClaimResult.CLAIMED
    return ClaimResult.CONTENDED if _is_contended(answer) else ClaimResult.REFUSED
