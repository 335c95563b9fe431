# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies for hosts and requests of all kinds."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from ..objects import (
    CellMapping,
    Destination,
    Flavor,
    ImageMeta,
    ImageMetaProps,
    InstanceGroup,
    InstanceNUMACell,
    InstancePCIRequest,
    RequestSpec,
)
from ..scheduler.hosts import (
    Column,
    Consumption,
    HostAggregate,
    HostBatch,
    HostRecord,
)
from ..scheduler.hosts.numa import HostTopology
from ..scheduler.hosts.pci import HostPools
from . import builders

_GIB = 1024

#: Few names, so that hosts, aggregates, groups and hints refer to the same ones.
HOST_NAMES = tuple(f"h{i}" for i in range(6))
INSTANCES = tuple(builders.instance_uuid(i) for i in range(8))
PROJECTS = ("project", "other", "a,b")
IMAGES = tuple(builders.instance_uuid(f"image {i}") for i in range(3))
CELLS = (builders.CELL, builders.node_uuid("another cell"))

_CPU_INFO = (
    None,
    "",
    "no JSON",
    "[]",
    "{}",
    json.dumps({"arch": "x86_64", "topology": {"cores": 4}}),
    json.dumps({"maxphysaddr": {"bits": 42}, "features": ["avx", "avx2"]}),
    json.dumps({"maxphysaddr": {"bits": 52}, "topology": {"cores": 64}}),
)
_STATS: Sequence[Mapping[str, str]] = (
    {"tier": "1"},
    {"tier": "gold", "num_os_type_linux": "3"},
    {"tier": "2.5", "ssd": "true"},
    {"ssd": '{"speed": {"read": "7"}}'},
)
_METRICS: Sequence[Mapping[str, float]] = (
    {},
    {"cpu.percent": 50},
    {"cpu.percent": 7, "cpu.frequency": 2400},
    {"cpu.frequency": 0},
)

#: The values in which a host may differ from `moorage.testing.host`.
COLUMNS: Mapping[str, Sequence[Any]] = {
    "cell_uuid": CELLS[1:],
    "total_usable_ram_mb": (0, 65536),
    "free_ram_mb": (-512, 0, 1, 1024, 16384),
    "total_usable_disk_gb": (0, 1000),
    "free_disk_mb": (-_GIB, 0, _GIB, 100 * _GIB),
    "disk_mb_used": (0,),
    "vcpus_total": (0, 64),
    "vcpus_used": (0, 8, 200),
    "cpu_allocation_ratio": (0.5, 1.1, 16.0),
    "num_instances": (1, 2, 3, 49, 50),
    "num_io_ops": (1, 2, 3, 8),
    "failed_builds": (1, 50),
    "stats": _STATS,
    "metrics": _METRICS,
    "hypervisor_type": ("ironic", "VMware vCenter Server"),
    "hypervisor_version": (0, 1, 7001000, 8000000),
    "supported_instances": (
        (),
        (("i686", "qemu", "hvm"), ("x86_64", "qemu", "hvm")),
        (("aarch64", "kvm", "hvm"), ("x86_64", "xen", "xen")),
    ),
    "cpu_info": _CPU_INFO,
    "numa_topology": (
        HostTopology.read(builders.numa_topology(builders.numa_cell(0))),
        HostTopology.read(builders.numa_topology(*map(builders.numa_cell, range(2)))),
    ),
    "pci_stats": (HostPools.read(builders.pci_pools(builders.pci_pool(2))),),
    "places": ((("rack", "r1"),), (("rack", "r2"), ("row", "b"))),
    "host_ip": ("10.0.0.5", "10.0.1.5", "10.1.0.5", "fd00::5"),
    "disabled": (True,),
    "forced_down": (True,),
    "last_seen_up": (
        *(builders.NOW + seconds for seconds in (0.0, -59.0, -60.0, -61.0, 3600.0)),
        math.nan,
    ),
}

#: The metadata that an aggregate may have.
METADATA: Mapping[str, Sequence[str]] = {
    "availability_zone": ("zone1", "zone2"),
    "filter_tenant_id": (*PROJECTS, "", "project, other"),
    "ram_weight_multiplier": ("0", "2", "-1.5", "high", ""),
    "max_instances_per_host": ("0", "3", "3.5", "many", "2,3", "-1"),
    "ssd": ("true", "false", "1", ""),
    "tier": ("1", "gold", "gold,silver"),
}

#: The extra specs that a flavor may have.
EXTRA_SPECS: Mapping[str, Sequence[str]] = {
    "hw:cpu_policy": ("dedicated", "shared"),
    "ssd": ("true", "false", "1", " ", ""),
    "tier": ("1", "gold", "= 1", "<in> o", "\N{SNOWMAN}"),
    "trait:CUSTOM_GOLD": ("required", "forbidden"),
}

PROPERTIES: Mapping[str, Sequence[Any]] = {
    "hw_architecture": ("x86_64", "aarch64", "i686"),
    "img_hv_type": ("kvm", "qemu", "xen"),
    "hw_vm_mode": ("hvm", "xen"),
    "img_hv_requested_version": (">=6.0", ">=7.0,<8.1", "<6.0"),
    "hw_maxphysaddr_bits": (40, 48),
    "os_distro": ("debian", "ubuntu"),
    "hw_disk_bus": ("virtio", "scsi"),
    "hw_vif_multiqueue_enabled": (True, False),
}

#: Properties of the images from which instances were created, as texts.
_IMAGE_PROPERTIES: Sequence[Mapping[str, str]] = (
    {"os_distro": "debian"},
    {"os_distro": "debian", "hw_disk_bus": "virtio", "hw_architecture": "x86_64"},
    {"hw_disk_bus": "scsi", "hw_vif_multiqueue_enabled": "True"},
)


@dataclasses.dataclass(frozen=True, slots=True)
class DrawnHosts:
    """The content of a host table: hosts, the instances on each, and aggregates.

    Attributes
    ----------
    instances : mapping
        Instance UUIDs by service host.
    images : mapping
        The properties of the instances' images by instance UUID, as nova stores them:
        texts.
    declared : sequence of Column
        Columns in addition to the columns of `HostRecord`.
    """

    records: tuple[HostRecord, ...]
    aggregates: tuple[HostAggregate, ...] = ()
    instances: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    images: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    declared: Sequence[Column] = ()

    def batch(self) -> HostBatch:
        """Return all hosts as a batch."""
        return builders.batch(
            *self.records,
            declared=self.declared,
            aggregates=self.aggregates,
            instances=self.instances,
            images=self.images,
        )


def drawn_hosts(
    *,
    max_hosts: int = 6,
    metadata: Mapping[str, Sequence[str]] | None = None,
    columns: Mapping[str, Sequence[Any]] | None = None,
    declared: Sequence[Column] = (),
) -> st.SearchStrategy[DrawnHosts]:
    """Draw hosts of mixed hardware, in aggregates with contradictory metadata.

    Parameters
    ----------
    max_hosts : int
        The maximum number of hosts, at least 1.
    metadata : mapping, optional
        Values by key that aggregates may have, in addition to `METADATA`.
    columns : mapping, optional
        Values by attribute that hosts may have, in addition to `COLUMNS`.
    declared : sequence of Column, optional
        Columns of plugins that hosts have; name their values in `columns`.
    """
    return st.builds(
        DrawnHosts,
        records=_records(max_hosts, columns),
        declared=st.just(declared),
        aggregates=_aggregates(metadata),
        instances=st.dictionaries(
            st.sampled_from(HOST_NAMES),
            st.lists(st.sampled_from(INSTANCES), unique=True, max_size=4),
            max_size=3,
        ),
        images=st.dictionaries(
            st.sampled_from(INSTANCES), st.sampled_from(_IMAGE_PROPERTIES), max_size=3
        ),
    )


@st.composite
def _records(
    draw: st.DrawFn, max_hosts: int, columns: Mapping[str, Sequence[Any]] | None
) -> tuple[HostRecord, ...]:
    # A name drawn twice is a service host with two nodes, as with Ironic.
    names = draw(st.lists(st.sampled_from(HOST_NAMES), min_size=1, max_size=max_hosts))
    changes = _entries(COLUMNS, columns, 8)
    return tuple(
        builders.host(host=name, nodename=f"{name}-{number}", **draw(changes))
        for number, name in enumerate(names)
    )


def _aggregates(
    preferred: Mapping[str, Sequence[str]] | None,
) -> st.SearchStrategy[tuple[HostAggregate, ...]]:
    drawn_aggregate = st.tuples(
        st.sets(st.sampled_from(HOST_NAMES), max_size=4),
        _entries(METADATA, preferred, 5),
    )
    return st.lists(drawn_aggregate, max_size=4).map(
        lambda drawn: tuple(
            builders.aggregate(number, *sorted(names), **metadata)
            for number, (names, metadata) in enumerate(drawn, 1)
        )
    )


def _entries(
    values_of: Mapping[str, Sequence[Any]],
    preferred: Mapping[str, Sequence[Any]] | None,
    max_pairs: int,
) -> st.SearchStrategy[dict[str, Any]]:
    """Draw keys, each with one of its values; each pair is one draw, for speed."""
    pairs = st.sampled_from(_pairs({**values_of, **(preferred or {})}))
    if preferred:
        # The values that a plugin's author adds must not be rare among all values.
        pairs = st.sampled_from(_pairs(preferred)) | pairs
    return st.lists(pairs, max_size=max_pairs).map(dict)


def _pairs(values_of: Mapping[str, Sequence[Any]]) -> list[tuple[str, Any]]:
    return [(key, value) for key, values in values_of.items() for value in values]


@st.composite
def batches(
    draw: st.DrawFn,
    *,
    max_hosts: int = 6,
    metadata: Mapping[str, Sequence[str]] | None = None,
    columns: Mapping[str, Sequence[Any]] | None = None,
    declared: Sequence[Column] = (),
) -> HostBatch:
    """Draw batches of hosts, as a plugin receives them; see `drawn_hosts`.

    In some batches, the request has already placed an instance on a host.
    """
    drawn = draw(
        drawn_hosts(
            max_hosts=max_hosts, metadata=metadata, columns=columns, declared=declared
        )
    )
    hosts = drawn.batch()
    if draw(st.booleans()):
        consumption = Consumption(memory_mb=_GIB, disk_mb=10 * _GIB, vcpus=1)
        hosts = hosts.with_instance(0, builders.instance_uuid("placed"), consumption)
    return hosts


_GROUPS = st.none() | st.builds(
    lambda policy, members, hosts, rules: InstanceGroup(
        uuid=builders.instance_uuid("group"),
        policy=policy,
        policies=[policy],
        members=members,
        hosts=hosts,
        rules=rules,
    ),
    policy=st.sampled_from(
        ["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"]
    ),
    members=st.lists(st.sampled_from(INSTANCES), unique=True, max_size=6),
    hosts=st.lists(st.sampled_from(HOST_NAMES), unique=True, max_size=3),
    rules=st.sampled_from([{}, {"max_server_per_host": "2"}]),
)
_DESTINATIONS = st.none() | st.builds(
    lambda cell, may_leave: Destination(
        cell=CellMapping(uuid=cell), allow_cross_cell_move=may_leave
    ),
    cell=st.sampled_from(CELLS),
    may_leave=st.booleans(),
)

#: The scheduler hints that a request may have.
HINTS: Mapping[str, Sequence[Sequence[str]]] = {
    "different_host": (INSTANCES[:1], INSTANCES[2:5]),
    "nobody_reads_this": (["x"],),
    "_nova_check_type": (["rebuild"],),
}


def _hints(
    preferred: Mapping[str, Sequence[Sequence[str]]] | None,
) -> st.SearchStrategy[dict[str, list[str]]]:
    return _entries(HINTS, preferred, 2).map(
        lambda hints: {name: list(values) for name, values in hints.items()}
    )


def requests(
    *,
    extra_specs: Mapping[str, Sequence[str]] | None = None,
    hints: Mapping[str, Sequence[Sequence[str]]] | None = None,
) -> st.SearchStrategy[RequestSpec]:
    """Draw requests: flavors, images, groups and hints, including invalid ones.

    Parameters
    ----------
    extra_specs : mapping, optional
        Values by key that a flavor may have, in addition to `EXTRA_SPECS`.
    hints : mapping, optional
        Values by name of the scheduler hint, in addition to `HINTS`; each value is
        a list of texts, as in a request: ``{"rack": [["r1"], ["r2"]]}``.
    """
    return st.builds(
        _request,
        name=st.sampled_from(["plain", "large"]),
        extra_specs=_entries(EXTRA_SPECS, extra_specs, 3),
        image=_images(),
        group=_GROUPS,
        hints=_hints(hints),
        project=st.sampled_from(PROJECTS),
        instance=st.sampled_from([builders.instance_uuid("asked for"), *INSTANCES[:2]]),
        destination=_DESTINATIONS,
        cell=st.none() | st.builds(builders.guest_cell),
        device=st.none() | st.builds(builders.pci_request),
    )


def _images() -> st.SearchStrategy[ImageMeta | None]:
    images = st.builds(
        lambda properties, of_volume, id_: ImageMeta(
            properties=ImageMetaProps(**properties),
            **({} if of_volume else {"id": id_}),
        ),
        properties=_entries(PROPERTIES, None, 3),
        of_volume=st.booleans(),
        id_=st.sampled_from(IMAGES),
    )
    return st.none() | images


def _request(  # noqa: PLR0913 - one for each part that is drawn, by name
    *,
    name: str,
    extra_specs: dict[str, str],
    image: ImageMeta | None,
    group: InstanceGroup | None,
    hints: dict[str, list[str]],
    project: str,
    instance: str,
    destination: Destination | None,
    cell: InstanceNUMACell | None,
    device: InstancePCIRequest | None,
) -> RequestSpec:
    flavor = Flavor(
        name=name,
        flavorid="1",
        vcpus=1,
        memory_mb=_GIB,
        root_gb=10,
        ephemeral_gb=0,
        swap=0,
        extra_specs=extra_specs,
    )
    return builders.spec(
        numa_topology=cell and builders.guest_topology(cell),
        pci_requests=device and builders.pci_requests(device),
        flavor=flavor,
        image=image,
        instance_group=group,
        scheduler_hints=hints,
        instance_uuid=instance,
        project_id=project,
        requested_destination=destination,
        is_bfv=image is None,
    )
