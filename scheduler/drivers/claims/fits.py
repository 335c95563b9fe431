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
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ....filters import BaseHostFilter
from ...candidates import Offer
from ...hosts import Consumption, HostBatch
from ...placement.allocations.limits import MAX_COLLISIONS
from ...request import Request
from ..instances import Needs, PlacedInstance
from ..parts import Parts
from .peer_claims import ClaimState, PeerClaim

_CELLS_FILTER: Final = "NUMATopologyFilter"
_DEVICES_FILTER: Final = "PciPassthroughFilter"

#: Returns the limits of a host of a batch, from the filters.
LimitsOf = Callable[[HostBatch, int], Mapping[str, object]]


@dataclasses.dataclass(frozen=True, slots=True)
class _Reserved:
    """A reservation, and whether it fitted: one that never did is not judged."""

    claim: PeerClaim
    host: str
    has_fitted: bool


class FitCheck:
    """Reserves CPUs and devices for the guests of a request.

    Parameters
    ----------
    filters : iterable of BaseHostFilter
        Those that apply to the request: what none of them enforces, such as where a
        host is forced, is not enforced here either.
    since : int
        The revision of the hosts that the decision reads.
    """

    def __init__(
        self,
        parts: Parts,
        request: Request,
        needs: Needs,
        filters: Iterable[BaseHostFilter],
        limits_of: LimitsOf,
        *,
        since: int,
    ) -> None:
        self._table = parts.table
        self._clock = parts.clock
        self._publish = parts.publish_claims
        self._request = request
        self._needs = needs
        self._limits_of = limits_of
        self._since = since
        self._is_active = _are_enforced(request, {type(f).__name__ for f in filters})
        self._reserved: dict[str, _Reserved] = {}
        self._n_collisions = 0

    def reserve(
        self, uuid: str, hosts: HostBatch, index: int, ledger: Offer, candidate: int
    ) -> bool:
        """Reserve what a guest needs of a host; return whether the host still has it.

        Nothing is reserved for a guest that is on that host already.
        """
        if not self._is_active:
            return True
        limits = self._limits_of(hosts, index)
        mappings = ledger.mappings_of(candidate)
        return self._reserve(
            uuid,
            (hosts.value("uuid", index), hosts.value("host", index)),
            limits,
            self._needs.on_host(limits, mappings),
            ledger,
            candidate,
        )

    def reserve_placed(self, placed: PlacedInstance, ledger: Offer) -> bool:
        """Do the same for an instance that has been assigned a host."""
        return not self._is_active or self._reserve(
            placed.instance_uuid,
            (placed.value("uuid"), placed.value("host")),
            placed.limits,
            placed.consumption,
            ledger,
            placed.candidate,
        )

    def _reserve(
        self,
        uuid: str,
        place: tuple[str, str],
        limits: Mapping[str, object],
        consumption: Consumption,
        ledger: Offer,
        candidate: int,
    ) -> bool:
        table, (node_uuid, host) = self._table, place
        if host in table.instances.hosts_of(uuid):
            return True
        now = self._clock()
        if not table.claims.consume_if_fits(
            node_uuid, uuid, consumption, now, self._since
        ):
            return False
        claim = PeerClaim(
            node_uuid=node_uuid,
            instance_uuid=uuid,
            claimed_at=now,
            consumption=consumption,
            resources=ledger.resources_of(candidate),
            spec_obj=self._request.spec_obj,
            limits=limits,
            mappings=ledger.mappings_of(candidate),
            state=ClaimState.RESERVED,
        )
        has_fitted = table.claims.has_place(node_uuid, uuid)
        self._reserved[uuid] = _Reserved(claim, host, has_fitted)
        self._publish([claim])
        return True

    def may_keep(self, uuid: str) -> bool:
        """Return whether a guest that was granted its host fits after earlier ones.

        After `MAX_COLLISIONS` that did not, it is left to the compute.
        """
        mine = self._reserved.get(uuid)
        if mine is None or not mine.has_fitted or self._n_collisions >= MAX_COLLISIONS:
            return True
        if self._table.claims.has_place(mine.claim.node_uuid, uuid):
            return True
        self._n_collisions += 1
        return False

    def give_back(self, uuid: str) -> None:
        """Release the reservation of a guest, if it has one, here and elsewhere."""
        mine = self._reserved.pop(uuid, None)
        if mine is not None:
            self._table.claims.release(mine.host, uuid)
            withdrawn = dataclasses.replace(mine.claim, state=ClaimState.WITHDRAWN)
            self._publish([withdrawn])

    def give_back_all(self) -> None:
        """Release the reservations of all guests."""
        for uuid in list(self._reserved):
            self.give_back(uuid)


def _are_enforced(request: Request, filters: set[str]) -> bool:
    """Return whether a request needs cells or devices, and filters check all of it."""
    has_guest, has_devices = request.numa is not None, bool(request.pci_requests)
    if not (has_guest or has_devices):
        return False
    return (not has_guest or _CELLS_FILTER in filters) and (
        not has_devices or _DEVICES_FILTER in filters
    )
