# SPDX-License-Identifier: Apache-2.0
"""Require hosts that support virtio sound cards."""

from __future__ import annotations

import os_traits

from ...objects.enums import SoundModelType
from ..request.flavor_and_image import FlavorAndImage
from .base import PrefilterRequest


def virtio_sound_filter(request: PrefilterRequest) -> None:
    """Require ``COMPUTE_SOUND_MODEL_VIRTIO`` if flavor or image request virtio.

    Raises
    ------
    InvalidRequest
        The model is unknown, or flavor and image conflict.
    """
    model = FlavorAndImage.of(request.spec_obj).agreed(
        "sound_model", SoundModelType.VALUES
    )
    if model == "virtio":
        request.requirements.root_required.add(os_traits.COMPUTE_SOUND_MODEL_VIRTIO)
