# SPDX-License-Identifier: Apache-2.0
"""Computes whose CPU cells or PCI devices Placement does not know, and their guests."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from moorage.objects import RequestSpec
from moorage.scheduler.hosts import (
    Consumption,
    HostPools,
    HostRecord,
    HostTopology,
)
from moorage.scheduler.hosts.fitting.need import Changes, NumaPciUsage
from moorage.scheduler.placement.seed import Provider
from moorage.testing import builders as b

_N_CELLS: Final = 2
_CPUS_A_CELL: Final = 16
_DEVICES_A_CELL: Final = 4
_CELL_MB: Final = 64 * 1024
_MEMORY_MB: Final = 1024
_ALIAS: Final = {"vendor_id": "8086", "product_id": "1520"}

#: Dedicated CPUs and NUMA cells of the guests that need CPUs.
_PINNED: Final = ((4, 1), (4, 1), (8, 1), (8, 2), (12, 2), (16, 1))
#: Devices of the guests that need devices.
_DEVICES: Final = (1, 1, 2, 3)


@dataclasses.dataclass(frozen=True, slots=True)
class Guest:
    """A request for one instance, and how much of a host's `Kind.total` it needs."""

    uuid: str
    amount: int
    spec: RequestSpec


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """What the guests of a cloud compete for; a host has `total` of it.

    Attributes
    ----------
    cpus : str
        The resource class of the hosts' CPUs.
    """

    name: str
    total: int
    cpus: str
    guest: Callable[[random.Random, str], Guest]


def _pinned(rng: random.Random, uuid: str) -> Guest:
    n_cpus, n_cells = rng.choice(_PINNED)
    n_each = n_cpus // n_cells
    cells = [
        b.guest_cell(
            i,
            pcpuset=set(range(i * n_each, (i + 1) * n_each)),
            memory=_MEMORY_MB // n_cells,
        )
        for i in range(n_cells)
    ]
    extra = {"hw:cpu_policy": "dedicated", "hw:numa_nodes": str(n_cells)}
    topology = b.guest_topology(*cells)
    return _guest(uuid, n_cpus, vcpus=n_cpus, extra_specs=extra, numa_topology=topology)


def _with_devices(rng: random.Random, uuid: str) -> Guest:
    n_devices = rng.choice(_DEVICES)
    wanted = b.pci_request(n_devices, alias_name="nic", spec=[_ALIAS], request_id=uuid)
    requests = b.pci_requests(wanted)
    extra = {"pci_passthrough:alias": f"nic:{n_devices}"}
    return _guest(uuid, n_devices, vcpus=1, extra_specs=extra, pci_requests=requests)


def _guest(uuid: str, amount: int, **changes: object) -> Guest:
    spec = b.spec(instance_uuid=uuid, memory_mb=_MEMORY_MB, root_gb=1, **changes)
    return Guest(uuid, amount, spec)


KINDS: Final = (
    Kind("pinned CPUs", _N_CELLS * _CPUS_A_CELL, "PCPU", _pinned),
    Kind("PCI devices", _N_CELLS * _DEVICES_A_CELL, "VCPU", _with_devices),
)


def empty_hosts(n_hosts: int) -> Iterator[HostRecord]:
    """Yield hosts of two cells with devices each, and without instances."""
    cells = b.numa_topology(
        *(
            b.numa_cell(
                i,
                cpuset=set(),
                pcpuset=(cpus := set(range(i * _CPUS_A_CELL, (i + 1) * _CPUS_A_CELL))),
                siblings=[{cpu} for cpu in sorted(cpus)],
                memory=_CELL_MB,
                mempages=[b.pages(4, _CELL_MB * 256)],
            )
            for i in range(_N_CELLS)
        )
    )
    devices = b.pci_pools(
        *(b.pci_pool(_DEVICES_A_CELL, numa_node=i, **_ALIAS) for i in range(_N_CELLS))
    )
    topology, pools = HostTopology.read(cells), HostPools.read(devices)
    for number in range(n_hosts):
        yield b.host(
            host=f"h{number}",
            vcpus_total=_N_CELLS * _CPUS_A_CELL,
            vcpus_used=0,
            total_usable_ram_mb=_N_CELLS * _CELL_MB,
            free_ram_mb=_N_CELLS * _CELL_MB,
            num_instances=0,
            ram_allocation_ratio=1.0,
            numa_topology=topology,
            pci_stats=pools,
        )


def provider_of(host: HostRecord, kind: Kind) -> Provider:
    """Return what Placement knows of a host: sums, no cells, and no devices."""
    sums = {
        kind.cpus: host.vcpus_total,
        "MEMORY_MB": host.total_usable_ram_mb,
        "DISK_GB": 10_000,
    }
    inventories = {
        name: {"total": total, "max_unit": total} for name, total in sums.items()
    }
    return Provider(host.uuid, host.nodename, inventories)


class Compute:
    """A compute: it builds what fits, and reports what is free.

    Attributes
    ----------
    guests : dict
        What each guest consumes, and uses of cells and devices.
    """

    def __init__(self, host: HostRecord) -> None:
        self.guests: dict[str, tuple[Consumption, NumaPciUsage]] = {}
        self._now = host

    def build(self, uuid: str, consumption: Consumption) -> bool:
        """Return whether a guest fits; if so, it has its cells and devices."""
        assert self._now.numa_topology is not None
        usage = consumption.take(self._now.numa_topology, self._now.pci_stats)
        if usage is None or not usage.is_complete:
            return False
        self.guests[uuid] = consumption, usage
        self._change(consumption, 1, usage.changes())
        return True

    def delete(self, uuid: str) -> None:
        """Free what a guest uses."""
        consumption, usage = self.guests.pop(uuid)
        left = usage.undone(self._now.numa_topology, self._now.pci_stats)
        self._change(consumption, -1, left)

    def report(self) -> tuple[HostRecord, Sequence[str]]:
        """Return the host and its instances, as they are now."""
        return self._now, tuple(self.guests)

    def _change(self, consumption: Consumption, sign: int, devices: Changes) -> None:
        deltas = dict(consumption.deltas())
        deltas.pop("num_io_ops")
        values: dict[str, Any] = {
            name: getattr(self._now, name) + sign * delta
            for name, delta in deltas.items()
        }
        values.update(devices)
        self._now = dataclasses.replace(self._now, **values)
