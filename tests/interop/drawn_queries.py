# SPDX-License-Identifier: Apache-2.0
"""Random requests that draw from everything a Placement query can express.

Values are such that flavor and image seldom contradict each other: a request that is
refused says little about its query.
"""

from __future__ import annotations

import random
from typing import Any

from moorage.objects import (
    Destination,
    Flavor,
    ImageMeta,
    ImageMetaProps,
    RequestGroup,
    RequestLevelParams,
    RequestSpec,
)

TRAITS = ("CUSTOM_A", "CUSTOM_B", "CUSTOM_C", "CUSTOM_D")
CLASSES = ("CUSTOM_BAREMETAL", "CUSTOM_PCI_10DE_20B0")
PMEM_CLASSES = ("CUSTOM_PMEM_NAMESPACE_6GB", "CUSTOM_PMEM_NAMESPACE_A_B")
NODES = (
    "3f1f6a8e-6f0f-4a0b-9d3b-0c6a8f6f7f10",
    "3f1f6a8e-6f0f-4a0b-9d3b-0c6a8f6f7f11",
)
AGGREGATES = tuple(f"7d0c2d42-0d39-4a5b-8f3c-7c3a3f3d9b0{n}" for n in range(1, 7))
PORT = "0e2f9b1c-5d0e-4f7a-9b63-3b1f0a7c4d51"
PCI_REQUEST = "c9e5b2a4-1f83-4b5e-8e0f-6d2c7a9f1b30"

#: Each is drawn alone, so that a request has one of it or none.
GUEST_FEATURES: dict[str, list[str]] = {
    "hw:cpu_thread_policy": ["prefer", "isolate", "require"],
    "hw:emulator_threads_policy": ["share", "isolate"],
    "hw:cpu_realtime": ["yes", "no"],
    "hw:cpu_realtime_mask": ["^0", "1", "0-2,^1", "^1-2", "2-9"],
    "hw:pmem": ["6GB", "6GB, 6GB,a-b,"],
    "hw:tpm_version": ["2.0", "2.0", "2.0", "1.2"],
    "hw:tpm_model": ["tpm-tis", "tpm-tis", "tpm-crb"],
    "os:secure_boot": ["required", "optional"],
    "hw:maxphysaddr_mode": ["passthrough", "emulate"],
    "hw:pci_numa_affinity_policy": ["socket", "legacy", "preferred"],
    "hw:vif_multiqueue_enabled": ["true"],
    "accel:device_profile": ["profile"],
    "quota:cpu_shares": ["10"],
}
UNSUFFIXED: dict[str, list[str]] = {
    "resources:VCPU": ["0", "2", "-1", "x"],
    "resources:PCPU": ["2", "0"],
    "resources:MEMORY_MB": ["0", "64"],
    "resources:DISK_GB": ["0", "5"],
    "resources:VGPU": ["1", "0"],
    "resources:CUSTOM_BAREMETAL": ["1"],
    "resources:FOO": ["1"],
    "resources:MEM_ENCRYPTION_CONTEXT": ["5"],
    "trait:CUSTOM_A": ["required", "forbidden", "perhaps"],
    "trait:CUSTOM_B": ["required"],
    "trait:HW_CPU_HYPERTHREADING": ["required"],
    "resources!:VGPU": ["1"],
}
SUFFIXES = ("1", "2", "17", "_GPU", "_net-1")
GROUP_CLASSES = ("VGPU", "SRIOV_NET_VF", "FPGA", "VCPU", "DISK_GB", "CUSTOM_BAREMETAL")
PROPERTIES: dict[str, list[Any]] = {
    "hw_cpu_policy": ["shared", "shared", "dedicated"],
    "hw_cpu_thread_policy": ["prefer", "isolate"],
    "hw_cpu_realtime_mask": ["^0-1"],
    "hw_tpm_version": ["2.0"],
    "hw_pci_numa_affinity_policy": ["socket"],
    "hw_machine_type": ["q35", "q35", "pc"],
    "os_secure_boot": ["required"],
    "traits_required": [["CUSTOM_C"], ["CUSTOM_D", "CUSTOM_C"]],
}


def drawn_request(rng: random.Random) -> RequestSpec:
    """Return a request with something of everything."""
    groups = _groups_from_outside(rng)
    return RequestSpec(
        flavor=_flavor(rng),
        image=_image(rng),
        is_bfv=rng.random() < 0.3,
        availability_zone=None,
        force_hosts=["h"] if rng.random() < 0.1 else None,
        force_nodes=["n"] if rng.random() < 0.05 else None,
        scheduler_hints=rng.choice(
            [{}, {}, {"group": ["g"]}, {"same_host": ["i"]}, {"query": ["q"]}]
        ),
        requested_resources=groups,
        request_level_params=_level(rng, [group.requester_id for group in groups]),
        requested_destination=_destination(rng),
    )


def _some(rng: random.Random, values: dict[str, list[Any]], most: int) -> dict:
    names = rng.sample(sorted(values), rng.randint(0, most))
    return {name: rng.choice(values[name]) for name in names}


def _flavor(rng: random.Random) -> Flavor:
    extra_specs = _some(rng, GUEST_FEATURES, 4) | _some(rng, UNSUFFIXED, 4)
    extra_specs |= _cpu_policy(rng) | _memory_encryption(rng) | _suffixed_groups(rng)
    return Flavor(
        name="drawn",
        vcpus=rng.choice([1, 4, 4, 4, 4, 6]),
        memory_mb=512,
        root_gb=rng.choice([0, 1]),
        ephemeral_gb=rng.choice([0, 3]),
        swap=rng.choice([0, 1, 1024, 1025]),
        extra_specs=dict(rng.sample(sorted(extra_specs.items()), len(extra_specs))),
    )


def _cpu_policy(rng: random.Random) -> dict[str, str]:
    policy = rng.choice([None, "shared", "dedicated", "dedicated", "mixed"])
    if policy is None:
        return {}
    mask = rng.choice(["0-1", "^0", "1,^2, 3", None, "1-2", "0-9"])
    if policy == "mixed" and mask is not None:
        return {"hw:cpu_policy": policy, "hw:cpu_dedicated_mask": mask}
    return {"hw:cpu_policy": policy}


def _memory_encryption(rng: random.Random) -> dict[str, str]:
    if rng.random() < 0.7:
        return {}
    models = ["amd-sev", "amd-sev-es", "amd-sev-snp", "intel-tdx", None]
    model = rng.choice(models)
    wanted = {"hw:mem_encryption": rng.choice(["true", "1", "no"])}
    return wanted | ({"hw:mem_encryption_model": model} if model else {})


def _suffixed_groups(rng: random.Random) -> dict[str, str]:
    suffixes = rng.sample(SUFFIXES, rng.choice([0, 0, 1, 2, 3]))
    extra_specs = {}
    for suffix in suffixes:
        for name in rng.sample(GROUP_CLASSES, rng.choice([0, 1, 1, 1, 1, 2, 2])):
            extra_specs[f"resources{suffix}:{name}"] = rng.choice("1111120")
        for name in rng.sample(TRAITS, rng.choice([0, 0, 1, 2])):
            extra_specs[f"trait{suffix}:{name}"] = rng.choice(["required", "forbidden"])
    if (len(suffixes) > 1 and rng.random() < 0.9) or rng.random() < 0.1:
        extra_specs["group_policy"] = rng.choice(
            ["none", "isolate", "none", "isolate", "both"]
        )
    return extra_specs


def _image(rng: random.Random) -> ImageMeta:
    properties = _some(rng, PROPERTIES, 3)
    if rng.random() < 0.9:
        properties["hw_firmware_type"] = "uefi"
    if rng.random() < 0.6:
        properties["hw_firmware_stateless"] = rng.choice([True, True, False])
    if rng.random() < 0.5:
        properties["hw_video_model"] = "none"
    if rng.random() < 0.1:
        properties["hw_mem_encryption"] = True
    return ImageMeta(
        id="5f0b4c0a-2c9e-4f43-8d0e-0d0f0c1b2a39",
        name="drawn",
        properties=ImageMetaProps(**properties),
    )


def _groups_from_outside(rng: random.Random) -> list[RequestGroup]:
    makers = {
        PORT: {"NET_BW_EGR_KILOBIT_PER_SEC": 1, "NET_BW_IGR_KILOBIT_PER_SEC": 0},
        f"device_profile_0{PORT}": {"FPGA": 1},
        "device_profile_1": {"FPGA": 2, "CUSTOM_BAREMETAL": 1},
        f"{PCI_REQUEST}-0": {"CUSTOM_PCI_10DE_20B0": 1},
        f"{PCI_REQUEST}-1": {"CUSTOM_PCI_10DE_20B0": rng.choice([1, 1, 0])},
    }
    names = rng.sample(sorted(makers), rng.choice([0, 0, 1, 2, 3]))
    return [_group(rng, name, makers[name]) for name in names]


def _group(rng: random.Random, name: str, resources: dict[str, int]) -> RequestGroup:
    aggregates = rng.choice([[], [], [[AGGREGATES[0]], list(AGGREGATES[2:0:-1])]])
    return RequestGroup(
        requester_id=name,
        use_same_provider=True,
        resources=resources,
        required_traits=set(rng.choice([(), TRAITS[:1], TRAITS[:2]])),
        forbidden_traits=set(rng.choice([(), (), TRAITS[2:]])),
        aggregates=aggregates,
        forbidden_aggregates=set(rng.choice([(), (), AGGREGATES[3:5]])),
        in_tree=NODES[1] if rng.random() < 0.1 else None,
    )


def _level(rng: random.Random, suffixes: list[str]) -> RequestLevelParams:
    level = RequestLevelParams()
    if rng.random() < 0.3:
        level.root_required = set(rng.choice([TRAITS[:1], TRAITS[1:3]]))
    if rng.random() < 0.3:
        level.root_forbidden = {TRAITS[3]}
    if suffixes and rng.random() < 0.5:
        level.same_subtree = [rng.sample(suffixes, rng.randint(1, len(suffixes)))]
    return level


def _destination(rng: random.Random) -> Destination | None:
    if rng.random() < 0.4:
        return None
    destination = Destination()
    if rng.random() < 0.6:
        one, two, three = rng.sample(AGGREGATES, 3)
        destination.aggregates = rng.choice([[f"{two},{one}", three], [one]])
    if rng.random() < 0.4:
        destination.forbidden_aggregates = set(rng.sample(AGGREGATES, 2))
    if rng.random() < 0.3:
        destination.host = "h"
    return destination
