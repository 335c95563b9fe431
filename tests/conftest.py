# SPDX-License-Identifier: Apache-2.0
"""Builders of what tests decide on: hosts, requests, options."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable
from typing import Any

import pytest
from oslo_config import cfg

from moorage.objects import (
    Flavor,
    ImageMeta,
    ImageMetaProps,
    InstanceGroup,
    RequestSpec,
)
from moorage.scheduler.conf import load
from moorage.scheduler.hosts import Aggregate, HostBatch, HostRecord, HostTable

CELL = str(uuid.uuid5(uuid.NAMESPACE_DNS, "cell"))

#: Now, for every clock that a test hands in.
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
    """The UUID of the compute node of that name."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"node.{name}"))


def instance_uuid(name: object) -> str:
    """The UUID of the instance of that name."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"instance.{name}"))


def host(**changes: Any) -> HostRecord:
    """A host with 6 of 8 vCPUs, 8 of 16 GiB and 50 of 100 GB free."""
    name = changes.get("host", "host")
    node = changes.get("nodename", name)
    names = {"nodename": node, "hypervisor_hostname": node, "uuid": node_uuid(node)}
    return dataclasses.replace(_PLAIN, **{**names, **changes})


def hosts(column: str, values: Iterable[Any], **changes: Any) -> list[HostRecord]:
    """Hosts named a, b, … that differ in one column."""
    return [
        host(**{"host": chr(ord("a") + i), column: value, **changes})
        for i, value in enumerate(values)
    ]


def table(
    *records: HostRecord,
    aggregates: Iterable[Aggregate] = (),
    instances: dict[str, Iterable[str]] | None = None,
) -> HostTable:
    """A host table of these records."""
    made = HostTable()
    for record in records:
        made.put(record)
    for aggregate in aggregates:
        made.put_aggregate(aggregate)
    for name, uuids in (instances or {}).items():
        made.set_instances(name, list(uuids))
    return made


def batch(*records: HostRecord, **more: Any) -> HostBatch:
    """All rows of a table of these records."""
    return table(*records, **more).batch()


def aggregate(number: int, *names: str, **metadata: str) -> Aggregate:
    """An aggregate of the hosts of these names."""
    return Aggregate(
        id=number,
        uuid=str(uuid.uuid5(uuid.NAMESPACE_DNS, f"aggregate.{number}")),
        name=f"aggregate{number}",
        hosts=frozenset(names),
        metadata=metadata,
    )


def group(policy: str, **fields: Any) -> InstanceGroup:
    """A server group of that policy, on no host and without members."""
    return InstanceGroup(**{"policy": policy, "hosts": [], "members": [], **fields})


def image(**properties: Any) -> ImageMeta:
    """An image with these properties."""
    return ImageMeta(properties=ImageMetaProps(**properties))


def spec(**changes: Any) -> RequestSpec:
    """A request for one instance of 1 vCPU, 1 GiB and 10 GB."""
    flavor = Flavor(
        name="plain",
        flavorid="1",
        vcpus=1,
        memory_mb=1024,
        root_gb=10,
        ephemeral_gb=0,
        swap=0,
        extra_specs=changes.pop("extra_specs", {}),
    )
    plain: dict[str, Any] = {
        "flavor": flavor,
        "image": image(),
        "num_instances": 1,
        "instance_uuid": instance_uuid("asked for"),
        "project_id": "project",
        "user_id": "user",
    }
    return RequestSpec(**{**plain, **changes})


@pytest.fixture
def conf() -> cfg.ConfigOpts:
    """Our options with their defaults."""
    return load([], config_files=[])


def options(**filter_scheduler: Any) -> cfg.ConfigOpts:
    """Our options, some of the group [filter_scheduler] changed."""
    made = load([], config_files=[])
    for name, value in filter_scheduler.items():
        made.set_override(name, value, group="filter_scheduler")
    return made
