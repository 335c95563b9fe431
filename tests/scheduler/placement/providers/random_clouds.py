# SPDX-License-Identifier: Apache-2.0
"""Random clouds, small and awkward, and random queries for them."""

from __future__ import annotations

import uuid
from random import Random

from moorage.scheduler.placement.providers import InventoryRecord, ProviderRecord

SHARES = "MISC_SHARES_VIA_AGGREGATE"
TRAITS = ("CUSTOM_A", "CUSTOM_B", "HW_CPU_X86_AVX", "COMPUTE_NODE", "STORAGE_DISK_SSD")
#: Known to Placement; no provider has it.
UNUSED_TRAIT = "HW_GPU_API_VULKAN"
CUSTOM_CLASS = "CUSTOM_THING"
COMPUTE = ("VCPU", "PCPU", "MEMORY_MB", "DISK_GB")
DEVICES = ("SRIOV_NET_VF", "VGPU", CUSTOM_CLASS)
AGGREGATES = tuple(str(uuid.UUID(int=0xA << 120 | i)) for i in range(4))
UNUSED_AGGREGATE = str(uuid.UUID(int=0xB << 120))


def random_cloud(rng: Random) -> list[ProviderRecord]:
    """Return the providers of some trees, and sometimes of sharing pools."""
    is_flat = rng.random() < 0.25
    records: list[ProviderRecord] = []
    for _ in range(rng.randint(2, 6)):
        records += [_host(rng)] if is_flat or rng.random() < 0.2 else _tree(rng)
    if rng.random() < 0.5:
        records += [_pool(rng) for _ in range(rng.randint(1, 2))]
    return records


def _host(rng: Random) -> ProviderRecord:
    return _provider(rng, rng.sample(COMPUTE, rng.randint(2, 4)))


def _pool(rng: Random) -> ProviderRecord:
    classes = rng.sample(("DISK_GB", "SRIOV_NET_VF", CUSTOM_CLASS), rng.randint(1, 2))
    return _provider(rng, classes, more_traits=[SHARES])


def _tree(rng: Random) -> list[ProviderRecord]:
    """Return a root, NUMA cells below it, and devices below the cells or the root."""
    on_root = rng.sample(COMPUTE, rng.choice((0, 2, 3, 4)))
    records = [_provider(rng, on_root)]
    cells = []
    for _ in range(rng.randint(0, 2)):
        classes = rng.sample(COMPUTE[:3], rng.randint(1, 3))
        cells.append(_provider(rng, classes, records[0].uuid))
    records += cells
    for _ in range(rng.randint(0, 4)):
        parent = rng.choice(records if rng.random() < 0.2 else [*cells, records[0]])
        devices = rng.sample(DEVICES, rng.choice((0, 1, 1, 1, 2)))
        records.append(_provider(rng, devices, parent.uuid))
    return records


def _provider(
    rng: Random,
    classes: list[str],
    parent_uuid: str | None = None,
    more_traits: list[str] | None = None,
) -> ProviderRecord:
    inventories = {name: _inventory(rng) for name in classes}
    traits = [*(more_traits or []), *_some(rng, TRAITS, 0.4)]
    if rng.random() < 0.01:
        traits.append(SHARES)
    return ProviderRecord(
        str(uuid.UUID(int=rng.getrandbits(128), version=4)),
        parent_uuid,
        rng.randint(0, 9),
        inventories,
        {name: _used(rng, each) for name, each in inventories.items()},
        frozenset(traits),
        frozenset(_some(rng, AGGREGATES, 0.4)),
    )


def _inventory(rng: Random) -> InventoryRecord:
    total = rng.choice((1, 2, 4, 8, 9, 16))
    return InventoryRecord(
        total,
        reserved=rng.choice((*[0] * 12, 1, total)),
        min_unit=rng.choice((*[1] * 9, 2)),
        max_unit=rng.choice((1, 2, 4, *[0x7FFFFFFF] * 9)),
        step_size=rng.choice((*[1] * 9, 2, 3)),
        allocation_ratio=rng.choice((1.0, 1.0, 1.1, 1.5, 0.7, 16.0)),
    )


def _used(rng: Random, inventory: InventoryRecord) -> int:
    """Return a usage, which an operator's change may have left above the capacity."""
    return rng.choice((*[0] * 9, 1, 2, inventory.total))


def _some(rng: Random, values: tuple[str, ...], probability: float) -> list[str]:
    return [value for value in values if rng.random() < probability]


def random_params(rng: Random, cloud: list[ProviderRecord]) -> list[tuple[str, str]]:
    """Return the parameters of a query that Placement accepts."""
    suffixes = rng.sample(
        ("1", "_PORT", "a-b", "_D2"), rng.choice((0, 0, 0, 1, 1, 2, 3))
    )
    target = _target(rng, cloud)
    subtrees = []
    if suffixes and rng.random() < 0.4:
        subtrees = [rng.sample(suffixes, rng.randint(1, len(suffixes)))]
    params = [("same_subtree", ",".join(each)) for each in subtrees]
    if len(suffixes) > 1 or rng.random() < 0.2:
        params.append(("group_policy", rng.choice(("none", "none", "isolate"))))
    is_any_of = rng.random() < 0.2
    has_resources = False
    if not suffixes or rng.random() < 0.7:
        classes = _classes(rng, target, COMPUTE, rng.choice((1, 1, 2, 3)))
        params += _group(rng, cloud, "", classes, is_any_of)
        has_resources = True
    for suffix in suffixes:
        n_classes = rng.choice((1, 1, 1, 2))
        if (
            has_resources
            and any(suffix in each for each in subtrees)
            and rng.random() < 0.4
        ):
            n_classes = 0
        classes = _classes(rng, target, (*DEVICES, "VCPU"), n_classes)
        params += _group(rng, cloud, suffix, classes, is_any_of)
        has_resources = True
    if rng.random() < 0.08:
        params.append(("root_required", _traits(rng)))
    rng.shuffle(params)
    return params


def _target(rng: Random, cloud: list[ProviderRecord]) -> list[ProviderRecord]:
    """Return the providers of one tree, and those that share."""
    chosen = {rng.choice([r for r in cloud if not r.parent_uuid]).uuid}
    target = []
    for record in cloud:  # parents stand before their children
        if {record.uuid, record.parent_uuid} & chosen or SHARES in record.traits:
            chosen.add(record.uuid)
            target.append(record)
    return target


def _classes(
    rng: Random, target: list[ProviderRecord], preferred: tuple[str, ...], n: int
) -> list[str]:
    """Return classes that mostly are in the target, and mostly together."""
    if rng.random() < 0.04:
        return rng.sample((*COMPUTE, *DEVICES), n)
    existing = {name for record in target for name in record.inventories}
    usual = sorted(existing.intersection(preferred) or existing or COMPUTE)
    together = [r for r in target if len(r.inventories) >= n > 0]
    if together and rng.random() < 0.5:
        usual = sorted(rng.choice(together).inventories)
    return rng.sample(usual, min(n, len(usual)))


def _group(
    rng: Random,
    cloud: list[ProviderRecord],
    suffix: str,
    classes: list[str],
    is_any_of: bool,
) -> list[tuple[str, str]]:
    params = []
    if classes:
        pairs = [f"{name}:{rng.choice((1, 1, 1, 1, 1, 1, 2, 3))}" for name in classes]
        params.append((f"resources{suffix}", ",".join(pairs)))
    if not classes or rng.random() < 0.15:
        params.append((f"required{suffix}", _traits(rng)))
    if is_any_of and rng.random() < 0.4:
        traits = rng.sample(TRAITS, rng.randint(1, 3))
        params.append((f"required{suffix}", "in:" + ",".join(traits)))
    n_aggregates = rng.choice((0, 0, 0, 0, 0, 0, 1, 2))
    params += [(f"member_of{suffix}", _member_of(rng)) for _ in range(n_aggregates)]
    if rng.random() < 0.05:
        params.append((f"in_tree{suffix}", rng.choice(cloud).uuid))
    return params


def _traits(rng: Random) -> str:
    names = rng.sample((*TRAITS * 3, UNUSED_TRAIT), rng.choice((1, 1, 1, 2)))
    return ",".join(
        f"!{name}" if rng.random() < 0.4 else name for name in dict.fromkeys(names)
    )


def _member_of(rng: Random) -> str:
    uuids = rng.sample((*AGGREGATES * 4, UNUSED_AGGREGATE), rng.choice((1, 2)))
    prefix = "!" if rng.random() < 0.25 else ""
    is_list = len(uuids) > 1 or rng.random() < 0.5
    return prefix + ("in:" if is_list else "") + ",".join(uuids)
