# SPDX-License-Identifier: Apache-2.0
"""Release a claim, unless another request has taken it over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...waiting import Rng, SystemWaiter, Waiter
from ..answers import DesiredAllocations
from ..client import PlacementClient
from .claims import Claim
from .engine import AllocationsByConsumer, Rewrite


def release(  # noqa: PLR0913 - a release says what, how to wait, and what to note
    client: PlacementClient,
    consumer_uuid: str,
    claimed: Claim,
    *,
    rng: Rng,
    watch: Callable[[Claim], None],
    before_removal: Callable[[Claim], None],
    before_rewrite: Callable[[int], None] | None = None,
    is_unused: Callable[[], bool] = lambda: True,
    waiter: Waiter | None = None,
    global_request_id: str | None = None,
) -> bool:
    """Release a claim, if the consumer still holds it and nothing was written since.

    What the consumer held before the claim stays.

    Parameters
    ----------
    watch : callable
        Called with the claim if a write that raises its generation got no answer: it
        may arrive late, and make the claim again.
    before_removal : callable
        Called before the write that removes the claim, with the claim as
        `Claim.being_removed` returns it: what certainly is ours from then on.
    before_rewrite : callable, optional
        Called before the write that raises the generation, with the one that it names.
    is_unused : callable, optional
        Called before the write that removes the claim: whether it is still certain
        that the claim is not in use. Otherwise the claim is kept.

    Returns
    -------
    bool
        Whether the claim was held and is now released.

    Raises
    ------
    AllocationsInDoubt
        Placement did not answer; another call continues the release.
    AllocationUpdateFailed
        Other writers kept changing the consumer or its providers.
    PlacementError
        Placement could not be used.
    """
    plan = _ReleasePlan(consumer_uuid, claimed, is_unused)
    watched: set[int] = set()

    def watch_for_rewrites() -> None:
        unanswered = rewrite.unanswered.get(consumer_uuid, ())
        bumps = {g for g in unanswered if g is not None and g % 2} - watched
        # The generations of a consumer that keeps what it held before do not restart.
        if bumps and claimed.before is None:
            watched.update(bumps)
            bump = max(bumps)
            watch(Claim(claimed.request, named_generation=bump, is_in_flight=True))

    def before_write(
        generations: Mapping[str, int | None], _held: AllocationsByConsumer
    ) -> None:
        generation = generations[consumer_uuid]
        if generation is None:
            return
        if plan.removes:
            watch_for_rewrites()
            before_removal(claimed.being_removed(generation))
        elif before_rewrite is not None:
            before_rewrite(generation)

    rewrite = Rewrite(
        client,
        [consumer_uuid],
        plan,
        waiter=waiter or SystemWaiter(),
        rng=rng,
        global_request_id=global_request_id,
        ends_final=False,
        # The evidence that the claim is not in use was there before the write.
        continues_in_doubt=claimed.is_ours,
        before_write=before_write,
    )
    try:
        answer = rewrite.run().answer
        if not answer.is_done and not answer.is_concurrent_update:
            # The provider has shrunk: Placement refuses to write the same amounts
            # again.
            plan.may_bump = False
            rewrite.run()
    finally:
        watch_for_rewrites()
    rewrite.raise_unless_done(f"Consumer {consumer_uuid} was not released")
    return plan.was_held


@dataclass(slots=True)
class _ReleasePlan:
    """Raises the generation to an even one, then writes the remaining allocations."""

    uuid: str
    claimed: Claim
    is_unused: Callable[[], bool]
    was_held: bool = False
    may_bump: bool = True
    #: Whether the next write removes the claim.
    removes: bool = False
    #: The highest generation read so far. A lower one belongs to a new claim: the
    #: consumer was deleted in between.
    max_generation: int = 0

    def __call__(self, held: AllocationsByConsumer) -> dict[str, DesiredAllocations]:
        consumer = held[self.uuid]
        generation = consumer.consumer_generation
        if generation is None or not consumer.matches(self.claimed.combined_request):
            return {}
        if generation < self.max_generation:
            return {}
        self.max_generation = generation
        if not self.claimed.is_still_ours(generation):
            self.was_held = False
            return {}  # another request has taken the claim over
        is_even = generation % 2 == 0
        unchanged = {self.uuid: DesiredAllocations.unchanged(consumer)}
        self.removes = is_even or not self.may_bump
        if self.removes and not self.is_unused():
            # What may be in use after all is left at an odd generation.
            self.was_held = self.removes = False
            return unchanged if is_even else {}
        # An evacuation may end before the removal: the claim is held in another form.
        self.was_held = self.removes
        if self.removes:
            return {self.uuid: DesiredAllocations(self.claimed.base_request, consumer)}
        return unchanged
