# SPDX-License-Identifier: Apache-2.0
"""Ask for hosts whose guests can have packed virtio rings."""

from __future__ import annotations

import os_traits

from ..placement.guest import Guest
from .base import PrefilterRequest


def packed_virtqueue_filter(request: PrefilterRequest) -> None:
    """Require ``COMPUTE_NET_VIRTIO_PACKED`` where flavor or image ask for such rings.

    Raises
    ------
    InvalidRequest
        Flavor and image contradict each other.
    """
    if Guest.of(request.spec_obj).agreed_flag("virtio_packed_ring"):
        request.requirements.root_required.add(os_traits.COMPUTE_NET_VIRTIO_PACKED)
