# SPDX-License-Identifier: Apache-2.0
"""Require hosts with the devices and architectures of the image's properties."""

from __future__ import annotations

from types import MappingProxyType

from ..request.flavor_and_image import set_field
from .base import PrefilterRequest
from .traits import known_trait

#: Prefixes of the traits for an image property's values. nova 34 has COMPUTE_VIOMMU for
#: the last one, which gives no trait of os-traits with any value.
_PREFIXES = MappingProxyType(
    {
        "hw_cdrom_bus": "COMPUTE_STORAGE_BUS",
        "hw_disk_bus": "COMPUTE_STORAGE_BUS",
        "hw_video_model": "COMPUTE_GRAPHICS_MODEL",
        "hw_vif_model": "COMPUTE_NET_VIF_MODEL",
        "hw_architecture": "HW_ARCH",
        "hw_emulation_architecture": "COMPUTE_ARCH",
        "hw_viommu_model": "COMPUTE_VIOMMU_MODEL",
    }
)


def transform_image_metadata(request: PrefilterRequest) -> None:
    """Require the traits of image properties.

    Enabled by ``[scheduler] image_metadata_prefilter``. A value without a trait is
    skipped, and the others are required; nova 34 then requires none of them, and fails
    on a request without an image.
    """
    if not request.conf.scheduler.image_metadata_prefilter:
        return
    properties = set_field(set_field(request.spec_obj, "image"), "properties")
    for name, prefix in _PREFIXES.items():
        value = set_field(properties, name)
        trait = value and known_trait(prefix, value)
        if trait:
            request.requirements.root_required.add(trait)
