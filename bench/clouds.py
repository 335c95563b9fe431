# SPDX-License-Identifier: Apache-2.0
"""The clouds that are measured: the same hosts for Moorage, nova and Placement."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
from oslo_config import cfg

from moorage.scheduler.conf import load
from moorage.scheduler.hosts import (
    HostAggregate,
    HostPools,
    HostRecord,
    HostTable,
    HostTopology,
)
from moorage.scheduler.sources.base import BaseHostSource
from moorage.scheduler.sources.inventory import Inventory, InventoryHost

from .compute_reports import Report, report

_NAMESPACE = uuid.UUID("62656e63-6800-5000-8000-000000000000")
_INSTANCES_PER_HOST = 4
_NOT_SENT = ("last_seen_up", "numa_topology", "pci_stats")
_N_ZONES = 3
_GIB = 1024
_HV_VERSIONS = (6002001, 7000000, 8002002)
_CPU_INFO = tuple(
    json.dumps({"arch": "x86_64", "model": model, "topology": {"cores": cores}})
    for model, cores in (("Skylake-Server", 20), ("EPYC-Rome", 32))
)


def stable_uuid(name: str) -> str:
    """Return the UUID of that name, the same one in every run."""
    return str(uuid.uuid5(_NAMESPACE, name))


@dataclasses.dataclass(frozen=True, slots=True)
class Cloud:
    """Hosts with different usage, some instances on each, and availability zones.

    Attributes
    ----------
    instances : dict
        Instance UUIDs by service host.
    reports : list of Report
        The reports of NUMA cells and PCI devices, one for each record; or empty.
    """

    records: list[HostRecord]
    instances: dict[str, list[str]]
    aggregates: list[HostAggregate]
    reports: list[Report] = dataclasses.field(default_factory=list)

    def __len__(self) -> int:
        return len(self.records)

    def as_inventory(self) -> Inventory:
        """Return the inventory for the embedded Placement, with nothing reserved."""
        nothing = {"VCPU": 0, "MEMORY_MB": 0, "DISK_GB": 0}
        hosts = (
            InventoryHost(record, frozenset(), nothing, {}, frozenset())
            for record in self.records
        )
        cell = self.records[0].cell_uuid
        return Inventory({"cell1": cell}, tuple(self.aggregates), tuple(hosts))

    def as_message(self) -> dict[str, Any]:
        """Return plain data for the peer process."""
        aggregates = (
            {**dataclasses.asdict(a), "hosts": sorted(a.hosts)} for a in self.aggregates
        )
        reports: Sequence[Report | None] = self.reports or [None] * len(self)
        return {
            "hosts": list(map(_plain, self.records, reports)),
            "instances": self.instances,
            "aggregates": list(aggregates),
        }


def _plain(record: HostRecord, report_: Report | None) -> dict[str, Any]:
    # The peer sets last_seen_up to the current time, and parses the texts itself.
    names = (field.name for field in dataclasses.fields(record))
    values = {name: getattr(record, name) for name in names if name not in _NOT_SENT}
    texts = {
        "numa_topology": report_.numa_topology if report_ else None,
        "pci_stats": report_.pci_stats if report_ else None,
    }
    return {**values, **texts, "stats": dict(record.stats)}


def make_cloud(n_hosts: int) -> Cloud:
    """Return a cloud of that many hosts, the same one each time."""
    rng = np.random.default_rng(n_hosts)
    records = [_record(rng, i) for i in range(n_hosts)]
    names = [record.host for record in records]
    instances = {
        name: [stable_uuid(f"{name}/{i}") for i in range(_INSTANCES_PER_HOST)]
        for name in names
    }
    aggregates = [
        HostAggregate(
            id=zone + 1,
            uuid=stable_uuid(f"zone{zone}"),
            name=f"zone{zone}",
            hosts=frozenset(names[zone::_N_ZONES]),
            metadata={"availability_zone": f"zone{zone}"},
        )
        for zone in range(_N_ZONES)
    ]
    return Cloud(records, instances, aggregates)


def make_numa_cloud(n_hosts: int, *, has_pools: bool) -> Cloud:
    """Return a cloud whose hosts have two NUMA cells each, and optionally 8 pools."""
    cloud = make_cloud(n_hosts)
    reports = [report(i, has_pools=has_pools) for i in range(n_hosts)]
    records = list(map(reported, cloud.records, reports))
    return dataclasses.replace(cloud, records=records, reports=reports)


def reported(record: HostRecord, report_: Report) -> HostRecord:
    """Return the record with the cells and devices of a report, which is parsed."""
    return dataclasses.replace(
        record,
        numa_topology=HostTopology.read(report_.numa_topology),
        pci_stats=HostPools.read(report_.pci_stats),
    )


def _record(rng: np.random.Generator, number: int) -> HostRecord:
    name = f"host{number:06}"
    vcpus = int(rng.choice((64, 96, 128)))
    ram_mb, disk_gb = vcpus * 4 * _GIB, 4000
    used_gb = int(rng.integers(0, disk_gb // 2))
    return HostRecord(
        host=name,
        nodename=name,
        hypervisor_hostname=name,
        uuid=stable_uuid(name),
        cell_uuid=stable_uuid("cell1"),
        total_usable_ram_mb=ram_mb,
        free_ram_mb=ram_mb - int(rng.integers(0, ram_mb // 2)),
        total_usable_disk_gb=disk_gb,
        free_disk_mb=(disk_gb - used_gb) * _GIB,
        disk_mb_used=used_gb * _GIB,
        vcpus_total=vcpus,
        vcpus_used=int(rng.integers(0, vcpus)),
        cpu_allocation_ratio=4.0,
        num_instances=_INSTANCES_PER_HOST,
        num_io_ops=int(rng.integers(0, 8)),
        failed_builds=int(rng.random() < 0.01),
        hypervisor_type="QEMU",
        hypervisor_version=int(rng.choice(_HV_VERSIONS)),
        supported_instances=(("x86_64", "kvm", "hvm"), ("i686", "kvm", "hvm")),
        cpu_info=_CPU_INFO[int(rng.integers(len(_CPU_INFO)))],
        host_ip=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
    )


class CloudSource(BaseHostSource):
    """The source of the measured scheduler."""

    def __init__(self, conf: cfg.ConfigOpts, cloud: Cloud) -> None:
        super().__init__(conf)
        self._cloud = cloud

    def start(self, table: HostTable) -> None:
        for aggregate in self._cloud.aggregates:
            table.put_aggregate(aggregate)
        for record in self._cloud.records:
            table.put(record)
            # Faster than with the record, which would search all hosts for them.
            table.add_instances(record.host, self._cloud.instances[record.host])


def options(n_hosts: int, **filter_scheduler: object) -> cfg.ConfigOpts:
    """Return the default options, with a candidate limit that excludes no host."""
    conf = load(config_files=[])
    conf.set_override("max_placement_results", max(n_hosts, 1), group="scheduler")
    conf.set_override("random_seed", 1, group="moorage")
    conf.set_override("decision_store_connection", "", group="moorage")
    for name, value in filter_scheduler.items():
        conf.set_override(name, value, group="filter_scheduler")
    return conf
