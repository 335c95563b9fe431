# SPDX-License-Identifier: Apache-2.0
"""Requests with hints about places: a group over racks, and instances near a row."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from moorage.objects import (
    Flavor,
    ImageMeta,
    ImageMetaProps,
    InstanceGroup,
    RequestSpec,
)
from moorage.scheduler.sources.inventory import InventoryHost

from ..conductor import Conductor, Server
from .cloud import LEVELS

_NAMESPACE: Final = uuid.UUID("6d6f6f72-6167-5000-8000-706c61636573")
_PROJECT: Final = "demo"


@dataclass(frozen=True, slots=True)
class PlacedRequest:
    """A request for several instances with hints about places.

    Attributes
    ----------
    policy : str
        That of the instances' server group; "": they have none.
    """

    name: str
    title: str
    number: int
    memory_gib: int
    hints: Mapping[str, Sequence[str]]
    zone: str | None = None
    policy: str = ""

    def create(self, conductor: Conductor) -> list[Server]:
        """Have the instances created; the same ones in each run."""
        uuids = [self._uuid(str(i)) for i in range(self.number)]
        context = {"request_id": f"req-{self.name}", "project_id": _PROJECT}
        return conductor.create(context, self._spec(uuids), uuids)

    def _spec(self, uuids: Sequence[str]) -> RequestSpec:
        flavor = Flavor(
            name=self.name,
            flavorid=self.name,
            vcpus=4,
            memory_mb=self.memory_gib * 1024,
            root_gb=20,
            ephemeral_gb=0,
            swap=0,
            extra_specs={},
        )
        return RequestSpec(
            availability_zone=self.zone,
            flavor=flavor,
            image=ImageMeta(properties=ImageMetaProps(hw_architecture="x86_64")),
            instance_group=self._group(uuids) if self.policy else None,
            instance_uuid=uuids[0],
            num_instances=self.number,
            project_id=_PROJECT,
            scheduler_hints={name: list(values) for name, values in self.hints.items()},
            user_id="demo",
        )

    def _group(self, members: Sequence[str]) -> InstanceGroup:
        return InstanceGroup(
            uuid=self._uuid("group"),
            policy=self.policy,
            policies=[self.policy],
            members=list(members),
            hosts=[],
        )

    def _uuid(self, what: str) -> str:
        return str(uuid.uuid5(_NAMESPACE, f"{self.name}/{what}"))


REQUESTS: Final = (
    PlacedRequest(
        "group-over-racks",
        "A group of 8 in zone1, --hint spread_level=rack: evenly over 6 racks",
        number=8,
        memory_gib=4,
        hints={"spread_level": ["rack"]},
        zone="zone1",
        policy="soft-anti-affinity",
    ),
    PlacedRequest(
        "near-a-row",
        "7 large ones, --hint near=row=b: 5 fill row b, 2 go to the closest row",
        number=7,
        memory_gib=1536,
        hints={"near": ["row=b"]},
    ),
)


@dataclass(frozen=True, slots=True)
class PlacesOfHosts:
    """The places of each host, by level."""

    of_host: Mapping[str, Mapping[str, str]]

    @classmethod
    def of(cls, hosts: Iterable[InventoryHost]) -> Self:
        """Read them from an inventory."""
        records = (host.record for host in hosts)
        return cls({record.host: dict(record.places) for record in records})

    def rows_of(self, servers: Iterable[Server]) -> list[tuple[str, ...]]:
        """Return the largest places first, and the hosts that they have of servers."""
        found: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        for server in servers:
            mine = self.of_host[server.host]
            found[tuple(mine[level] for level in reversed(LEVELS))].append(server.host)
        ordered = sorted(found.items())
        return [(*places, ", ".join(sorted(hosts))) for places, hosts in ordered]
