# SPDX-License-Identifier: Apache-2.0
"""After a host failed: claim the next alternate without calling the scheduler."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..objects import Selection
from ..scheduler.candidates import AllocationRequest
from ..scheduler.errors import AllocationUpdateFailed
from ..scheduler.placement.allocations.claims import ClaimResult, claim_result
from ..scheduler.placement.allocations.engine import AllocationsByConsumer, Plan
from ..scheduler.placement.answers import ConsumerAllocations, DesiredAllocations
from .client import ConductorClient, ConsumerType
from .selected import allocation_request

LOG = logging.getLogger(__name__)


def claim_alternate(
    client: ConductorClient,
    instance_uuid: str,
    alternates: Sequence[Selection],
    *,
    failed: Selection | None = None,
    project_id: str,
    user_id: str,
    global_request_id: str | None = None,
) -> Selection | None:
    """Replace the failed host's claim with that of the first granted alternate.

    For builds, and for moves whose source a migration holds. An alternate that the
    instance holds already was claimed by an earlier call, and is returned. One
    without an allocation request is returned unclaimed, as nova does. Hosts that were
    refused because of concurrent updates are tried a second time.

    Parameters
    ----------
    alternates : sequence of Selection
        The remaining alternates, without the failed host: nova's ``host_list``.
    failed : Selection, optional
        The failed host. None: the instance holds nothing, for example because nova's
        compute released it already.

    Returns
    -------
    Selection or None
        None: no alternate was granted, and the instance holds nothing.

    Raises
    ------
    InvalidRequest
        A selection's allocation request is malformed.
    AllocationUpdateFailed
        The instance holds allocations of neither the failed host nor an alternate,
        which are not touched; or another client kept changing the consumer.
    PlacementError
        Placement failed. The instance holds the failed host's claim, one alternate's or
        nothing; repeating the call continues from there.
    """
    owner = ConsumerAllocations({}, None, project_id, user_id)
    alternate_claims = [
        _Alternate(selection, allocation_request(selection)) for selection in alternates
    ]
    reschedule = _Reschedule(
        client, instance_uuid, owner, alternate_claims, failed, global_request_id
    )
    granted = reschedule.run()
    return granted.selection if granted is not None else None


@dataclass(frozen=True, slots=True)
class _Alternate:
    """An alternate, and its allocation request; None: there is nothing to claim."""

    selection: Selection
    request: AllocationRequest | None

    def is_held(self, held: ConsumerAllocations) -> bool:
        return self.request is not None and held.matches(self.request)


@dataclass(frozen=True, slots=True)
class _Reschedule:
    """The claims of one instance, which moves from its failed host to an alternate.

    The new claim replaces the old one in one write, without a release between:
    Placement deletes a consumer that holds nothing and restarts its generations, so a
    delayed release could mistake the alternate's claim for the failed host's.
    """

    client: ConductorClient
    instance_uuid: str
    owner: ConsumerAllocations
    alternates: Sequence[_Alternate]
    failed: Selection | None
    global_request_id: str | None

    def run(self) -> _Alternate | None:
        granted, busy = self._first_granted(self.alternates)
        if granted is None and busy:  # the concurrent updates may be over
            granted, _ = self._first_granted(busy)
        if granted is None or granted.request is None:
            return self._release() or granted
        return granted

    def _first_granted(
        self, alternates: Iterable[_Alternate]
    ) -> tuple[_Alternate | None, list[_Alternate]]:
        """Return the first alternate that is granted, and the busy ones before it."""
        busy: list[_Alternate] = []
        for alternate in alternates:
            if alternate.request is None:
                return alternate, busy
            result, held_alternate = self._claim(alternate.request)
            if result is ClaimResult.CLAIMED:
                return held_alternate or alternate, busy
            if result is ClaimResult.CONTENDED:
                busy.append(alternate)
        return None, busy

    def _claim(
        self, request: AllocationRequest
    ) -> tuple[ClaimResult, _Alternate | None]:
        """Claim an alternate; also return the one that was claimed already, if any."""
        wanted = DesiredAllocations(request, self.owner, ConsumerType.INSTANCE)
        rewrite = self.client.rewrite(
            [self.instance_uuid],
            self._plan(wanted),
            global_request_id=self.global_request_id,
        )
        what = f"Instance {self.instance_uuid} was not moved on"
        result = claim_result(rewrite, what)
        if result is not ClaimResult.CLAIMED:
            LOG.info("%s: alternate refused: %s", self.instance_uuid, rewrite.answer)
        return result, self._held_by(rewrite.read)

    def _release(self) -> _Alternate | None:
        """Release the failed host, or return the alternate that is held already."""
        nothing = DesiredAllocations(
            {"allocations": {}}, self.owner, ConsumerType.INSTANCE
        )
        rewrite = self.client.rewrite(
            [self.instance_uuid],
            self._plan(nothing),
            global_request_id=self.global_request_id,
        )
        rewrite.raise_unless_done(f"Instance {self.instance_uuid} was not released")
        return self._held_by(rewrite.read)

    def _plan(self, wanted: DesiredAllocations) -> Plan:
        """Return a plan that replaces the failed host's allocations with `wanted`."""
        request = allocation_request(self.failed) if self.failed is not None else None
        failed_providers = (
            request["allocations"].keys() if request is not None else set()
        )
        is_release = not wanted.request["allocations"]

        def plan(held: AllocationsByConsumer) -> dict[str, DesiredAllocations]:
            instance = held[self.instance_uuid]
            if self._held_by(held) or (is_release and not instance.resources):
                return {}
            if foreign_providers := instance.resources.keys() - failed_providers:
                raise self._not_ours(foreign_providers)
            return {self.instance_uuid: wanted}

        return plan

    def _held_by(self, held: AllocationsByConsumer) -> _Alternate | None:
        instance = held[self.instance_uuid]
        return next(
            (alternate for alternate in self.alternates if alternate.is_held(instance)),
            None,
        )

    def _not_ours(self, providers: Iterable[str]) -> AllocationUpdateFailed:
        return AllocationUpdateFailed(
            f"Instance {self.instance_uuid} holds allocations of the resource "
            f"providers {', '.join(sorted(providers))}, which are neither the failed "
            "host's nor an alternate's; they are not replaced with another host's."
        )
