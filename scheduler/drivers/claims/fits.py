# SPDX-License-Identifier: Apache-2.0
"""CPUs and PCI devices that Placement does not know, reserved before they are claimed.

Placement counts dedicated CPUs and memory of a host, and not those of its NUMA cells;
it counts only the PCI devices that nova reports to it. It can grant the same ones to
two guests that are placed at the same time. So a guest is counted in the host table
before it is claimed, and announced to the other schedulers while Placement works. Once
the claim is granted, the reservations of others have arrived. Of those that do not fit
together, the earlier ones stay, by time and then by UUID: all schedulers see the same
order. A guest that does not fit after these leaves for another host.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from ...candidates import Offer
from ...hosts import HostBatch
from ...placement.allocations.claims import ClaimAnswer
from ...placement.allocations.limits import MAX_COLLISIONS
from ...request import Request
from ..instances import Assignment
from ..prepared import PreparedRequest
from ..record import COLLIDED, DEVICES_CLAIMED_FIRST, OUTDATED
from .check import ClaimCheck, Excluded, Refusal
from .peer_claims import ClaimState, PeerClaim

_CELLS_FILTER: Final = "NUMATopologyFilter"
_DEVICES_FILTER: Final = "PciPassthroughFilter"


@dataclasses.dataclass(frozen=True, slots=True)
class _Reserved:
    """A reservation, and whether it fitted: one that never did is not judged."""

    claim: PeerClaim
    host: str
    has_fitted: bool


class FitCheck(ClaimCheck):
    """Reserves CPUs and devices for the guests of a request.

    What no filter that applies to the request enforces, such as where a host is forced,
    is not enforced here either.

    Parameters
    ----------
    since : int
        The revision of the hosts that the decision reads.
    """

    def __init__(self, prepared: PreparedRequest, offer: Offer, *, since: int) -> None:
        self._prepared = prepared
        self._offer = offer
        self._since = since
        filters = {type(filter_).__name__ for filter_ in prepared.filters}
        self._is_active = _are_enforced(prepared.request, filters)
        self._reserved: dict[str, _Reserved] = {}
        self._n_collisions = 0

    def before(self, assignment: Assignment) -> Refusal | None:
        """Reserve what a guest needs; return a refusal if the host lacks it now.

        Nothing is reserved for a guest that is on that host already.
        """
        parts, uuid = self._prepared.parts, assignment.instance_uuid
        table, host = parts.table, assignment.value("host")
        if not self._is_active or host in table.instances.hosts_of(uuid):
            return None
        node_uuid, now = assignment.value("uuid"), parts.clock()
        if not table.claims.consume_if_fits(
            node_uuid, uuid, assignment.consumption, now, self._since
        ):
            return Refusal(OUTDATED, [DEVICES_CLAIMED_FIRST], Excluded.CANDIDATE)
        claim = PeerClaim(
            node_uuid=node_uuid,
            instance_uuid=uuid,
            claimed_at=now,
            consumption=assignment.consumption,
            resources=self._offer.resources_of(assignment.candidate),
            spec_obj=self._prepared.request.spec_obj,
            limits=assignment.limits,
            mappings=self._offer.mappings_of(assignment.candidate),
            state=ClaimState.RESERVED,
        )
        has_fitted = table.claims.has_place(node_uuid, uuid)
        self._reserved[uuid] = _Reserved(claim, host, has_fitted)
        parts.publish_claims([claim])
        return None

    def after(
        self, assignment: Assignment, answer: ClaimAnswer, eligible: HostBatch
    ) -> Refusal | None:
        """Return a refusal if a guest does not fit after those reserved earlier.

        After `MAX_COLLISIONS` that did not, it is left to the compute. A claim that an
        earlier request made is not judged: the host may count it already.
        """
        uuid = assignment.instance_uuid
        reserved = self._reserved.get(uuid)
        if answer.is_found or reserved is None or not reserved.has_fitted:
            return None
        if self._n_collisions >= MAX_COLLISIONS:
            return None
        claims = self._prepared.parts.table.claims
        if claims.has_place(reserved.claim.node_uuid, uuid):
            return None
        self._n_collisions += 1
        return Refusal(COLLIDED, [DEVICES_CLAIMED_FIRST], Excluded.CANDIDATE)

    def undo(self, instance_uuid: str) -> None:
        """Release the reservation of a guest, if it has one, here and elsewhere."""
        reserved = self._reserved.pop(instance_uuid, None)
        if reserved is not None:
            parts = self._prepared.parts
            parts.table.claims.release(reserved.host, instance_uuid)
            withdrawn = dataclasses.replace(reserved.claim, state=ClaimState.WITHDRAWN)
            parts.publish_claims([withdrawn])


def _are_enforced(request: Request, filters: set[str]) -> bool:
    """Return whether a request needs cells or devices, and filters check all of it."""
    has_guest, has_devices = request.numa is not None, bool(request.pci_requests)
    if not (has_guest or has_devices):
        return False
    return (not has_guest or _CELLS_FILTER in filters) and (
        not has_devices or _DEVICES_FILTER in filters
    )
