# SPDX-License-Identifier: Apache-2.0
"""When a host failed: claim the next alternate, without asking the scheduler."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..objects import Selection
from ..scheduler.errors import AllocationUpdateFailed
from ..scheduler.placement.allocations.claims import ClaimResult, claim_result
from ..scheduler.placement.allocations.engine import (
    AllocationsByConsumer,
    DesiredAllocations,
    Plan,
)
from ..scheduler.placement.candidates import AllocationRequest
from ..scheduler.placement.client import ConsumerAllocations
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
    """Claim the first alternate that is granted, in place of the failed host's claim.

    For builds, and for moves whose source a migration holds. An alternate that the
    instance holds already was claimed by an earlier call, and is returned. One
    without an allocation request is returned unclaimed, as nova does. Hosts that were
    only busy are tried a second time.

    Parameters
    ----------
    alternates : sequence of Selection
        Those that are left, without the failed host: nova's ``host_list``.
    failed : Selection, optional
        The failed host. None: the instance holds nothing, as where nova's compute
        released it already.

    Returns
    -------
    Selection or None
        None: none was granted, and the instance holds nothing.

    Raises
    ------
    InvalidRequest
        A selection's allocation request cannot be read.
    AllocationUpdateFailed
        The instance holds what is neither the failed host's nor an alternate's, which
        is left alone; or somebody else kept changing it.
    PlacementError
        Placement could not do its part. The instance holds the failed host's, nothing,
        or one alternate's; the same call goes on from there.
    """
    owner = ConsumerAllocations({}, None, project_id, user_id)
    listed = [_Alternate(s, allocation_request(s)) for s in alternates]
    job = _Reschedule(client, instance_uuid, owner, listed, failed, global_request_id)
    granted = job.run()
    return granted.selection if granted is not None else None


@dataclass(frozen=True, slots=True)
class _Alternate:
    selection: Selection
    request: AllocationRequest | None

    def is_held(self, held: ConsumerAllocations) -> bool:
        return self.request is not None and held.are(self.request)


@dataclass(frozen=True, slots=True)
class _Reschedule:
    """One instance on its way from its failed host to an alternate.

    What is claimed replaces what is held: Placement forgets a consumer that holds
    nothing, and counts its generations anew; a release that comes late could then
    take the alternate's claim for the failed host's.
    """

    client: ConductorClient
    instance_uuid: str
    owner: ConsumerAllocations
    alternates: Sequence[_Alternate]
    failed: Selection | None
    global_request_id: str | None

    def run(self) -> _Alternate | None:
        granted, busy = self._first_granted(self.alternates)
        if granted is None and busy:  # they may have come to rest meanwhile
            granted, _ = self._first_granted(busy)
        if granted is None or granted.request is None:
            return self._release() or granted
        return granted

    def _first_granted(
        self, alternates: Iterable[_Alternate]
    ) -> tuple[_Alternate | None, list[_Alternate]]:
        """Return the first that is granted, and those before it that were busy."""
        busy: list[_Alternate] = []
        for alternate in alternates:
            if alternate.request is None:
                return alternate, busy
            result, mine = self._claim(alternate.request)
            if result is ClaimResult.CLAIMED:
                return mine or alternate, busy
            if result is ClaimResult.CONTENDED:
                busy.append(alternate)
        return None, busy

    def _claim(
        self, request: AllocationRequest
    ) -> tuple[ClaimResult, _Alternate | None]:
        """Claim, and return which alternate was found claimed already, if one was."""
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
        """Release the failed host, or return which alternate is held after all."""
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
        request = allocation_request(self.failed) if self.failed is not None else None
        failed = request["allocations"].keys() if request is not None else set()
        is_release = not wanted.request["allocations"]

        def plan(held: AllocationsByConsumer) -> dict[str, DesiredAllocations]:
            mine = held[self.instance_uuid]
            if self._held_by(held) or (is_release and not mine.resources):
                return {}
            if foreign := mine.resources.keys() - failed:
                raise self._not_ours(foreign)
            return {self.instance_uuid: wanted}

        return plan

    def _held_by(self, held: AllocationsByConsumer) -> _Alternate | None:
        mine = held[self.instance_uuid]
        return next((a for a in self.alternates if a.is_held(mine)), None)

    def _not_ours(self, providers: Iterable[str]) -> AllocationUpdateFailed:
        return AllocationUpdateFailed(
            f"Instance {self.instance_uuid} holds allocations of the resource "
            f"providers {', '.join(sorted(providers))}, which are neither the failed "
            "host's nor an alternate's; they are not given up for another host."
        )
