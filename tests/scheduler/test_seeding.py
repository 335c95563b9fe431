# SPDX-License-Identifier: Apache-2.0
"""Placement gets of each host what its compute service would report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from moorage.scheduler.placement.seed import Provider
from moorage.scheduler.seeding import providers
from moorage.scheduler.sources.inventory import read_inventory


def _provider(folder: Path, **changes: Any) -> Provider:
    plain = {"cell": "c1", "vcpus": 8, "memory_mb": 4096, "local_gb": 10}
    document = {
        "cells": [{"name": "c1"}],
        "hosts": [{"host": "a", **plain, **changes}, {"host": "b", **plain}],
        "aggregates": [
            {"name": "x", "hosts": ["a", "b"]},
            {"name": "y", "hosts": ["b"]},
        ],
    }
    path = folder / "inventory.yaml"
    path.write_text(yaml.dump(document))
    return next(iter(providers(read_inventory(path))))


def test_plain_host_has_three_resource_classes(tmp_path: Path) -> None:
    provider = _provider(tmp_path)
    assert (provider.name, provider.traits) == ("a", frozenset())
    assert provider.inventories == {
        name: {"total": n, "reserved": 0, "max_unit": n, "allocation_ratio": 1.0}
        for name, n in {"VCPU": 8, "MEMORY_MB": 4096, "DISK_GB": 10}.items()
    }
    assert len(provider.aggregates) == 1


def test_provider_is_named_by_node_and_uuid(tmp_path: Path) -> None:
    number = "5a7a5b4c-26d5-4b3c-9fae-2a1a5a0a0a0a"
    provider = _provider(tmp_path, node="a.example.org", uuid=number)
    assert (provider.name, provider.uuid) == ("a.example.org", number)


def test_vcpus_in_use_leave_room_for_the_rest(tmp_path: Path) -> None:
    provider = _provider(tmp_path, vcpus_used=20, cpu_allocation_ratio=4.0)
    vcpu = provider.inventories["VCPU"]
    capacity = (vcpu["total"] - vcpu["reserved"]) * vcpu["allocation_ratio"]
    assert capacity == 8 * 4 - 20


def test_no_more_is_reserved_than_there_is(tmp_path: Path) -> None:
    provider = _provider(tmp_path, reserved_host_cpus=99)
    assert provider.inventories["VCPU"]["reserved"] == 8


def test_host_without_a_disk_has_no_inventory_of_it(tmp_path: Path) -> None:
    assert _provider(tmp_path, local_gb=0).inventories.keys() == {"VCPU", "MEMORY_MB"}


def test_disabled_host_has_the_trait_of_it(tmp_path: Path) -> None:
    provider = _provider(tmp_path, disabled=True, traits=["CUSTOM_X"])
    assert provider.traits == {"CUSTOM_X", "COMPUTE_STATUS_DISABLED"}


def test_further_resources_are_named_in_placements_terms(tmp_path: Path) -> None:
    provider = _provider(tmp_path, resources={"VGPU": {"total": 4, "max_unit": 1}})
    assert provider.inventories["VGPU"] == {"total": 4, "max_unit": 1}
