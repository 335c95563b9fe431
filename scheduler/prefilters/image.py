# SPDX-License-Identifier: Apache-2.0
"""Prefilters by the image: its disk format, devices and architectures."""

from __future__ import annotations

from types import MappingProxyType

import os_traits
from oslo_log import log as logging

from ..request import set_field
from .base import PrefilterRequest

LOG = logging.getLogger(__name__)

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


def require_image_type_support(request: PrefilterRequest) -> None:
    """Require ``COMPUTE_IMAGE_TYPE_*`` of the image's disk format.

    Enabled by ``[scheduler] query_placement_for_image_type_support``. Nothing is
    required for an instance that boots from a volume, for a request without an image
    (nova 34 fails on it) and for a format without a trait.
    """
    if not request.conf.scheduler.query_placement_for_image_type_support:
        return
    if not request.parsed.field("is_bfv"):
        disk_format = set_field(request.parsed.field("image"), "disk_format")
        _require(request, "COMPUTE_IMAGE_TYPE", disk_format)


def transform_image_metadata(request: PrefilterRequest) -> None:
    """Require the traits of image properties.

    Enabled by ``[scheduler] image_metadata_prefilter``. A value without a trait is
    skipped, and the others are required; nova 34 then requires none of them, and fails
    on a request without an image.
    """
    if not request.conf.scheduler.image_metadata_prefilter:
        return
    for name, prefix in _PREFIXES.items():
        _require(request, prefix, request.parsed.settings.image_property(name))


def _require(request: PrefilterRequest, prefix: str, value: str | None) -> None:
    """Require the trait of a value, if there is one.

    Placement rejects a whole query that has an unknown trait.
    """
    if not value:
        return
    trait = f"{prefix}_{value.replace('-', '_').upper()}"
    if hasattr(os_traits, trait):
        request.requirements.root_required.add(trait)
    else:
        LOG.error("os-traits has no trait %s for %r: it is not required", trait, value)
