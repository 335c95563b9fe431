# SPDX-License-Identifier: Apache-2.0
"""The resource providers of an inventory file: one for each host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import os_resource_classes as orc
import os_traits

from .placement.seed import Provider
from .sources.inventory import Inventory, InventoryHost

Amounts = Mapping[str, int | float]


def providers(inventory: Inventory) -> Iterator[Provider]:
    """Yield each host's root provider, as its compute service would report it."""
    for host in inventory.hosts:
        name = host.record.host
        yield Provider(
            uuid=host.record.uuid,
            name=host.record.nodename,
            inventories=_inventories(host),
            traits=host.traits | _status(host),
            aggregates=frozenset(
                a.uuid for a in inventory.aggregates if name in a.hosts
            ),
        )


def _status(host: InventoryHost) -> frozenset[str]:
    is_disabled = host.record.disabled
    return frozenset({os_traits.COMPUTE_STATUS_DISABLED} if is_disabled else ())


def _inventories(host: InventoryHost) -> dict[str, Amounts]:
    record = host.record
    plain = {
        orc.VCPU: (record.vcpus_total, record.cpu_allocation_ratio),
        orc.MEMORY_MB: (record.total_usable_ram_mb, record.ram_allocation_ratio),
        orc.DISK_GB: (record.total_usable_disk_gb, record.disk_allocation_ratio),
    }
    inventories: dict[str, Amounts] = {
        name: {
            "total": total,
            "reserved": min(host.reserved[name], total),
            "max_unit": total,
            "allocation_ratio": ratio,
        }
        for name, (total, ratio) in plain.items()
        if total
    }
    return {**inventories, **host.resources}
