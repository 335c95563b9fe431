# SPDX-License-Identifier: Apache-2.0
"""Orphaned claims: allocations that no answer named; released, or reported.

An orphan is left by a request that failed while Placement was unavailable, by a killed
process, or by a write without an answer that may arrive late. A thread checks each
orphan until it is resolved:

- The consumer holds something else, or was written since: it belongs to another
  request. The orphan is forgotten.
- The consumer holds nothing, or is released: make sure that Placement refuses a late
  write, and watch the consumer for as long as one may arrive. Then forget the orphan.
- The consumer holds exactly this claim, and Placement had granted it to us: release it,
  unless the host source reports the instance on its host.
- The consumer holds exactly this claim, and its claimer is unknown, or another request
  has taken it over, which may have answered it, or another scheduler has published the
  same claim. Only evidence that the claim is not in use releases it: the source knows
  that the instance is gone, or stays elsewhere. A release that gets no answer needs new
  evidence, as the instance may have been requested again; so does the write that
  removes the claim, once the generation is even. If the source reports the
  instance on its host, the claim is in use: forget the orphan, at once if no write of
  it is unanswered and the instance is settled there, otherwise once no late write can
  arrive any more. If there is no evidence within ``[moorage] orphan_evidence_timeout``,
  report a suspected orphan, and leave it to the operator. An instance that is still to
  be built proves nothing.
"""

from __future__ import annotations

import dataclasses
import logging
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from ...candidates import resources_of
from ...errors import (
    PlacementError,
    PlacementIncompatible,
    PlacementUnauthorized,
    PlacementUnavailable,
)
from ...instances import InstanceLocation, InstanceState
from ...periodic import Outage
from ...waiting import Rng, Spawner, SystemWaiter, Task, ThreadSpawner, Waiter
from ..answers import ConsumerAllocations, DesiredAllocations
from ..client import PlacementClient
from .claims import Claim
from .limits import LATE_WRITE_S, ORPHAN_FIRST_PAUSE_S, ORPHAN_MAX_PAUSE_S
from .releases import release

LOG = logging.getLogger(__name__)

#: Errors that say nothing about the consumer: a later attempt may succeed.
_UNAVAILABLE: Final = (
    PlacementIncompatible,
    PlacementUnauthorized,
    PlacementUnavailable,
)

#: Given an instance and the providers of a claim, return where the instance is.
Locate = Callable[[str, Collection[str]], InstanceLocation]

_UNKNOWN: Final = InstanceLocation(InstanceState.UNKNOWN)
#: What shows that an instance does not use a claim, whoever made it.
_NOT_IN_USE: Final = (InstanceState.GONE, InstanceState.ELSEWHERE)


def locate_unknown(
    _instance_uuid: str, _providers: Collection[str]
) -> InstanceLocation:
    """Return that the location of an instance is unknown."""
    return _UNKNOWN


def _do_nothing(*_arguments: object) -> None:
    """Do nothing: the claim has no journal entry to update."""


def _watch_unrecorded(claim: Claim) -> Orphan:
    """Return an orphan to watch for a late write, which no journal records."""
    return Orphan(claim, is_watched=True)


@dataclasses.dataclass(slots=True, eq=False)
class Orphan:
    """A claim that was, or may have been, granted although no answer named it.

    Attributes
    ----------
    claim : Claim
        The claim; it says whether Placement granted it, and at which generation.
    owner : mapping
        project_id and user_id; used to write a consumer that holds nothing.
    is_watched : bool
        Whether only a late write of the claim remains to be watched for: an answer
        named the claim, nothing of it is held, or it is in use as far as is known.
    on_resolved, on_released, on_suspected : callable
        Called once nothing remains to be done about the claim; once it is not held and
        only a late write remains to be watched for; and once it is reported.
    on_rewrite : callable
        Called before the write with which a release of a claim begins that may be
        another request's, with the generation that it names.
    on_removal : callable
        Called before the write that removes the claim, once `claim` says what certainly
        is ours from then on.
    watch : callable
        Returns an orphan to watch for a late write of a release, recorded in the
        journal if there is one.
    since : float
        When the orphan was added, on the waiter's clock.
    is_suspected : bool
        Whether the claim was reported as a suspected orphan.
    lock : context manager
        Held from reading the consumer to releasing it. Otherwise a new request for the
        same instance could claim between the two, and lose its claim.
    """

    claim: Claim
    owner: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    is_watched: bool = False
    on_resolved: Callable[[], None] = _do_nothing
    on_released: Callable[[], None] = _do_nothing
    on_suspected: Callable[[], None] = _do_nothing
    on_rewrite: Callable[[int], None] = _do_nothing
    on_removal: Callable[[], None] = _do_nothing
    watch: Callable[[Claim], Orphan] = _watch_unrecorded
    since: float = 0.0
    is_suspected: bool = False
    lock: AbstractContextManager[object] = dataclasses.field(
        default_factory=nullcontext
    )


class GrantedClaims(dict[str, Claim]):
    """The claims of a running request, by consumer UUID.

    A class of its own, as no weak reference can be to a dict.
    """


class Orphans:
    """Resolve orphans in a separate thread, which runs while there are any.

    Parameters
    ----------
    locate : callable
        Returns where an instance is, as evidence of whether it uses some providers.
    evidence_timeout_s : callable
        Returns ``[moorage] orphan_evidence_timeout``, seconds.
    """

    def __init__(
        self,
        client: PlacementClient,
        *,
        rng: Rng,
        locate: Locate = locate_unknown,
        evidence_timeout_s: Callable[[], float] = lambda: LATE_WRITE_S,
        waiter: Waiter | None = None,
        spawner: Spawner | None = None,
    ) -> None:
        self._client = client
        self._rng = rng
        self._locate = locate
        self._evidence_timeout_s = evidence_timeout_s
        self._waiter = waiter or SystemWaiter()
        self._spawner = spawner or ThreadSpawner()
        self._orphans: dict[str, list[Orphan]] = {}
        #: What each running request was granted, by the `id` of the dict.
        self._granted = weakref.WeakValueDictionary[int, GrantedClaims]()
        #: Generations that writes of running requests name, by consumer.
        self._being_written: dict[str, list[int]] = {}
        self._lock = self._spawner.lock()
        self._wake = self._spawner.event()
        self._is_stopping = False
        self._thread: Task | None = None
        #: How often the thread could not be started, or a check failed unexpectedly.
        self.n_not_started = self.n_failed_checks = 0
        #: Consumers whose last check failed unexpectedly.
        self._failing: set[str] = set()
        self._start_outage = Outage(LOG)

    def __len__(self) -> int:
        """Return how many allocations may be held that no answer named."""
        return sum(not orphan.is_watched for orphan in self._all())

    @property
    def note(self) -> str:
        """Why orphans are not checked now; "" if they are."""
        return self._start_outage.cause

    @property
    def suspected(self) -> list[str]:
        """The consumers whose allocations no evidence explains."""
        return [
            uuid
            for uuid, orphans in self._snapshot()
            for orphan in orphans
            if orphan.is_suspected and not orphan.is_watched
        ]

    def _snapshot(self) -> list[tuple[str, list[Orphan]]]:
        with self._lock:
            return [(uuid, list(orphans)) for uuid, orphans in self._orphans.items()]

    def _all(self) -> list[Orphan]:
        return [orphan for _, orphans in self._snapshot() for orphan in orphans]

    def add(self, consumer_uuid: str, orphan: Orphan) -> None:
        """Check a claim repeatedly until it is resolved."""
        if not orphan.is_watched:
            LOG.warning(
                "Consumer %s may hold an allocation of a request that failed; it is "
                "released once it is certain that the allocation is not in use",
                consumer_uuid,
            )
            # This process may have raised the generation of an earlier orphan. If the
            # consumer is at that generation again, another request has claimed since.
            written_generation = orphan.claim.written_generation or 0
            for earlier in self._orphans_of(consumer_uuid):
                claim = earlier.claim
                if claim.is_ours and written_generation > (claim.generation or 0):
                    _doubt(earlier)
        orphan.since = self._waiter.monotonic()
        orphan.lock = self._spawner.lock()
        with self._lock:
            self._orphans.setdefault(consumer_uuid, []).append(orphan)
        self._start_thread()
        self._wake.set()

    def _start_thread(self) -> None:
        """Start the thread unless it runs; if that fails, the next request retries."""
        with self._lock:
            is_running = self._thread is not None and self._thread.is_alive()
            if is_running or self._is_stopping or not self._orphans:
                return
            try:
                self._thread = self._spawner.spawn(self._run, name="orphans")
            except RuntimeError as e:
                self.n_not_started += 1
                self._start_outage.fail(
                    f"Orphaned claims cannot be released now: {e}.",
                    "The thread that releases orphaned claims cannot be started: %s; "
                    "retrying with each request", e, level=logging.ERROR,
                )  # fmt: skip
            else:
                self._start_outage.end()

    def forget_claimed(self, claims: Mapping[str, Claim]) -> None:
        """Forget orphans that equal what a request of this process is answered with.

        What the consumer holds is in use then. Late writes stay watched. Another claim
        of the same instance stays: the consumer may hold that one by now.
        """
        for uuid, claimed in claims.items():
            if uuid in self._orphans:
                resources = resources_of(claimed.request)
                for orphan in self._orphans_of(uuid):
                    if resources_of(orphan.claim.request) != resources:
                        continue
                    if orphan.claim.is_in_flight:
                        orphan.is_watched = True
                    else:
                        self._resolve(uuid, orphan)

    def doubt(
        self, consumer_uuid: str, resources: Mapping[str, Mapping[str, int]]
    ) -> None:
        """Doubt that a claim is an orphan: another scheduler has published the same.

        If the other claim is the later one, it is in use, and may be at the generation
        of the orphan. But an announcement may also arrive long after its claim was
        released. Therefore the orphan is released on evidence only.
        """
        for orphan in self._orphans_of(consumer_uuid):
            claim = orphan.claim
            if claim.is_ours and resources_of(claim.request) == resources:
                _doubt(orphan)

    def release_before_new_claim(
        self,
        consumer_uuids: Iterable[str],
        *,
        excluding: AbstractSet[str] = frozenset(),
    ) -> None:
        """Release what Placement granted to earlier requests for these instances.

        A claim whose claimer is unknown stays: a request that was delivered twice may
        have answered it. The new request takes it over, or fails.

        Parameters
        ----------
        excluding : set of str
            Providers that an instance is evacuated from, where it is in use.

        Raises
        ------
        PlacementError
            Placement is unavailable: the request would fail, too.
        """
        if not self._orphans:
            return
        self._start_thread()
        for uuid in consumer_uuids:
            if uuid not in self._orphans:
                continue
            for orphan in self._orphans_of(uuid):
                in_use = orphan.claim.request["allocations"].keys() & excluding
                if in_use or not orphan.claim.is_ours:
                    continue
                try:
                    self._check(uuid, orphan, has_new_request=True)
                except PlacementError as e:
                    if isinstance(e, _UNAVAILABLE):
                        raise
                    LOG.warning("Continuing, although a release failed: %s", e)
                except Exception:
                    self._note_failed_check(uuid)

    def granted_claims(self) -> GrantedClaims:
        """Return what a request keeps its claims in, for as long as it runs."""
        granted = GrantedClaims()
        with self._lock:
            self._granted[id(granted)] = granted
        return granted

    def note_write(self, consumer_uuid: str, generation: int) -> None:
        """Note the generation that a write of a request names, until its claim ends."""
        with self._lock:
            self._being_written.setdefault(consumer_uuid, []).append(generation)

    def forget_writes(self, writes: Iterable[tuple[str, int]]) -> None:
        """Forget writes that were noted: what may be late of them has an orphan."""
        with self._lock:
            for uuid, generation in writes:
                generations = self._being_written[uuid]
                generations.remove(generation)
                if not generations:
                    del self._being_written[uuid]

    def late_generations(self, consumer_uuids: Iterable[str]) -> dict[str, int]:
        """Return the highest generation that a late write names, by consumer.

        It may be of a request that still waits for its answer. Or that request was
        granted the same claim, as both are deliveries of one, and would release what it
        takes for its own.

        Generations restart once a consumer is deleted. A new claim that is final at a
        higher one cannot be replaced, or released, by such a write.
        """
        generations = {}
        for uuid in consumer_uuids:
            with self._lock:
                in_flight = [*self._being_written.get(uuid, ())]
                in_flight += [
                    claim.generation or 0
                    for claims in self._granted.values()
                    if (claim := claims.get(uuid))
                ]
            if uuid in self._orphans:
                claims = [orphan.claim for orphan in self._orphans_of(uuid)]
                in_flight += [
                    claim.late_write_generation
                    for claim in claims
                    if claim.is_in_flight
                ]
            if in_flight:
                generations[uuid] = max(in_flight)
        return generations

    def stop(self) -> None:
        """Check all orphans one last time, and report those that remain.

        The journal keeps the records of all that remain, so the next start also watches
        for the late writes.
        """
        self._is_stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        if not self._orphans:
            return
        # There is no later attempt: ask Placement even while the circuit is open.
        self._client.health.end_pause()
        for uuid, orphans in self._snapshot():
            for orphan in orphans:
                why = "nothing shows whether it is in use"
                try:
                    self._check(uuid, orphan)
                except PlacementError as e:
                    why = str(e)
                except Exception as e:
                    why = f"{type(e).__name__}: {e}"
                    self._note_failed_check(uuid)
                if not orphan.is_watched and orphan in self._orphans_of(uuid):
                    LOG.error(
                        "Consumer %s may hold an allocation that is not in use: %s",
                        uuid,
                        why,
                    )

    def _orphans_of(self, uuid: str) -> list[Orphan]:
        with self._lock:
            return list(self._orphans.get(uuid, ()))

    def _run(self) -> None:
        pause_s = ORPHAN_FIRST_PAUSE_S
        while not self._is_stopping:
            if self._wake.wait(pause_s):
                self._wake.clear()
                pause_s = ORPHAN_FIRST_PAUSE_S
                continue
            self._check_all()
            with self._lock:
                if not self._orphans:
                    self._thread = None
                    return
            pause_s = min(2 * pause_s, ORPHAN_MAX_PAUSE_S, self._next_due_s())

    def _next_due_s(self) -> float:
        """Return the seconds until the next orphan reaches its evidence timeout."""
        limit_s, now = self._evidence_timeout_s(), self._waiter.monotonic()
        due_s = [
            orphan.since + limit_s - now
            for orphan in self._all()
            if not orphan.is_suspected and orphan.since + limit_s > now
        ]
        return max(min(due_s, default=ORPHAN_MAX_PAUSE_S), 0.05)

    def _check_all(self) -> None:
        for uuid, orphans in self._snapshot():
            for orphan in orphans:
                if self._is_stopping:
                    return
                try:
                    self._check(uuid, orphan)
                except PlacementError as e:
                    LOG.debug("Consumer %s is not settled; retrying: %s", uuid, e)
                    if self._client.health.is_down:
                        return  # checking the others would fail, too
                except Exception:  # the thread must survive; the others are checked
                    self._note_failed_check(uuid)

    def _note_failed_check(self, uuid: str) -> None:
        """Count an unexpected error, and log the first of several in a row."""
        self.n_failed_checks += 1
        level = logging.DEBUG if uuid in self._failing else logging.ERROR
        self._failing.add(uuid)
        LOG.log(level, "Checking consumer %s failed; retrying", uuid, exc_info=True)

    def _check(
        self, uuid: str, orphan: Orphan, *, has_new_request: bool = False
    ) -> None:
        """Check an orphan, and resolve it if nothing remains to be done."""
        with orphan.lock:
            if orphan in self._orphans_of(uuid) and self._can_resolve(
                uuid, orphan, has_new_request=has_new_request
            ):
                self._resolve(uuid, orphan)

    def _can_resolve(self, uuid: str, orphan: Orphan, *, has_new_request: bool) -> bool:
        """Take an orphan's next step; return whether nothing remains to be done."""
        held = self._read(uuid, orphan)
        claim = orphan.claim.as_held(held)
        if orphan.is_watched:
            return self._watch(uuid, orphan, held, claim)
        if claim is None:
            return self._finish_released(uuid, orphan, held)
        generation = held.consumer_generation or 0
        # A request that has taken the claim over since may have answered it.
        is_ours = claim.is_ours and claim.is_still_ours(generation)
        state = None
        if not (is_ours and has_new_request):
            # Generations restart with a new consumer: even a claim that was granted to
            # us may be a later request's by now.
            location = self._location(uuid, orphan)
            state = location.state
            if state is InstanceState.GONE:
                claim = claim.as_whole()
            if state is InstanceState.ON_HOST:
                is_final = generation % 2 == 1
                if not is_final and not self._use_up_generation(uuid, claim, held):
                    # Placement refuses these amounts if the inventory has changed.
                    return self._is_late_write_over(orphan)
                LOG.info("Consumer %s is in use: its instance is on a host", uuid)
                # One that is not settled may be leaving the host: what was claimed is
                # then left by a request that was late.
                orphan.is_watched = claim.is_in_flight or not location.is_settled
                return not orphan.is_watched or self._is_late_write_over(orphan)
            if not is_ours and state not in _NOT_IN_USE:
                self._suspect_if_overdue(uuid, orphan)
                return False
        claim = dataclasses.replace(claim, is_ours=is_ours)
        is_released = self._release(uuid, orphan, claim, generation, state)
        held = self._read(uuid, orphan)
        if not is_released and claim.as_held(held) is not None:
            # Another request has taken the claim over, the evidence has changed, or a
            # conductor has removed the evacuated host in the meantime.
            _doubt(orphan)
            return False
        return self._finish_released(uuid, orphan, held)

    def _read(self, uuid: str, orphan: Orphan) -> ConsumerAllocations:
        """Return what a consumer holds; doubt other orphans that were ours before.

        Two requests here may have left an orphan each. Once that of the later one is
        released, generations restart, and come to that of the earlier one.
        """
        others = [
            (other, other.claim)
            for other in self._orphans_of(uuid)
            if other is not orphan and other.claim.is_ours
        ]
        held = self._client.allocations(uuid)
        generation = held.consumer_generation or 0
        for other, claim in others:
            if other.claim is claim and not claim.is_still_ours(generation):
                _doubt(other)
        return held

    def _resolve(self, uuid: str, orphan: Orphan) -> None:
        with self._lock:
            orphans = self._orphans.get(uuid, [])
            is_unresolved = orphan in orphans
            if is_unresolved:
                orphans.remove(orphan)
            if not orphans:
                self._orphans.pop(uuid, None)
                self._failing.discard(uuid)
        if is_unresolved:
            # A check in another thread may go on: it must not write the record again.
            orphan.on_rewrite = orphan.on_removal = _do_nothing
            orphan.on_released = orphan.on_suspected = _do_nothing
            orphan.on_resolved()

    def _release(
        self,
        uuid: str,
        orphan: Orphan,
        claim: Claim,
        generation: int,
        evidence: InstanceState | None,
    ) -> bool:
        """Release a claim, unless the consumer was written after that generation.

        Return whether it was held and is released. A claim that is not ours is released
        by evidence: the state of its instance. The state is read again before the claim
        is removed, because the instance may have been requested again and answered
        before the first write of the release arrived.
        """

        def before_rewrite(generation: int) -> None:
            # One that Placement granted is restored from its record as if its release
            # had begun; see `JournalEntry.survive`.
            if not claim.is_ours:
                written = max(orphan.claim.written_generation or 0, generation + 1)
                orphan.claim = dataclasses.replace(
                    orphan.claim, written_generation=written, is_in_flight=True
                )
                orphan.on_rewrite(generation)

        def before_removal(removed: Claim) -> None:
            orphan.claim = dataclasses.replace(
                orphan.claim, generation=removed.generation, is_ours=removed.is_ours
            )
            orphan.on_removal()

        def is_unused() -> bool:
            return claim.is_ours or self._location(uuid, orphan).state is evidence

        before = orphan.claim
        try:
            was_held = release(
                self._client,
                uuid,
                dataclasses.replace(claim, generation=generation),
                rng=self._rng,
                before_rewrite=before_rewrite,
                before_removal=before_removal,
                is_unused=is_unused,
                watch=lambda claim: self.add(uuid, orphan.watch(claim)),
                waiter=self._waiter,
            )
        finally:
            # An orphan of its own watches for a write that is still in flight. To raise
            # a generation for one that was answered would meet the late removal.
            orphan.claim = dataclasses.replace(
                orphan.claim,
                written_generation=before.written_generation,
                is_in_flight=before.is_in_flight,
            )
        if was_held:
            LOG.info("Released the allocation of consumer %s", uuid)
        return was_held

    # -- the consumer holds exactly what was claimed ----------------------------------

    def _suspect_if_overdue(self, uuid: str, orphan: Orphan) -> None:
        if orphan.is_suspected or self._age_s(orphan) < self._evidence_timeout_s():
            return
        orphan.is_suspected = True
        orphan.on_suspected()
        LOG.error(
            "Suspected orphan: consumer %s holds an allocation of the resource "
            "providers %s that no answer named; whether it is in use is not known. %s",
            uuid,
            ", ".join(sorted(orphan.claim.request["allocations"])),
            advice(uuid, orphan.claim),
        )

    def _location(self, uuid: str, orphan: Orphan) -> InstanceLocation:
        return self._locate(uuid, orphan.claim.request["allocations"].keys())

    def _age_s(self, orphan: Orphan) -> float:
        return self._waiter.monotonic() - orphan.since

    # -- the consumer does not hold the claim ------------------------------------------

    def _finish_released(
        self, uuid: str, orphan: Orphan, held: ConsumerAllocations
    ) -> bool:
        """Return whether nothing remains to be done about a claim that is not held.

        Placement refuses an unanswered write as long as the consumer does not change.
        It may change until the write arrives, so the claim stays watched.
        """
        if not orphan.claim.is_in_flight:
            return True
        if orphan.claim.is_ours:
            # What names a generation of the released consumer is refused until the
            # consumer is claimed again.
            orphan.is_watched = bool(orphan.claim.named_generation)
            _doubt(orphan)
        if self._refuse_late(uuid, orphan, held):
            orphan.is_watched = True
        return self._is_late_write_over(orphan)

    def _watch(
        self,
        uuid: str,
        orphan: Orphan,
        held: ConsumerAllocations,
        claim: Claim | None,
    ) -> bool:
        """Return whether no late write can take effect any more.

        Parameters
        ----------
        claim : Claim or None
            The claim as the consumer holds it; None: it does not.
        """
        generation = held.consumer_generation or 0
        newest = orphan.claim.late_write_generation + 1
        # What was answered is final at an odd generation. At an even one, and at the
        # one after the newest, we may have begun to release what has arrived late.
        is_answered = generation == orphan.claim.generation and generation % 2 == 1
        may_be_late = generation <= newest + newest % 2 and not is_answered
        if claim is not None and (may_be_late or is_answered):
            # Once what was answered is deleted, a late write may make the same again.
            state = self._location(uuid, orphan).state
            if state is InstanceState.GONE:
                late_claim = dataclasses.replace(claim.as_whole(), is_ours=False)
                self._release(uuid, orphan, late_claim, generation, state)
            elif (
                may_be_late
                and state is not InstanceState.ON_HOST
                and orphan.claim.generation
            ):
                # Not the claim that was answered, but one that has arrived late since,
                # or that of another request, which may come to the same generation.
                orphan.is_watched = False
                _doubt(orphan)
                return False
            if may_be_late or state is InstanceState.GONE:
                return self._is_late_write_over(orphan)
        if generation < newest or generation % 2 == 0:
            self._refuse_late(uuid, orphan, held)
        return self._is_late_write_over(orphan)

    def _is_late_write_over(self, orphan: Orphan) -> bool:
        return self._age_s(orphan) >= LATE_WRITE_S

    def _refuse_late(
        self, uuid: str, orphan: Orphan, held: ConsumerAllocations
    ) -> bool:
        """Return whether Placement refuses a late write of the claim as of now.

        A consumer that holds nothing is created, so that a write for an unknown one is
        refused, unless nova may write it: to give an instance on a host its allocations
        back, or to claim an alternate of an answer. nova names no generation then, and
        would be refused. A known, empty consumer cannot be changed without claiming.
        """
        claim = orphan.claim
        if claim.before is not None and held.matches(claim.base_request):
            return self._use_up_generation(uuid, claim, held)
        if held.resources:
            generation = held.consumer_generation or 0
            # At an even one, a write of ours that used up the last one was late, and a
            # late release would match.
            if generation > claim.late_write_generation and generation % 2:
                return True
            # A later claim, of a request that may not have answered yet: only that
            # request may raise its generation, until the instance is on its host.
            location = self._locate(uuid, held.resources.keys())
            return location.state is InstanceState.ON_HOST and self._use_up_generation(
                uuid, claim, held
            )
        if claim.named_generation is not None:
            return False
        state = self._location(uuid, orphan).state
        is_requested = state is InstanceState.PENDING and not orphan.is_watched
        if state is not InstanceState.GONE and not is_requested:
            return False
        body = {"allocations": {}, **orphan.owner, "consumer_generation": None}
        answer = self._client.put_allocations(uuid, body)
        return answer.is_done or answer.is_consumer_conflict

    def _use_up_generation(
        self, uuid: str, claim: Claim, held: ConsumerAllocations
    ) -> bool:
        """Rewrite allocations in use until no late write can match; False: failed."""
        generation = held.consumer_generation or 0
        while generation <= claim.late_write_generation or generation % 2 == 0:
            body = DesiredAllocations.unchanged(held).body(generation)
            if not self._client.put_allocations(uuid, body).is_done:
                return False
            generation += 1
        return True


def _doubt(orphan: Orphan) -> None:
    """Release on evidence only what a consumer holds: it may be another request's."""
    orphan.claim = dataclasses.replace(orphan.claim, generation=None, is_ours=False)
    orphan.on_released()


def advice(consumer_uuid: str, claim: Claim) -> str:
    """Return when and how an operator deletes a suspected orphan."""
    command = "openstack --os-placement-api-version 1.36 resource provider allocation"
    if claim.before is None:
        return (
            "If the instance does not exist, or has failed and is on no host, run: "
            f"{command} delete {consumer_uuid}"
        )
    added = sorted(claim.request["allocations"].keys() - claim.before.resources.keys())
    return (
        "It was added for an evacuation. Once that is over and the instance is still "
        "on the host that it was evacuated from, run: "
        + " && ".join(
            f"{command} unset --provider {provider} {consumer_uuid}"
            for provider in added
        )
    )
