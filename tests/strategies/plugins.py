# SPDX-License-Identifier: Apache-2.0
"""Hosts and requests with all values that our own filters and weighers read."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from moorage.objects import RequestSpec
from moorage.scheduler.hosts import HostBatch
from moorage.testing.strategies import (
    INSTANCES,
    PROJECTS,
    DrawnHosts,
    batches,
    drawn_hosts,
    requests,
)

from .hardware import random_model
from .offers import random_report, random_request

#: The metadata that an aggregate may have: valid, conflicting and invalid values.
METADATA: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(
        (
            "ram_weight_multiplier",
            "cpu_weight_multiplier",
            "disk_weight_multiplier",
            "io_ops_weight_multiplier",
            "hypervisor_version_weight_multiplier",
            "num_instances_weight_multiplier",
            "metrics_weight_multiplier",
            "soft_affinity_weight_multiplier",
            "soft_anti_affinity_weight_multiplier",
            "build_failure_weight_multiplier",
            "cross_cell_move_weight_multiplier",
            "image_props_weight_multiplier",
        ),
        ("0", "2", "-1.5", " 3 ", "high", "", "1,2", "1e3"),
    ),
    "max_io_ops_per_host": ("0", "1", "3", "3.5", "many", "", " 2 ", "2,3", "-1"),
    "max_instances_per_host": ("0", "1", "3", "3.5", "many", "", " 2 ", "2,3", "-1"),
    "filter_tenant_id": (*PROJECTS, "", "project, other"),
    "filter_tenant_id_2": ("other", "project"),
    "instance_type": ("plain", "large", "plain, large", ""),
    "ssd": ("true", "false", "1", "2, 3"),
    "tier": ("1", "gold", "gold,silver"),
    "hw_architecture": ("x86_64", "aarch64"),
    "os_distro": ("debian", "debian, ubuntu", ""),
    "hw_disk_bus": ("virtio", "scsi"),
    "hw_vif_multiqueue_enabled": ("True", "true"),
    "availability_zone": ("zone1", "zone2"),
    "hw_": ("x",),
}

EXTRA_SPEC_VALUES = (
    "1",
    "true",
    "gold",
    "",
    " ",
    "= 1",
    ">= 1024",
    "<= 2",
    "== 1",
    "!= 3",
    "s== gold",
    "s!= gold",
    "s< h",
    "s>= a",
    "<in> o",
    "<in> v2 extra",
    "<all-in> a v x",
    "<or> gold <or> 1",
    "<or> 1",
    "<or>",
    "<in>",
    ">=",
    "=",
    "== gold",
    ">= nan",
    "\N{SNOWMAN}",
)
EXTRA_SPECS: Mapping[str, Sequence[str]] = dict.fromkeys(
    (
        "ssd",
        "tier",
        "free_ram_mb",
        "nothing_of_that_name",
        "capabilities:tier",
        "capabilities:ssd",
        "capabilities:ssd:speed:read",
        "capabilities:free_ram_mb",
        "capabilities:num_instances",
        "capabilities:hypervisor_type",
        "capabilities:hypervisor_version",
        "capabilities:cpu_allocation_ratio",
        "capabilities:cpu_info:arch",
        "capabilities:cpu_info:topology:cores",
        "capabilities:cpu_info:features",
        "capabilities:vcpus_used:deeper",
        "capabilities:",
        "aggregate_instance_extra_specs:ssd",
        "aggregate_instance_extra_specs:tier",
        "aggregate_instance_extra_specs:a:b",
        "hw:cpu_policy",
        "trait:CUSTOM_GOLD",
    ),
    EXTRA_SPEC_VALUES,
) | {"hw:maxphysaddr_bits": ("40", "48", "x")}

_QUERIES: Sequence[list[Any]] = (
    [">=", "$free_ram_mb", 1024],
    ["<", "$free_disk_mb", 51200, 102400],
    ["=", "$hypervisor_type", "QEMU"],
    ["in", "$host", "h0", "h2"],
    ["and", [">", "$vcpus_total", 4], ["not", ["=", "$host", "h1"]]],
    ["or", ["<=", "$num_io_ops", 1], [">=", "$num_instances", 3]],
    ["not", ["=", "$host", "h0"], ["=", "$host", "h1"]],
    ["=", "$stats.tier", "gold"],
    ["=", "$no_such_attribute", 1],
    ["<", "$vcpus_used"],
    ["and"],
    ["or"],
    [],
)

_UUIDS = [
    list(itertools.islice(itertools.cycle(INSTANCES), first, first + length))
    for first in range(len(INSTANCES))
    for length in (1, 2, 3)
]
HINTS: Mapping[str, Sequence[Sequence[str]]] = {
    "same_host": _UUIDS,
    "different_host": _UUIDS,
    "query": [[json.dumps(query)] for query in _QUERIES],
    "build_near_host_ip": [["10.0.0.77"], ["fd00::1"]],
    "cidr": [["/16"], ["/24"], ["/31"]],
}

#: Few hosts with NUMA cells and PCI devices, and requests that nearly fit them.
_RNG = random.Random(34)
_REPORTS = tuple(random_report(_RNG, "h", random_model(_RNG)) for _ in range(8))
_NEEDS = tuple(random_request(_RNG, near) for near in _REPORTS for _ in range(3))

COLUMNS: Mapping[str, Sequence[Any]] = {
    "numa_topology": [report.record().numa_topology for report in _REPORTS],
    "pci_stats": [report.record().pci_stats for report in _REPORTS],
}


def plugin_hosts() -> st.SearchStrategy[DrawnHosts]:
    """Draw hosts and aggregates for any of our plugins."""
    return drawn_hosts(metadata=METADATA, columns=COLUMNS)


def plugin_batches() -> st.SearchStrategy[HostBatch]:
    """Draw the same as a batch."""
    return batches(metadata=METADATA, columns=COLUMNS)


def plugin_requests() -> st.SearchStrategy[RequestSpec]:
    """Draw requests for any of our plugins; some nearly fit the hosts' devices."""
    return st.builds(
        _with_cells_and_devices,
        requests(extra_specs=EXTRA_SPECS, hints=HINTS),
        st.none() | st.sampled_from(_NEEDS),
    )


def _with_cells_and_devices(
    spec_obj: RequestSpec, needs: RequestSpec | None
) -> RequestSpec:
    if needs is not None:
        copied = needs.obj_clone()
        for name in _NEEDED:
            if name in needs:
                setattr(spec_obj, name, getattr(copied, name))
    return spec_obj


_NEEDED = ("numa_topology", "pci_requests", "network_metadata", "requested_resources")
