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


@dataclass(frozen=True, slots=True)
class Doubt:
    """A claim of one consumer that may be made yet, or is.

    Attributes
    ----------
    generation : int or None
        The consumer's that the claim named.
    owner : mapping
        project_id and user_id.
    before : ConsumerAllocations or None
        What it held before, where the claim was added to it (evacuation).
    """

    generation: int | None
    owner: Mapping[str, str]
    before: ConsumerAllocations | None = None

    def may_come_yet(self, held: ConsumerAllocations) -> bool:
        """Tell whether a consumer that holds this is as the claim has to find it."""
        now = held.consumer_generation  # None: it holds nothing, so nobody tells
        return now is None or now == self.generation

    def prevent(self, client: PlacementClient, uuid: str) -> bool:
        """Use up the generation that the claim names, so that it must fail.

        A write is atomic: one consumer of it suffices. False: the claim, or somebody
        else, was here first.
        """
        body = _restoring(self.before or ConsumerAllocations({}), self.generation)
        if self.before is None:
            body = {**body, **self.owner}
        return client.put_allocations(uuid, body).is_done


class ClaimInDoubt(PlacementUnavailable):
    """Say that consumers may hold what nobody could look at or take back.

    `doubts` are the consumers that have to be released once Placement answers again.
    """

    def __init__(self, message: str, doubts: Mapping[str, Doubt]) -> None:
        """Tell what happened, and to which consumers."""
        super().__init__(message)
        self.doubts = doubts


#: Is told how consumers are claimed for that Placement knows already: of each the
#: generation that is named, and what it held, where the claim is added to that.
Adapting = Callable[[Mapping[str, int], Mapping[str, ConsumerAllocations]], None]


def _tell_nobody(
    generations: Mapping[str, int], before: Mapping[str, ConsumerAllocations]
) -> None:
    """Stand in where nobody keeps a note of claims."""


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
    is_found : bool
        Whether the consumers held all of it before: an earlier request claimed it,
        and it may be in use. It is not to be released if this request fails.
    """

    result: ClaimResult
    n_attempts: int
    status: int
    code: str
    detail: str
    elapsed_s: float
    before: Mapping[str, ConsumerAllocations] = field(default_factory=dict)
    is_found: bool = False


def claim(  # noqa: PLR0913 - eight by name, five with defaults
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
    adapting: Adapting = _tell_nobody,
) -> ClaimAnswer:
    """Claim one candidate for one consumer.

    Parameters
    ----------
    evacuated_from : set of str
        Providers of the host that the instance is evacuated from: what it holds there
        is kept, and the claim is added.
    adapting : callable, optional
        Called before the claim is sent in a form that suits what a consumer is now.

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
        adapting,
    )
    return job.run()


def claim_all(  # noqa: PLR0913 - those of `claim`
    client: PlacementClient,
    allocation_requests: Mapping[str, AllocationRequest],
    *,
    project_id: str,
    user_id: str,
    global_request_id: str | None = None,
    evacuated_from: AbstractSet[str] = frozenset(),
    rng: Rng,
    sleep: Callable[[float], None] = time.sleep,
    adapting: Adapting = _tell_nobody,
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
        adapting,
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
    adapting: Adapting
    is_atomic_post: bool = False
    n_attempts: int = 0
    generations: dict[str, int] = field(default_factory=dict)
    before: dict[str, ConsumerAllocations] = field(default_factory=dict)
    is_found: bool = False

    def run(self) -> ClaimAnswer:
        started = time.monotonic()
        answer = self._attempts()
        return ClaimAnswer(
            _result(answer),
            self.n_attempts,
            answer.status,
            answer.code,
            answer.detail,
            time.monotonic() - started,
            self.before if answer.is_done else {},
            self.is_found,
        )

    def _attempts(self) -> WriteAnswer:
        # A loop, for every decision comes by here and nearly none waits: tenacity takes
        # as long as all else that a claim costs here.
        for number in range(1, MAX_ATTEMPTS):
            try:
                answer = self._attempt()
            except AnswerLost as e:
                if not _is_known_undone(e):
                    raise
            else:
                if not _is_contended(answer):
                    return answer
            self.sleep(self._jittered_s(MAX_FIRST_WAIT_S, number))
        return self._attempt()

    def _attempt(self) -> WriteAnswer:
        answer = self._write()
        if not answer.is_consumer_conflict:
            return answer
        held = {uuid: self._held(uuid) for uuid in self.wanted}
        if all(held[uuid].are(self.wanted[uuid]) for uuid in self.wanted):
            self.is_found = True
            return WriteAnswer(200)
        self._adapt(held, answer)
        if not self.generations and self.is_atomic_post:
            return answer  # refused: one of them has a generation that nobody tells
        return self._write_adapted()

    def _write_adapted(self) -> WriteAnswer:
        """Send it in the generations that the consumers have."""
        bodies = {uuid: self._body(uuid) for uuid in self.wanted}
        self.adapting(self.generations, self.before)
        answer = self._write()
        if not answer.is_consumer_conflict:
            return answer
        # A proxy may have sent it twice, and answered what the second one got.
        if all(self._held(uuid).are(bodies[uuid]) for uuid in bodies):
            return WriteAnswer(200)
        raise self._conflict(answer)

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

    def _adapt(
        self, held: Mapping[str, ConsumerAllocations], answer: WriteAnswer
    ) -> None:
        """Learn the consumers' generations, and what they keep."""
        for uuid, allocations in held.items():
            if allocations.resources:
                self._double(uuid, allocations)
            elif not self.is_atomic_post:
                self._take_over_empty(uuid, answer)

    def _double(self, uuid: str, held: ConsumerAllocations) -> None:
        if not self.evacuated_from & held.resources.keys():
            raise AllocationUpdateFailed(
                f"Failed to update allocations for consumer {uuid}. Error: it holds "
                "allocations that this request did not make, of the resource providers "
                f"{', '.join(sorted(held.resources))}."
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
            f"Failed to update allocations for consumer {', '.join(self.wanted)}. "
            "Error: somebody else changed it while it was claimed for the resource "
            f"providers {', '.join(sorted(providers))}: {answer.detail}"
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
            doubts = self._doubts()
            if lost.is_in_flight and all(
                doubts[uuid].may_come_yet(held[uuid]) for uuid in held
            ):
                uuid = next(iter(doubts))
                return False if doubts[uuid].prevent(self.client, uuid) else None
            return False
        except PlacementError:
            return None  # bounded: the next look may be luckier, or it is in doubt

    def _doubts(self) -> dict[str, Doubt]:
        return {
            uuid: Doubt(self.generations.get(uuid), self.owner, self.before.get(uuid))
            for uuid in self.wanted
        }

    def _in_doubt(self, lost: AnswerLost) -> ClaimInDoubt:
        return ClaimInDoubt(
            f"{lost} It could not be found out whether the claim was made: consumers "
            f"{', '.join(self.wanted)} may hold allocations that have to be released.",
            self._doubts(),
        )

    def _wait(self, first_s: float) -> Callable[[tenacity.RetryCallState], float]:
        return lambda state: self._jittered_s(first_s, state.attempt_number)

    def _jittered_s(self, first_s: float, number: int) -> float:
        return float(self.rng.uniform(0, first_s * 2 ** (number - 1)))


def _is_contended(answer: WriteAnswer) -> bool:
    return answer.is_concurrent_update and not answer.is_consumer_conflict


def _is_known_undone(e: AnswerLost) -> bool:
    # Placement said 500 and holds nothing: on PostgreSQL, for one, the first claims of
    # a new project race to create it, and those that lose end so.
    return not e.is_in_flight


def _last_result(state: tenacity.RetryCallState) -> Any:  # noqa: ANN401 - tenacity's type
    return state.outcome.result() if state.outcome else None


def _result(answer: WriteAnswer) -> ClaimResult:
    if answer.is_done:
        return ClaimResult.CLAIMED
    return ClaimResult.CONTENDED if _is_contended(answer) else ClaimResult.REFUSED
