# SPDX-License-Identifier: Apache-2.0
"""Require hosts that can encrypt ephemeral disks."""

from __future__ import annotations

from types import MappingProxyType

import os_traits

from ..request.flavor_and_image import FlavorAndImage
from .base import PrefilterRequest

_FORMATS = MappingProxyType(
    {
        "plain": os_traits.COMPUTE_EPHEMERAL_ENCRYPTION_PLAIN,
        "luks": os_traits.COMPUTE_EPHEMERAL_ENCRYPTION_LUKS,
        "luksv2": os_traits.COMPUTE_EPHEMERAL_ENCRYPTION_LUKSV2,
    }
)


def ephemeral_encryption_filter(request: PrefilterRequest) -> None:
    """Require ``COMPUTE_EPHEMERAL_ENCRYPTION`` and the format's trait, if requested.

    Raises
    ------
    InvalidRequest
        The format is unknown, or flavor and image conflict.
    """
    guest = FlavorAndImage.of(request.spec_obj)
    if not guest.agreed_flag("ephemeral_encryption"):
        return
    root_required = request.requirements.root_required
    root_required.add(os_traits.COMPUTE_EPHEMERAL_ENCRYPTION)
    if found := guest.agreed("ephemeral_encryption_format", _FORMATS):
        root_required.add(_FORMATS[found])
