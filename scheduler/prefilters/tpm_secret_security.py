# SPDX-License-Identifier: Apache-2.0
"""Require hosts that store a virtual TPM's secret as the flavor requests."""

from __future__ import annotations

from types import MappingProxyType

import os_traits

from ..request.features import tpm_traits
from ..request.flavor_and_image import FlavorAndImage
from .base import PrefilterRequest, no_valid_host

_TRAITS = MappingProxyType(
    {
        "user": os_traits.COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER,
        "host": os_traits.COMPUTE_SECURITY_TPM_SECRET_SECURITY_HOST,
        "deployment": os_traits.COMPUTE_SECURITY_TPM_SECRET_SECURITY_DEPLOYMENT,
    }
)


def tpm_secret_security_filter(request: PrefilterRequest) -> None:
    """Require the trait of ``hw:tpm_secret_security``, by default "user", for a vTPM.

    Raises
    ------
    NoValidHost
        The flavor has an unsupported value.
    InvalidRequest
        The TPM's version or model is invalid.
    """
    guest = FlavorAndImage.of(request.spec_obj)
    if not tpm_traits(guest):
        return
    security = guest.extra_spec("hw:tpm_secret_security") or "user"
    if security not in _TRAITS:
        raise no_valid_host(f"TPM secret security '{security}' is not supported.")
    request.requirements.root_required.add(_TRAITS[security])
