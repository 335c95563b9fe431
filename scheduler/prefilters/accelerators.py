# SPDX-License-Identifier: Apache-2.0
"""Require hosts that can attach accelerators."""

from __future__ import annotations

import os_traits

from ..request.flavor_and_image import FlavorAndImage
from .base import PrefilterRequest


def accelerators_filter(request: PrefilterRequest) -> None:
    """Require ``COMPUTE_ACCELERATORS`` for a flavor with ``accel:device_profile``."""
    if FlavorAndImage.of(request.spec_obj).extra_spec("accel:device_profile"):
        request.requirements.root_required.add(os_traits.COMPUTE_ACCELERATORS)
