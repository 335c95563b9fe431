# SPDX-License-Identifier: Apache-2.0
"""Translation of Glance's image properties, with current and old names, to fields."""

from __future__ import annotations

from collections.abc import Container, Mapping
from itertools import count, takewhile
from typing import Any

# Names of properties before they had the prefixes hw_, img_ and os_.
_OLD_NAMES = {
    "architecture": "hw_architecture",
    "auto_disk_config": "hw_auto_disk_config",
    "bdm_v2": "img_bdm_v2",
    "bittorrent": "img_bittorrent",
    "block_device_mapping": "img_block_device_mapping",
    "cache_in_nova": "img_cache_in_nova",
    "hypervisor_type": "img_hv_type",
    "hypervisor_version_requires": "img_hv_requested_version",
    "ipxe_boot": "hw_ipxe_boot",
    "mappings": "img_mappings",
    "owner_id": "img_owner_id",
    "root_device_name": "img_root_device_name",
    "vm_mode": "hw_vm_mode",
    "vmware_disktype": "hw_disk_type",
    "vmware_image_version": "img_version",
    "vmware_linked_clone": "img_linked_clone",
    "vmware_ostype": "os_distro",
    "xenapi_device_id": "hw_device_id",
    "xenapi_image_compression_level": "img_compression_level",
    "xenapi_skip_agent_inject_files_at_boot": "os_skip_agent_inject_files_at_boot",
    "xenapi_skip_agent_inject_ssh": "os_skip_agent_inject_ssh",
    "xenapi_use_agent": "img_use_agent",
}
_SPECIAL = {"hw_numa_cpus", "hw_numa_mem", "traits_required"}
_MAX_NUMA_NODES = 128
_MAX_CPU = 65_535


def image_properties(
    given: Mapping[str, Any], fields: Container[str]
) -> dict[str, Any]:
    """Translate Glance's properties to fields; current names override old ones."""
    properties = {
        current_name: given[old_name]
        for old_name, current_name in _OLD_NAMES.items()
        if old_name in given
    }
    adapter = given.get("vmware_adaptertype")
    if adapter:
        properties["hw_disk_bus"] = "ide" if adapter == "ide" else "scsi"
        if adapter != "ide":
            properties["hw_scsi_model"] = adapter
    properties |= {
        name: value
        for name, value in given.items()
        if name in fields and name not in _SPECIAL
    }
    lists = {
        "hw_numa_mem": [int(text) for text in _numbered(given, "hw_numa_mem")],
        "hw_numa_cpus": [parse_cpus(text) for text in _numbered(given, "hw_numa_cpus")],
        "traits_required": [
            name.removeprefix("trait:")
            for name, value in given.items()
            if name.startswith("trait:") and value == "required"
        ],
    }
    return properties | {name: values for name, values in lists.items() if values}


def _numbered(image_props: Mapping[str, Any], name: str) -> list[Any]:
    keys = (f"{name}.{number}" for number in count())
    present = takewhile(lambda key: key in image_props, keys)
    return [
        image_props[key]
        for key, _ in zip(present, range(_MAX_NUMA_NODES), strict=False)
    ]


def parse_cpus(text: str) -> set[int]:
    """Parse a CPU list such as ``0-3,^2,7``."""
    included: set[int] = set()
    excluded: set[int] = set()
    for rule in filter(None, map(str.strip, text.split(","))):
        target = excluded if rule.startswith("^") else included
        first_cpu, _, last_cpu = rule.removeprefix("^").partition("-")
        if not first_cpu.strip().isdecimal() or (
            last_cpu and not last_cpu.strip().isdecimal()
        ):
            raise ValueError(f"{text[:60]!r} is not a list of CPUs like 0-3,^2,7")
        cpus = range(int(first_cpu), int(last_cpu or first_cpu) + 1)
        if not cpus:
            raise ValueError(f"{text[:60]!r} has an inverted range, {rule}")
        if cpus[-1] > _MAX_CPU:
            raise ValueError(f"{text[:60]!r} names a CPU above {_MAX_CPU}")
        target.update(cpus)
    return included - excluded
