# SPDX-License-Identifier: Apache-2.0
"""Claims as schedulers publish them to the other schedulers of a cloud."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self

from oslo_config import cfg
from oslo_utils import uuidutils

from ....objects import RequestSpec
from ...candidates import AllocationRequest, Offer, resources_of
from ...hosts import Consumption, HostTable
from ...hosts.columns import read_time
from ...placement.allocations.orphans import Orphans
from ...placement.candidates_source import CandidatesSource
from ...request import Request
from ...request.checks import check_fields
from ..instances import (
    Assignment,
    Mappings,
    consumption_of,
    consumption_on_host,
)

#: The limit of an amount in a message, so that sums of amounts fit 64 bits.
_MOST: Final = 2**48


class ClaimState(enum.StrEnum):
    """The state of a claim that a scheduler announces to the others.

    The scheduler reserves NUMA cells and PCI devices of a host before Placement grants
    the claim; if Placement refuses it, the scheduler withdraws the reservation.
    """

    RESERVED = "reserved"
    GRANTED = "granted"
    WITHDRAWN = "withdrawn"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PeerClaim:
    """An instance, the host that is claimed for it, and the resources that it uses.

    Attributes
    ----------
    claimed_at : float
        Seconds since the epoch, by the clock of the scheduler that claimed.
    resources : mapping
        The claimed resources: {provider UUID: {resource class: amount}}.
    spec_obj, limits, mappings
        Determine the instance's NUMA cells and PCI devices; None and empty for an
        instance without any.
    """

    node_uuid: str
    instance_uuid: str
    claimed_at: float
    consumption: Consumption
    resources: Mapping[str, Mapping[str, int]]
    spec_obj: RequestSpec | None = None
    limits: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    mappings: Mappings = dataclasses.field(default_factory=dict)
    state: ClaimState = ClaimState.GRANTED

    @classmethod
    def of(
        cls,
        assignment: Assignment,
        offer: Offer,
        spec_obj: RequestSpec,
        claimed_at: float,
        state: ClaimState = ClaimState.GRANTED,
    ) -> Self:
        """Return the claim on the candidate of an offer that an instance gets."""
        claim = cls(
            node_uuid=assignment.value("uuid"),
            instance_uuid=assignment.instance_uuid,
            claimed_at=claimed_at,
            consumption=assignment.consumption,
            resources=resources_of(offer.request(assignment.candidate)),
            state=state,
        )
        if assignment.consumption.need is None:
            return claim
        return dataclasses.replace(
            claim,
            spec_obj=spec_obj,
            limits=assignment.limits,
            mappings=offer.request(assignment.candidate)["mappings"],
        )

    def to_wire(self) -> dict[str, Any]:
        """Return the claim as plain data and versioned objects."""
        consumption = self.consumption
        return {
            "node_uuid": self.node_uuid,
            "instance_uuid": self.instance_uuid,
            "claimed_at": self.claimed_at,
            "memory_mb": consumption.memory_mb,
            "disk_mb": consumption.disk_mb,
            "vcpus": consumption.vcpus,
            "image_properties": [
                list(pair) for pair in sorted(consumption.image_properties)
            ],
            "resources": {u: dict(amounts) for u, amounts in self.resources.items()},
            "spec_obj": self.spec_obj,
            "limits": dict(self.limits),
            "mappings": {name: list(uuids) for name, uuids in self.mappings.items()},
            "state": self.state.value,
        }

    @property
    def allocation_request(self) -> AllocationRequest:
        """The claimed resources as an allocation request of Placement."""
        allocations = {
            uuid: {"resources": dict(r)} for uuid, r in self.resources.items()
        }
        return {"allocations": allocations, "mappings": dict(self.mappings)}

    def apply(
        self,
        table: HostTable,
        candidates: CandidatesSource,
        orphans: Orphans,
        now: float,
    ) -> None:
        """Apply another scheduler's claim to the host table and cached candidates."""
        node_uuid, uuid = self.node_uuid, self.instance_uuid
        if self.state is ClaimState.WITHDRAWN:
            table.claims.withdraw(node_uuid, uuid, self.claimed_at)
            return
        if self.state is ClaimState.GRANTED:
            age_s = max(0.0, now - self.claimed_at)
            candidates.count_claim([self.allocation_request], age_s=age_s)
            orphans.doubt(uuid, self.resources)
        table.claims.consume(
            node_uuid,
            uuid,
            self.consumption,
            self.claimed_at,
            is_reserved=self.state is ClaimState.RESERVED,
        )

    @classmethod
    def from_wire(cls, message: Mapping[str, Any], conf: cfg.ConfigOpts) -> PeerClaim:
        """Return the claim of a message; keys that a newer scheduler adds are ignored.

        Raises
        ------
        InvalidRequest, KeyError, TypeError, UnsetField, ValueError
            The message does not have the form that `to_wire` returns.
        """
        spec_obj, limits = message["spec_obj"], dict(message["limits"])
        if spec_obj is not None and not isinstance(spec_obj, RequestSpec):
            raise TypeError(f"spec_obj: {type(spec_obj).__name__}, no RequestSpec")
        mappings = dict(message["mappings"])
        consumption = Consumption(
            memory_mb=_amount(message["memory_mb"]),
            disk_mb=_amount(message["disk_mb"]),
            vcpus=_amount(message["vcpus"]),
            image_properties=frozenset(
                (str(name), str(text)) for name, text in message["image_properties"]
            ),
        )
        if spec_obj is not None:
            request = Request(spec_obj)
            check_fields(spec_obj, request.settings)
            consumption = consumption_of(request, conf)
            consumption = consumption_on_host(consumption, limits, mappings)
        return cls(
            node_uuid=_uuid(message["node_uuid"]),
            instance_uuid=_uuid(message["instance_uuid"]),
            claimed_at=read_time(message["claimed_at"]),
            consumption=consumption,
            resources={
                _uuid(uuid): {
                    str(name): _amount(n) for name, n in dict(amounts).items()
                }
                for uuid, amounts in dict(message["resources"]).items()
            },
            spec_obj=spec_obj,
            limits=limits,
            mappings=mappings,
            state=ClaimState(message.get("state", ClaimState.GRANTED)),
        )


def _amount(value: object) -> int:
    if type(value) is int and 0 <= value < _MOST:
        return value
    raise ValueError(f"{value!r} where an amount is needed")


def _uuid(value: object) -> str:
    if uuidutils.is_uuid_like(value):
        return str(value)
    raise ValueError(f"{value!r} where a UUID is needed")


#: Publishes claims to the other schedulers, without waiting for them.
PublishClaims = Callable[[Sequence[PeerClaim]], None]
