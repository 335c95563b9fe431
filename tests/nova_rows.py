# SPDX-License-Identifier: Apache-2.0
"""Rows of nova's databases, drawn at random, with the texts that computes write."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import random
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from moorage.testing.hardware import random_model
from moorage.testing.offers import random_report

from .nova_databases import Cell, NovaDatabases

Row = dict[str, Any]

#: When the rows that `fill` makes were written last.
THEN = datetime.datetime(2026, 3, 1, 12, 0, 0)

_N_REPORTS = 150
_SHARE_PLAIN = 0.9  # of service hosts that have one node, as libvirt's
_GIB = 1024

_MODELS: Sequence[tuple[str, str, int]] = (
    ("Skylake-Server-IBRS", "Intel", 20),
    ("EPYC-Rome", "AMD", 32),
    ("Cascadelake-Server", "Intel", 24),
)
_FEATURES = (
    "aes apic avx avx2 bmi1 bmi2 clflush cmov cx16 cx8 de ds f16c fma fpu fsgsbase "
    "fxsr lm mca mce mmx movbe msr mtrr nx pae pat pcid pclmuldq pge pse pse36 rdrand "
    "rdtscp sep smep sse sse2 sse4.1 sse4.2 ssse3 syscall tsc tsc-deadline vme vmx "
    "x2apic xsave"
)
# None is left NULL in supported_instances and stats: nova answers no request with that.
_SPECS: Sequence[Any] = (
    [["x86_64", "kvm", "hvm"], ["i686", "kvm", "hvm"]],
    [["x86_64", "qemu", "hvm"], ["aarch64", "qemu", "hvm"], ["ppc64le", "qemu", "hvm"]],
    [["x86_64", "QEMU", "HVM"]],
    [["amd64", "kvm", "hvm"]],
    [],
)
_LEGACY_TOPOLOGY = {
    "cells": [
        {
            "id": 0, "cpus": "0,1,2,3", "cpu_usage": 2,
            "mem": {"total": 8192, "used": 1024},
        },
        {"id": 1, "cpus": "4,5,6,7", "cpu_usage": 0, "mem": {"total": 8192, "used": 0}},
    ]
}  # fmt: skip


@dataclasses.dataclass(slots=True)
class Rows:
    """What makes rows; all follows from its generator.

    Attributes
    ----------
    has_numa : float
        Share of hosts with NUMA cells, and PCI devices on most of them.
    reports : sequence of mapping, optional
        The two columns of such hosts, to be drawn from; without it some odd ones.
    """

    rng: random.Random
    has_numa: float = 0.3
    reports: Sequence[Mapping[str, str | None]] | None = None
    n_made: int = 0

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def name(self, kind: str) -> str:
        self.n_made += 1
        return f"{kind}-{self.n_made:05}.example.org"

    def service(self, host: str, now: datetime.datetime, **changes: Any) -> Row:
        """Return the row of a nova-compute."""
        rng = self.rng
        seen = rng.choice([now, now, now, now - datetime.timedelta(hours=3), None])
        is_disabled = rng.random() < 0.1
        return {
            "uuid": self.uuid(),
            "host": host,
            "binary": "nova-compute",
            "topic": "compute",
            "report_count": rng.randint(0, 9),
            "disabled": is_disabled,
            "disabled_reason": "maintenance" if is_disabled else None,
            "forced_down": rng.random() < 0.05,
            "last_seen_up": seen,
            "version": rng.choice([72, 73, 74]),
            "created_at": now - datetime.timedelta(days=9),
            "updated_at": now,
            "deleted_at": None,
            "deleted": 0,
            **changes,
        }

    def compute_node(
        self, host: str, node: str, now: datetime.datetime, **changes: Any
    ) -> Row:
        """Return the row of a node, with its usage reported."""
        rng = self.rng
        model, vendor, cores = rng.choice(_MODELS)
        return {
            "uuid": self.uuid(),
            "host": host,
            "hypervisor_hostname": node,
            "service_id": None,
            "hypervisor_type": "QEMU",
            "hypervisor_version": rng.choice([6002001, 7000000, 8002002]),
            "host_ip": rng.choice(
                [f"10.0.{rng.randrange(256)}.7", "2001:db8::7", None]
            ),
            "cpu_info": _cpu_info(model, vendor, cores),
            "supported_instances": json.dumps(rng.choice(_SPECS)),
            "extra_resources": None,
            "mapped": rng.choice([1, 1, 1, 0, None]),
            "cpu_allocation_ratio": rng.choice([16.0, 4.0, 1.0, 1.1, 0.0, None]),
            "ram_allocation_ratio": rng.choice([1.5, 1.0, 1.25, 0.0, None]),
            "disk_allocation_ratio": rng.choice([1.0, 1.0, 2.0, 0.0, None]),
            "created_at": now - datetime.timedelta(days=9),
            "updated_at": now,
            "deleted_at": None,
            "deleted": 0,
            **self.usage(),
            **changes,
        }

    def usage(self) -> Row:
        """Return the columns that a compute's resource tracker writes again."""
        rng = self.rng
        ram, disk, vcpus = 256 * _GIB, 4000, 64
        used_ram, used_disk = rng.randint(512, ram + 4096), rng.randint(0, disk)
        free = disk - used_disk
        return {
            "vcpus": vcpus,
            "memory_mb": ram,
            "local_gb": disk,
            "vcpus_used": rng.randint(0, vcpus),
            "memory_mb_used": used_ram,
            "local_gb_used": used_disk,
            "free_ram_mb": ram - used_ram,
            "free_disk_gb": free,
            "disk_available_least": rng.choice([None, free - 7, free + 5, free, -3]),
            "current_workload": rng.randint(0, 3),
            "running_vms": rng.randint(0, 9),
            "stats": self._stats(),
            "metrics": self._metrics(),
            **self._devices(),
        }

    def not_reported(self) -> Row:
        """Return the columns of a node that was made and not updated yet."""
        return {
            "free_ram_mb": None, "free_disk_gb": None, "disk_available_least": None,
            "stats": "{}", "metrics": None, "numa_topology": None, "pci_stats": None,
        }  # fmt: skip

    def _stats(self) -> str:
        rng = self.rng
        if rng.random() < 0.05:
            return "{}"
        stats = {
            "failed_builds": str(rng.choice([0, 0, 0, 2])),
            "num_instances": str(rng.randint(0, 9)),
            "io_workload": str(rng.choice([0, 0, 1, 3])),
            "num_vm_active": str(rng.randint(0, 9)),
            "num_task_None": str(rng.randint(0, 9)),
            "num_os_type_None": str(rng.randint(0, 9)),
            f"num_proj_{rng.randrange(20):032x}": str(rng.randint(1, 9)),
            "uptime": rng.choice([None, "up 9 days, 1 user"]),
        }
        if rng.random() < 0.05:  # numbers, as before they were an object's
            stats |= {"num_instances": 3, "failed_builds": 1}
        return json.dumps(stats)

    def _metrics(self) -> str | None:
        rng = self.rng
        if rng.random() < 0.8:
            return rng.choice([None, None, "[]", ""])
        when = {
            "timestamp": "2026-03-01T11:59:00.000000",
            "source": "libvirt.LibvirtDriver",
        }
        values = {
            "cpu.frequency": rng.randint(800, 3900),
            "cpu.percent": rng.choice([0.27, 0.0, 1.0]),
            "cpu.user.percent": rng.choice([0.29, 0.57, 0.1]),
            "cpu.idle.time": rng.randint(0, 10**15),
        }
        metrics = [{"name": n, "value": v, **when} for n, v in values.items()]
        if rng.random() < 0.3:
            membw = {"numa_membw_values": {"0": 10, "1": 43}}
            metrics.append({"name": "numa.membw.current", **membw, **when})
        return json.dumps(metrics)

    def _devices(self) -> Row:
        rng = self.rng
        if rng.random() < self.has_numa:
            return dict(rng.choice(self.reports or _reports()))
        pools = rng.choice([None, _NO_POOLS, "[]", ""])
        return {"numa_topology": None, "pci_stats": pools}

    def instance(
        self, host: str | None, node: str | None, now: datetime.datetime, **changes: Any
    ) -> Row:
        """Return the row of a server, built or still without a host."""
        return {
            "uuid": self.uuid(),
            "host": host,
            "node": node,
            "launched_on": host,
            "vm_state": "active" if host else "building",
            "task_state": None if host else "scheduling",
            "user_id": "user",
            "project_id": f"{self.rng.randrange(20):032x}",
            "display_name": "server",
            "memory_mb": 512,
            "vcpus": 1,
            "root_gb": 1,
            "ephemeral_gb": 0,
            "hidden": False,
            "created_at": now - datetime.timedelta(hours=1),
            "updated_at": now,
            "deleted_at": None,
            "deleted": 0,
            "cleaned": 0,
            **changes,
        }

    def system_metadata(
        self, instance: str, now: datetime.datetime, **changes: Any
    ) -> list[Row]:
        """Return the rows of what an instance keeps of some image."""
        image = self.rng.choice(_IMAGES)
        kept = {
            "boot_roles": "member,reader",
            "image_base_image_ref": f"{_IMAGES.index(image):032x}",
            "image_min_disk": "1",
            **{f"image_{key}": value for key, value in image.items()},
        }
        common = {
            "instance_uuid": instance,
            "created_at": now,
            "updated_at": None,
            "deleted_at": None,
            "deleted": 0,
            **changes,
        }
        return [{"key": k, "value": v, **common} for k, v in kept.items()]


#: Names of today and of old, several values, what is no text, and what does not count.
_IMAGES: Sequence[Mapping[str, str | None]] = (
    {"os_distro": "ubuntu", "hw_disk_bus": "virtio", "hw_vif_model": "virtio"},
    {"os_distro": "ubuntu", "hw_machine_type": "q35", "hw_boot_menu": "true"},
    {"os_distro": "arch", "hw_numa_nodes": "2", "hw_numa_cpus.0": "0,1",
     "hw_numa_cpus.1": "2", "hw_numa_mem.0": "512", "hw_numa_mem.1": "1024"},
    {"architecture": "x86_64", "vm_mode": "hvm", "vmware_adaptertype": "lsiLogic"},
    {"os_type": "windows", "hw_disk_bus": None, "trait:HW_CPU_X86_AVX": "required",
     "mappings": "[]", "owner_specified.openstack.name": "windows"},
    {},
)  # fmt: skip

_NO_POOLS = json.dumps(
    {
        "nova_object.name": "PciDevicePoolList",
        "nova_object.namespace": "nova",
        "nova_object.version": "1.1",
        "nova_object.data": {"objects": []},
    }
)


@functools.cache
def _cpu_info(model: str, vendor: str, cores: int) -> str:
    info = {
        "arch": "x86_64", "model": model, "vendor": vendor,
        "topology": {"cells": 2, "sockets": 1, "cores": cores, "threads": 2},
        "features": _FEATURES.split(" "),
        "maxphysaddr": {"mode": "emulate", "bits": 42},
    }  # fmt: skip
    return json.dumps(info)


@functools.cache
def _reports() -> Sequence[Mapping[str, str | None]]:
    """Return cells and devices of some hosts; the same ones each time."""
    rng = random.Random(0)
    found = [
        random_report(rng, f"h{i}", random_model(rng)).texts()
        for i in range(_N_REPORTS)
    ]
    legacy = {"numa_topology": json.dumps(_LEGACY_TOPOLOGY), "pci_stats": "[]"}
    return [*found, legacy, legacy]


# -- a whole cloud ---------------------------------------------------------------------


def fill(
    databases: NovaDatabases,
    n_hosts: int,
    seed: int = 0,
    *,
    has_numa: float = 0.3,
    reports: Sequence[Mapping[str, str | None]] | None = None,
    instances_per_host: int = 4,
    has_images: bool = False,
    shares: Sequence[float] | None = None,
    now: datetime.datetime = THEN,
) -> Rows:
    """Make `n_hosts` compute nodes in all cells, with all that belongs to them.

    Most service hosts have one node, some several, as ironic's have. Some nodes have no
    service, or a deleted one, or no usage yet; some hosts are mapped to no cell yet.

    Parameters
    ----------
    has_numa, reports
        See `Rows`.
    instances_per_host : int
        On the average; some are deleted, few have no host.
    has_images : bool
        Whether instances keep the properties of their images.
    shares : sequence of float, optional
        Of the nodes that each cell has; equal ones by default.
    now : datetime.datetime
        When all was written; naive, UTC.
    """
    rows = Rows(random.Random(seed), has_numa, reports)
    names = list[str]()
    equal = [1 / len(databases.cells)] * len(databases.cells)
    for cell, share in zip(databases.cells, shares or equal, strict=True):
        made = _Filling(rows, now, instances_per_host)
        made.add_nodes(round(share * n_hosts))
        made.write(databases, cell)
        if has_images:
            made.write_images(databases, cell)
        names += made.hosts
    _add_aggregates(databases, rows.rng, names, now)
    return rows


class _Filling:
    """The rows of one cell, all tables, until they are written."""

    def __init__(self, rows: Rows, now: datetime.datetime, n_instances: int) -> None:
        self._rows, self._now, self._n_instances = rows, now, n_instances
        self.hosts: list[str] = []
        self._mapped: list[str] = []
        self._services: list[Row] = []
        self._nodes: list[Row] = []
        self._instances: list[Row] = []

    def add_nodes(self, wanted: int) -> None:
        rng = self._rows.rng
        while len(self._nodes) < wanted:
            left = wanted - len(self._nodes)
            is_plain = left < 4 or rng.random() < _SHARE_PLAIN
            self._add_host(1 if is_plain else rng.randint(2, 4))
        # Not the cell's computes, and nothing that is there any more.
        self._services.append(self._conductor())
        self._add_deleted()

    def _add_host(self, n_nodes: int) -> None:
        rows, rng, now = self._rows, self._rows.rng, self._now
        host = rows.name("compute")
        self.hosts.append(host)
        fate = rng.random()
        if fate > 0.02:
            beat = now - datetime.timedelta(seconds=rng.uniform(0, 10))
            self._services.append(rows.service(host, now, updated_at=beat))
        elif fate > 0.01:
            self._services.append(self._deleted(rows.service(host, now)))
        for _ in range(n_nodes):
            nodename = host if n_nodes == 1 else rows.uuid()
            # Computes write once a minute, each at its own time.
            written = now - datetime.timedelta(seconds=rng.uniform(0, 60))
            node = rows.compute_node(host, nodename, now, updated_at=written)
            if n_nodes > 1:
                node |= _IRONIC
            if rng.random() < 0.02:
                node |= {**rows.not_reported(), "updated_at": None}
            self._nodes.append(node)
            for _ in range(rng.randint(0, 2 * self._n_instances)):
                self._instances.append(self._instance(host, nodename))
        if rng.random() < 0.98:
            self._mapped.append(host)
        else:  # discovered by nobody yet: nothing was scheduled to it
            self._instances = [i for i in self._instances if i["host"] != host]

    def _instance(self, host: str, node: str) -> Row:
        made = self._rows.instance(host, node, self._now)
        dice = self._rows.rng.random()
        if dice < 0.1:
            return self._deleted(made)
        if dice < 0.15:
            return made | {"host": None, "node": None, "vm_state": "shelved_offloaded"}
        return made

    def _conductor(self) -> Row:
        """Return a service that is no compute, on a compute's host."""
        told = {"binary": "nova-conductor", "topic": "conductor", "disabled": True}
        return self._rows.service(self.hosts[0], self._now) | told

    def _add_deleted(self) -> None:
        host = self._rows.name("gone")
        self._services.append(self._deleted(self._rows.service(host, self._now)))
        node = self._rows.compute_node(host, host, self._now)
        self._nodes.append(self._deleted(node))

    def _deleted(self, row: Row) -> Row:
        # nova writes the row's id; any other number than 0 says the same.
        return row | {
            "deleted": self._rows.rng.randint(1, 9**9),
            "deleted_at": self._now,
        }

    def write(self, databases: NovaDatabases, cell: Cell) -> None:
        databases.insert(cell.url, "services", self._services)
        databases.insert(cell.url, "compute_nodes", self._nodes)
        databases.insert(cell.url, "instances", self._instances)
        mappings = [
            {"host": host, "cell_id": cell.id, "created_at": self._now}
            for host in self._mapped
        ]
        databases.insert(databases.api_url, "host_mappings", mappings)

    def write_images(self, databases: NovaDatabases, cell: Cell) -> None:
        """Write what instances keep of their images, deleted ones included."""
        kept = [
            row
            for each in self._instances
            for row in self._rows.system_metadata(
                each["uuid"],
                self._now,
                deleted=each["deleted"],
                deleted_at=each["deleted_at"],
            )
        ]
        databases.insert(cell.url, "instance_system_metadata", kept)


_IRONIC: Row = {
    "hypervisor_type": "ironic", "hypervisor_version": 1, "cpu_info": "",
    "numa_topology": None, "pci_stats": None, "metrics": "[]",
    "supported_instances": json.dumps([["x86_64", "baremetal", "hvm"]]),
}  # fmt: skip


def _add_aggregates(
    databases: NovaDatabases,
    rng: random.Random,
    names: Sequence[str],
    now: datetime.datetime,
) -> None:
    """Make three zones of all hosts, and some aggregates of some."""
    made = [
        (f"zone{i}", names[i::3], {"availability_zone": f"zone{i}"}) for i in range(3)
    ]
    for i in range(5):
        some = rng.sample(names, min(len(names), 20))
        metadata = {f"key{j}": f"value{rng.randrange(3)}" for j in range(i)}
        made.append((f"some{i}", [*some, "nowhere.example.org"], metadata))
    made.append(("empty", [], {}))
    for name, hosts, metadata in made:
        add_aggregate(databases, rng, name, hosts, metadata, now)


def add_aggregate(
    databases: NovaDatabases,
    rng: random.Random,
    name: str,
    hosts: Sequence[str],
    metadata: Mapping[str, str],
    now: datetime.datetime,
) -> None:
    """Make an aggregate as nova's API does."""
    row = {
        "uuid": str(uuid.UUID(int=rng.getrandbits(128), version=4)),
        "name": name,
        "created_at": now,
    }
    table = databases.tables["aggregates"]
    with databases.api.begin() as connected:
        made = connected.execute(table.insert().values(row)).inserted_primary_key[0]
    told = {"aggregate_id": made, "created_at": now}
    databases.insert(
        databases.api_url, "aggregate_hosts", ({"host": h, **told} for h in hosts)
    )
    databases.insert(
        databases.api_url,
        "aggregate_metadata",
        ({"key": k, "value": v, **told} for k, v in metadata.items()),
    )
