# SPDX-License-Identifier: Apache-2.0
"""What a machine is to Placement: one resource provider."""

from __future__ import annotations

import dataclasses

import os_resource_classes as orc
from oslo_config import cfg

from ..scheduler.errors import PlacementUnavailable
from ..scheduler.hosts import HostRecord
from ..scheduler.placement.client import PlacementClient
from ..scheduler.placement.seed import Provider, seed


def provider_of(conf: cfg.ConfigOpts, record: HostRecord) -> Provider:
    """Return the provider that a machine shall be.

    What is reserved is told to Placement; what is in use are its allocations.
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


def keep(client: PlacementClient, provider: Provider) -> bool:
    """Make Placement know a machine so; return whether anything had to be written.

    Traits and aggregates that somebody gave it stay.

    Raises
    ------
    PlacementError
        Placement does not do its part.
    """
    found = _listed(client, f"?uuid={provider.uuid}", "resource_providers")
    if found:
        provider = dataclasses.replace(
            provider,
            traits=frozenset(_listed(client, f"/{provider.uuid}/traits", "traits")),
            aggregates=frozenset(
                _listed(client, f"/{provider.uuid}/aggregates", "aggregates")
            ),
        )
    return seed(client, [provider]) > 0


def _listed(client: PlacementClient, url: str, key: str) -> list[str]:
    match client.read(f"/resource_providers{url}"):
        case dict() as body if isinstance(body.get(key), list):
            return list(body[key])
    raise PlacementUnavailable(
        f"The answer to GET /resource_providers{url} is not Placement's. Check that "
        "[placement] endpoint_override is Placement's own."
    )
