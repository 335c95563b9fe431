# SPDX-License-Identifier: Apache-2.0
"""Create resource providers in Placement: one for each host of an inventory file."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import os_resource_classes as orc
import os_traits

from .placement.client import PlacementClient
from .placement.seed import Provider, seed
from .sources.base import BaseHostSource
from .sources.file import FileSource
from .sources.inventory import Inventory, InventoryHost

LOG = logging.getLogger(__name__)

Amounts = Mapping[str, int | float]

#: Seconds between two log lines about the progress of seeding.
_PROGRESS_EVERY_S: Final = 2.0


def seed_from_file(placement: PlacementClient, source: BaseHostSource) -> None:
    """Create the providers of hosts that come from a file; else, do nothing."""
    if isinstance(source, FileSource):
        count = seed(
            placement, providers(source.inventory), progress=_logged_progress()
        )
        LOG.info("Seeded the embedded Placement: %d new or changed hosts", count)


def _logged_progress() -> Callable[[int, int], None]:
    """Return a callback that logs the progress of seeding at intervals."""
    logged_at = time.monotonic()

    def log(n_done: int, n_hosts: int) -> None:
        nonlocal logged_at
        if time.monotonic() - logged_at >= _PROGRESS_EVERY_S:
            logged_at = time.monotonic()
            LOG.info("Seeding the embedded Placement: %d of %d hosts", n_done, n_hosts)

    return log


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
                aggregate.uuid
                for aggregate in inventory.aggregates
                if name in aggregate.hosts
            ),
        )


def _status(host: InventoryHost) -> frozenset[str]:
    is_disabled = host.record.disabled
    return frozenset({os_traits.COMPUTE_STATUS_DISABLED} if is_disabled else ())


def _inventories(host: InventoryHost) -> dict[str, Amounts]:
    record = host.record
    totals = {
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
        for name, (total, ratio) in totals.items()
        if total
    }
    return {**inventories, **host.resources}
