# SPDX-License-Identifier: Apache-2.0
"""Builders for the input of plugins: hosts, aggregates, requests, options."""

from __future__ import annotations

import copy
import dataclasses
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from oslo_config import cfg

from ..objects import (
    Flavor,
    ImageMeta,
    ImageMetaProps,
    Instance,
    InstanceGroup,
    InstanceNUMACell,
    InstanceNUMATopology,
    InstancePCIRequest,
    InstancePCIRequests,
    NUMACell,
    NUMAPagesTopology,
    NUMATopology,
    PciDevicePool,
    PciDevicePoolList,
    RequestSpec,
)
from ..scheduler.conf import load
from ..scheduler.hosts import (
    Column,
    HostAggregate,
    HostBatch,
    HostRecord,
    HostTable,
    properties_of_instance,
)
from ..scheduler.sources.report_columns import with_columns

CELL = str(uuid.uuid5(uuid.NAMESPACE_DNS, "cell"))

#: The current time of every clock in tests.
NOW = 1_700_000_000.0

_PLAIN = HostRecord(
    host="host",
    nodename="host",
    uuid="",
    cell_uuid=CELL,
    total_usable_ram_mb=16384,
    free_ram_mb=8192,
    total_usable_disk_gb=100,
    free_disk_mb=51200,
    disk_mb_used=51200,
    vcpus_total=8,
    vcpus_used=2,
    hypervisor_type="QEMU",
    hypervisor_version=6002001,
    hypervisor_hostname="host",
    supported_instances=(("x86_64", "kvm", "hvm"),),
    cpu_info='{"arch": "x86_64", "topology": {"cores": 4}}',
)


def node_uuid(name: str) -> str:
    """Return the UUID of the compute node of that name."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"node.{name}"))


def instance_uuid(name: object) -> str:
    """Return the UUID of the instance of that name."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"instance.{name}"))


def host(**changes: Any) -> HostRecord:
    """Return a host with 6 of 8 vCPUs, 8 of 16 GiB and 50 of 100 GB free.

    Names that are not fields of HostRecord are values of columns that plugins declare.
    """
    name = changes.get("host", "host")
    node = changes.get("nodename", name)
    names = {"nodename": node, "hypervisor_hostname": node, "uuid": node_uuid(node)}
    values = {**names, **changes}
    extra = {
        column: values.pop(column)
        for column in values.keys() - HostRecord.__annotations__.keys()
    }
    return dataclasses.replace(_PLAIN, **{"extra": extra, **values})


def hosts(column: str, values: Iterable[Any], **changes: Any) -> list[HostRecord]:
    """Return hosts named a, b, … that differ in one column."""
    return [
        host(**{"host": chr(ord("a") + i), column: value, **changes})
        for i, value in enumerate(values)
    ]


def table(
    *records: HostRecord,
    aggregates: Iterable[HostAggregate] = (),
    instances: Mapping[str, Iterable[str]] | None = None,
    images: Mapping[str, Mapping[str, str]] | None = None,
    declared: Iterable[Column] = (),
) -> HostTable:
    """Return a host table of these records.

    Parameters
    ----------
    instances : mapping, optional
        Instance UUIDs by service host.
    images : mapping, optional
        Properties of the images of instances, as texts, by instance UUID.
    declared : iterable of Column, optional
        Further columns, as plugins declare them.
    """
    host_table = HostTable(columns=with_columns(declared))
    for record in records:
        host_table.put(record)
    for aggregate in aggregates:
        host_table.put_aggregate(aggregate)
    for name, uuids in (instances or {}).items():
        host_table.set_instances(name, list(uuids))
    for uuid_, properties in (images or {}).items():
        metadata = {f"image_{name}": text for name, text in properties.items()}
        image = properties_of_instance(Instance(uuid=uuid_, system_metadata=metadata))
        if image is not None:
            host_table.instances.set_image_properties(uuid_, image)
    return host_table


def batch(*records: HostRecord, **more: Any) -> HostBatch:
    """Return all rows of a table of these records; `more` is passed to `table`."""
    return table(*records, **more).batch()


def aggregate(number: int, *names: str, **metadata: str) -> HostAggregate:
    """Return an aggregate of the hosts of these names."""
    return HostAggregate(
        id=number,
        uuid=str(uuid.uuid5(uuid.NAMESPACE_DNS, f"aggregate.{number}")),
        name=f"aggregate{number}",
        hosts=frozenset(names),
        metadata=metadata,
    )


def group(policy: str, **fields: Any) -> InstanceGroup:
    """Return a server group of that policy, without hosts and members."""
    return InstanceGroup(**{"policy": policy, "hosts": [], "members": [], **fields})


def image(**properties: Any) -> ImageMeta:
    """Return an image with these properties."""
    return ImageMeta(properties=ImageMetaProps(**properties))


def spec(**changes: Any) -> RequestSpec:
    """Return a request for one instance of 1 vCPU, 1 GiB and 10 GB.

    Changes may be the flavor's sizes and ``extra_specs`` as well as the request's own
    fields; ``flavor`` replaces the whole flavor.
    """
    defaults: dict[str, Any] = {
        "flavor": Flavor(
            name="plain",
            flavorid="1",
            **{
                name: changes.pop(name, copy.copy(value))
                for name, value in FLAVOR.items()
            },
        ),
        "image": image(),
        "num_instances": 1,
        "instance_uuid": instance_uuid("asked for"),
        "project_id": "project",
        "user_id": "user",
        "scheduler_hints": {},
        "is_bfv": False,
        **dict.fromkeys(_NONE),
    }
    return RequestSpec(**{**defaults, **changes})


#: The flavor fields that `spec` accepts directly, and their defaults.
FLAVOR: Mapping[str, Any] = {
    "vcpus": 1,
    "memory_mb": 1024,
    "root_gb": 10,
    "ephemeral_gb": 0,
    "swap": 0,
    "extra_specs": {},
}
_NONE = (
    "availability_zone",
    "force_hosts",
    "force_nodes",
    "ignore_hosts",
    "instance_group",
    "numa_topology",
    "pci_requests",
    "requested_destination",
)


def options(**filter_scheduler: Any) -> cfg.ConfigOpts:
    """Return Moorage's options, with changes in the group [filter_scheduler]."""
    conf = load([], config_files=[])
    for name, value in filter_scheduler.items():
        conf.set_override(name, value, group="filter_scheduler")
    return conf


# -- NUMA topologies and PCI devices, in wire form ---------------------------------


def pages(size_kb: int, total: int, *, used: int = 0) -> NUMAPagesTopology:
    """Return memory pages of one size, none reserved."""
    return NUMAPagesTopology(size_kb=size_kb, total=total, used=used, reserved=0)


def numa_cell(number: int = 0, **changes: Any) -> NUMACell:
    """Return a cell with 4 CPUs, pinnable and shared, and 4 GiB of 4 KiB pages, free.

    Its CPUs have the numbers after those of the cell before it, one thread a core; its
    socket has the cell's number.
    """
    cpus = set(range(4 * number, 4 * number + 4))
    defaults = {
        "id": number,
        "cpuset": cpus,
        "pcpuset": cpus,
        "memory": 4096,
        "cpu_usage": 0,
        "memory_usage": 0,
        "mempages": [pages(4, 1 << 20)],
        "pinned_cpus": set(),
        "siblings": [{cpu} for cpu in sorted(cpus)],
        "socket": number,
    }
    return NUMACell(**{**defaults, **changes})


def numa_topology(*cells: NUMACell) -> NUMATopology:
    """Return a compute's report of its cells."""
    return NUMATopology(cells=list(cells))


def guest_cell(number: int = 0, **changes: Any) -> InstanceNUMACell:
    """Return a cell with 1 GiB and 2 pinned CPUs: 0 and 1 in cell 0, 2 and 3 in 1."""
    defaults = {
        "id": number,
        "cpuset": set(),
        "pcpuset": {2 * number, 2 * number + 1},
        "memory": 1024,
        "pagesize": None,
        "cpu_policy": "dedicated",
        "cpu_thread_policy": None,
        "cpu_pinning_raw": None,
        "cpuset_reserved": None,
    }
    return InstanceNUMACell(**{**defaults, **changes})


def guest_topology(
    *cells: InstanceNUMACell, emulator_threads_policy: str | None = None
) -> InstanceNUMATopology:
    """Return a request's NUMA topology."""
    return InstanceNUMATopology(
        cells=list(cells), emulator_threads_policy=emulator_threads_policy
    )


def pci_pool(count: int = 1, **changes: Any) -> PciDevicePool:
    """Return a pool of devices 8086:1520 without a NUMA node; other keys are tags."""
    defaults = {"vendor_id": "8086", "product_id": "1520", "numa_node": None}
    return PciDevicePool.from_dict({**defaults, "count": count, **changes})


def pci_pools(*pools: PciDevicePool) -> PciDevicePoolList:
    """Return a compute's report of its free devices."""
    return PciDevicePoolList(objects=list(pools))


def pci_request(count: int = 1, **changes: Any) -> InstancePCIRequest:
    """Return a request for devices 8086:1520, for a port."""
    defaults = {
        "alias_name": None,
        "count": count,
        "numa_policy": None,
        "request_id": instance_uuid(f"PCI request {count}"),
        "spec": [{"vendor_id": "8086", "product_id": "1520"}],
    }
    return InstancePCIRequest(**{**defaults, **changes})


def pci_requests(*requests: InstancePCIRequest) -> InstancePCIRequests:
    """Return all device requests of an instance."""
    return InstancePCIRequests(requests=list(requests))
