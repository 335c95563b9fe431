# SPDX-License-Identifier: Apache-2.0
"""How full the cloud is by Placement's account, and whether it is ours."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.sources.inventory import Inventory

from ..conductor import Server

SHOWN = ("VCPU", "MEMORY_MB", "DISK_GB")


class Amount(NamedTuple):
    """What is allocated of a resource class, and what can be at most."""

    used: int
    capacity: int


#: Of one resource provider, by resource class.
Account = Mapping[str, Amount]


@dataclass(slots=True)
class Fill:
    """Amounts of some hosts by resource class."""

    n_hosts: int = 0
    n_servers: int = 0
    used: Counter[str] = field(default_factory=Counter)
    capacity: Counter[str] = field(default_factory=Counter)


def read_accounts(
    placement: PlacementClient, uuids: Iterable[str]
) -> dict[str, Account]:
    """Return Placement's account of some resource providers."""
    # One answer for all that have a MiB left, instead of two questions for each.
    body: Any = placement.read("/allocation_candidates?resources=MEMORY_MB:1")
    told = body["provider_summaries"]
    return {
        uuid: _summarized(told[uuid]) if uuid in told else _asked(placement, uuid)
        for uuid in uuids
    }


def _summarized(summary: Mapping[str, Any]) -> Account:
    return {
        name: Amount(amount["used"], amount["capacity"])
        for name, amount in summary["resources"].items()
    }


def _asked(placement: PlacementClient, uuid: str) -> Account:
    usages: Any = placement.read(f"/resource_providers/{uuid}/usages")
    inventories: Any = placement.read(f"/resource_providers/{uuid}/inventories")
    return {
        name: Amount(
            usages["usages"][name],
            int((told["total"] - told["reserved"]) * told["allocation_ratio"]),
        )
        for name, told in inventories["inventories"].items()
    }


def fill_by_place(
    inventory: Inventory,
    accounts: Mapping[str, Account],
    servers: Iterable[Server],
) -> dict[tuple[str, str], Fill]:
    """Return the fill of each (cell, availability zone)."""
    fills: dict[tuple[str, str], Fill] = defaultdict(Fill)
    running = Counter(server.selection.compute_node_uuid for server in servers)
    cells = {uuid: name for name, uuid in inventory.cells.items()}
    zones = {
        host: aggregate.metadata["availability_zone"]
        for aggregate in inventory.aggregates
        if "availability_zone" in aggregate.metadata
        for host in aggregate.hosts
    }
    for record in (host.record for host in inventory.hosts):
        fill = fills[cells[record.cell_uuid], zones.get(record.host, "nova")]
        fill.n_hosts += 1
        fill.n_servers += running[record.uuid]
        for name, amount in accounts[record.uuid].items():
            fill.used[name] += amount.used
            fill.capacity[name] += amount.capacity
    return dict(sorted(fills.items()))


def disagreements(
    accounts: Mapping[str, Account], servers: Iterable[Server]
) -> dict[str, tuple[dict[str, int], dict[str, int]]]:
    """Return {provider: (what Placement counts, what our servers hold)} that differ.

    Nothing lost and nothing leaked: it is empty.
    """
    ours: dict[str, Counter[str]] = defaultdict(Counter)
    for server in servers:
        for uuid, resources in server.allocations.items():
            ours[uuid].update(resources)
    used = {
        uuid: {name: amount.used for name, amount in account.items() if amount.used}
        for uuid, account in accounts.items()
    }
    return {
        uuid: (used.get(uuid, {}), dict(ours[uuid]))
        for uuid in sorted(used.keys() | ours.keys())
        if used.get(uuid, {}) != ours[uuid]
    }
