# SPDX-License-Identifier: Apache-2.0
"""Require hosts that support the disk format of the image."""

from __future__ import annotations

from ..request.flavor_and_image import set_field
from .base import PrefilterRequest
from .traits import known_trait


def require_image_type_support(request: PrefilterRequest) -> None:
    """Require ``COMPUTE_IMAGE_TYPE_*`` of the image's disk format.

    Enabled by ``[scheduler] query_placement_for_image_type_support``. Nothing is
    required for an instance that boots from a volume, for a request without an image
    (nova 34 fails on it) and for a format without a trait.
    """
    if not request.conf.scheduler.query_placement_for_image_type_support:
        return
    if set_field(request.spec_obj, "is_bfv"):
        return
    disk_format = set_field(set_field(request.spec_obj, "image"), "disk_format")
    trait = disk_format and known_trait("COMPUTE_IMAGE_TYPE", disk_format)
    if trait:
        request.requirements.root_required.add(trait)
