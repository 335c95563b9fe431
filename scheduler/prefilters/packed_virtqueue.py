# SPDX-License-Identifier: Apache-2.0
"""Require hosts that support packed virtio rings."""

from __future__ import annotations

import os_traits

from ..request.flavor_and_image import FlavorAndImage
from .base import PrefilterRequest


def packed_virtqueue_filter(request: PrefilterRequest) -> None:
    """Require ``COMPUTE_NET_VIRTIO_PACKED`` if flavor or image request packed rings.

    Raises
    ------
    InvalidRequest
        Flavor and image conflict.
    """
    if FlavorAndImage.of(request.spec_obj).agreed_flag("virtio_packed_ring"):
        request.requirements.root_required.add(os_traits.COMPUTE_NET_VIRTIO_PACKED)
