# SPDX-License-Identifier: Apache-2.0
"""The resource provider of a machine in Placement."""

from __future__ import annotations

from typing import Final

import os_resource_classes as orc
from oslo_config import cfg

from ..scheduler.hosts import HostRecord
from ..scheduler.placement.adapter import Verb
from ..scheduler.placement.client import PlacementClient
from ..scheduler.placement.seed import Provider, read_body, refused, seed

#: The resource classes whose inventories the agent manages.
OWN: Final = frozenset({orc.VCPU, orc.MEMORY_MB, orc.DISK_GB})

_GENERATION: Final = "resource_provider_generation"
_MAX_ATTEMPTS: Final = 3


def provider_of(conf: cfg.ConfigOpts, record: HostRecord) -> Provider:
    """Return the provider that Placement should have for a machine.

    The reserved amounts are part of the inventories; usage follows from allocations.
    """
    agent = conf.agent
    plain = {
        orc.VCPU: (
            record.vcpus_total,
            agent.reserved_cpus,
            record.cpu_allocation_ratio,
        ),
        orc.MEMORY_MB: (
            record.total_usable_ram_mb,
            agent.reserved_memory_mb,
            record.ram_allocation_ratio,
        ),
        orc.DISK_GB: (
            record.total_usable_disk_gb,
            agent.reserved_disk_gb,
            record.disk_allocation_ratio,
        ),
    }
    return Provider(
        uuid=record.uuid,
        name=record.nodename,
        inventories={
            name: {
                "total": total,
                "reserved": min(reserved, total),
                "max_unit": total,
                "allocation_ratio": ratio,
            }
            for name, (total, reserved, ratio) in plain.items()
            if total
        },
    )


def update_provider(client: PlacementClient, provider: Provider) -> bool:
    """Create or update a provider in Placement; return whether anything was written.

    What other clients set is not changed: traits, aggregates, inventories of resource
    classes that are not in `OWN`, and other keys of an inventory.

    Raises
    ------
    PlacementError
        Placement failed.
    """
    url = f"/resource_providers/{provider.uuid}"
    query, key = f"/resource_providers?uuid={provider.uuid}", "resource_providers"
    found = read_body(client, query, key)[key]
    if not found:
        return seed(client, [provider]) > 0
    is_renamed = found[0].get("name") != provider.name
    if is_renamed:
        answer = client.write(Verb.PUT, url, {"name": provider.name})
        if not answer.is_done:
            raise refused(provider.name, answer)
    return _update_inventories(client, f"{url}/inventories", provider) or is_renamed


def _update_inventories(client: PlacementClient, url: str, provider: Provider) -> bool:
    for _ in range(_MAX_ATTEMPTS):
        current = read_body(client, url, "inventories", _GENERATION)
        held = current["inventories"]
        others = {name: held[name] for name in held.keys() - OWN}
        wanted = others | {
            name: {**held.get(name, {}), **inventory}
            for name, inventory in provider.inventories.items()
        }
        if held == wanted:
            return False
        # Both from one answer, so that a concurrent update is not overwritten.
        body = {"inventories": wanted, _GENERATION: current[_GENERATION]}
        answer = client.write(Verb.PUT, url, body)
        if answer.is_done:
            return True
        if not answer.is_concurrent_update:
            break
    raise refused(provider.name, answer)
