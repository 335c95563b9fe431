# SPDX-License-Identifier: Apache-2.0
"""Properties of an image become traits, each for itself."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.scheduler.placement.query import Requirements
from moorage.scheduler.prefilters.traits import transform_image_metadata

from ...conftest import image
from .surroundings import required, root

GATE = "image_metadata_prefilter"


@pytest.mark.parametrize(
    ("properties", "traits"),
    [
        ({}, []),
        ({"hw_cdrom_bus": "sata"}, ["COMPUTE_STORAGE_BUS_SATA"]),
        ({"hw_disk_bus": "virtio"}, ["COMPUTE_STORAGE_BUS_VIRTIO"]),
        ({"hw_video_model": "none"}, ["COMPUTE_GRAPHICS_MODEL_NONE"]),
        ({"hw_vif_model": "virtio"}, ["COMPUTE_NET_VIF_MODEL_VIRTIO"]),
        ({"hw_architecture": "aarch64"}, ["HW_ARCH_AARCH64"]),
        ({"hw_emulation_architecture": "aarch64"}, ["COMPUTE_ARCH_AARCH64"]),
        ({"hw_viommu_model": "smmuv3"}, ["COMPUTE_VIOMMU_MODEL_SMMUV3"]),
        (
            {"hw_disk_bus": "ide", "hw_architecture": "armv7l", "hw_vif_model": "igb"},
            ["COMPUTE_STORAGE_BUS_IDE", "COMPUTE_NET_VIF_MODEL_IGB"],
        ),
        ({"os_distro": "ubuntu"}, []),
    ],
)
def test_property(properties: dict[str, Any], traits: list[str]) -> None:
    found = required(transform_image_metadata, on=(GATE,), image=image(**properties))
    assert found == root(*traits)


def test_no_image_names_nothing() -> None:
    assert required(transform_image_metadata, on=(GATE,), image=None) == Requirements()
