# SPDX-License-Identifier: Apache-2.0
"""Prefilters that require hosts with a feature that flavor or image request.

Each raises InvalidRequest if a value is unknown, or if flavor and image conflict.
"""

from __future__ import annotations

from types import MappingProxyType

import os_traits

from ...objects.enums import SOUND_MODEL_TYPE
from ..request.features import tpm_traits
from .base import PrefilterRequest, no_valid_host

_ENCRYPTION_FORMATS = MappingProxyType(
    {
        "plain": os_traits.COMPUTE_EPHEMERAL_ENCRYPTION_PLAIN,
        "luks": os_traits.COMPUTE_EPHEMERAL_ENCRYPTION_LUKS,
        "luksv2": os_traits.COMPUTE_EPHEMERAL_ENCRYPTION_LUKSV2,
    }
)
_TPM_SECRET_SECURITY = MappingProxyType(
    {
        "user": os_traits.COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER,
        "host": os_traits.COMPUTE_SECURITY_TPM_SECRET_SECURITY_HOST,
        "deployment": os_traits.COMPUTE_SECURITY_TPM_SECRET_SECURITY_DEPLOYMENT,
    }
)


def accelerators_filter(request: PrefilterRequest) -> None:
    """Require ``COMPUTE_ACCELERATORS`` for a flavor with ``accel:device_profile``."""
    if request.parsed.settings.extra_spec("accel:device_profile"):
        request.requirements.root_required.add(os_traits.COMPUTE_ACCELERATORS)


def packed_virtqueue_filter(request: PrefilterRequest) -> None:
    """Require ``COMPUTE_NET_VIRTIO_PACKED`` if flavor or image request packed rings."""
    if request.parsed.settings.agreed_flag("virtio_packed_ring"):
        request.requirements.root_required.add(os_traits.COMPUTE_NET_VIRTIO_PACKED)


def ephemeral_encryption_filter(request: PrefilterRequest) -> None:
    """Require ``COMPUTE_EPHEMERAL_ENCRYPTION`` and the format's trait, if requested."""
    settings = request.parsed.settings
    if not settings.agreed_flag("ephemeral_encryption"):
        return
    root_required = request.requirements.root_required
    root_required.add(os_traits.COMPUTE_EPHEMERAL_ENCRYPTION)
    if found := settings.agreed("ephemeral_encryption_format", _ENCRYPTION_FORMATS):
        root_required.add(_ENCRYPTION_FORMATS[found])


def virtio_sound_filter(request: PrefilterRequest) -> None:
    """Require ``COMPUTE_SOUND_MODEL_VIRTIO`` if flavor or image request virtio."""
    model = request.parsed.settings.agreed("sound_model", SOUND_MODEL_TYPE.valid_values)
    if model == "virtio":
        request.requirements.root_required.add(os_traits.COMPUTE_SOUND_MODEL_VIRTIO)


def tpm_secret_security_filter(request: PrefilterRequest) -> None:
    """Require the trait of ``hw:tpm_secret_security``, by default "user", for a vTPM.

    Raises
    ------
    NoValidHost
        The flavor has an unsupported value.
    """
    settings = request.parsed.settings
    if not tpm_traits(settings):
        return
    security = settings.extra_spec("hw:tpm_secret_security") or "user"
    if security not in _TPM_SECRET_SECURITY:
        raise no_valid_host(f"TPM secret security '{security}' is not supported.")
    request.requirements.root_required.add(_TPM_SECRET_SECURITY[security])
