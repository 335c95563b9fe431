# SPDX-License-Identifier: Apache-2.0
"""Prefilters that require or forbid traits.

First those of compute services that nova-compute sets; then those of features that
flavor or image request. If both flavor and image can have a setting, its prefilter
raises InvalidRequest if a value is unknown, or if flavor and image have different
values.
"""

from __future__ import annotations

from types import MappingProxyType

import os_traits
from oslo_log import log as logging

from ...objects.enums import SOUND_MODEL_TYPE
from ..request import Request, get_field
from ..request.flavor_and_image import tpm_traits
from .base import PrefilterRequest, no_valid_host

LOG = logging.getLogger(__name__)

#: The first nova-compute service version that reports OWNER_NOVA.
_MIN_SERVICE_VERSION = 73
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
#: Prefixes of the traits for an image property's values. For hw_viommu_model, nova 34
#: has the prefix COMPUTE_VIOMMU, with which no trait of os-traits begins that ends with
#: a value of the property.
_IMAGE_PREFIXES = MappingProxyType(
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


def compute_status_filter(request: PrefilterRequest) -> None:
    """Forbid the trait that a disabled compute service sets on its compute nodes."""
    request.requirements.root_forbidden.add(os_traits.COMPUTE_STATUS_DISABLED)


def owner_nova_filter(request: PrefilterRequest) -> None:
    """Require ``OWNER_NOVA`` of the compute node and of PCI devices.

    The trait is required only if every compute service reports it, that is, if the
    lowest version of a compute service is 73 or more. nova 34 reads that version from
    the databases of all cells for every request; here it is in the host table. If the
    source reports no versions, the trait is not required.

    A request that requires the trait already is not changed (nova's rule).
    """
    if request.min_service_version < _MIN_SERVICE_VERSION:
        return
    parsed = Request.of(request.spec_obj)
    if os_traits.OWNER_NOVA in parsed.root_required:
        return
    requirements = request.requirements
    requirements.root_required.add(os_traits.OWNER_NOVA)
    # The groups of PCI devices have the suffixes "<id of the PCI request>-<n>".
    pci_requests = get_field(request.spec_obj, "pci_requests")
    ids = {
        request_id
        for pci_request in get_field(pci_requests, "requests") or ()
        if (request_id := get_field(pci_request, "request_id"))
        and pci_request.source != pci_request.NEUTRON_PORT
    }
    for group in parsed.requested_groups:
        if group.suffix and group.suffix.rsplit("-", 1)[0] in ids:
            required = requirements.group_required.setdefault(group.suffix, set())
            required.add(os_traits.OWNER_NOVA)


def accelerators_filter(request: PrefilterRequest) -> None:
    """Require ``COMPUTE_ACCELERATORS`` for a flavor with ``accel:device_profile``."""
    if Request.of(request.spec_obj).settings.extra_specs.get("accel:device_profile"):
        request.requirements.root_required.add(os_traits.COMPUTE_ACCELERATORS)


def packed_virtqueue_filter(request: PrefilterRequest) -> None:
    """Require ``COMPUTE_NET_VIRTIO_PACKED`` if flavor or image request packed rings."""
    if Request.of(request.spec_obj).settings.agreed_flag("virtio_packed_ring"):
        request.requirements.root_required.add(os_traits.COMPUTE_NET_VIRTIO_PACKED)


def ephemeral_encryption_filter(request: PrefilterRequest) -> None:
    """Require ``COMPUTE_EPHEMERAL_ENCRYPTION`` and the format's trait, if requested."""
    settings = Request.of(request.spec_obj).settings
    if not settings.agreed_flag("ephemeral_encryption"):
        return
    root_required = request.requirements.root_required
    root_required.add(os_traits.COMPUTE_EPHEMERAL_ENCRYPTION)
    disk_format = settings.agreed("ephemeral_encryption_format", _ENCRYPTION_FORMATS)
    if disk_format:
        root_required.add(_ENCRYPTION_FORMATS[disk_format])


def virtio_sound_filter(request: PrefilterRequest) -> None:
    """Require ``COMPUTE_SOUND_MODEL_VIRTIO`` if flavor or image request virtio."""
    settings = Request.of(request.spec_obj).settings
    model = settings.agreed("sound_model", SOUND_MODEL_TYPE.valid_values)
    if model == "virtio":
        request.requirements.root_required.add(os_traits.COMPUTE_SOUND_MODEL_VIRTIO)


def tpm_secret_security_filter(request: PrefilterRequest) -> None:
    """Require the trait of ``hw:tpm_secret_security``, by default "user", for a vTPM.

    Raises
    ------
    NoValidHost
        The flavor has an unsupported value.
    """
    settings = Request.of(request.spec_obj).settings
    if not tpm_traits(settings):
        return
    security = settings.extra_specs.get("hw:tpm_secret_security") or "user"
    if security not in _TPM_SECRET_SECURITY:
        raise no_valid_host(f"TPM secret security '{security}' is not supported.")
    request.requirements.root_required.add(_TPM_SECRET_SECURITY[security])


# -- features of which only the image decides ------------------------------------------


def require_image_type_support(request: PrefilterRequest) -> None:
    """Require ``COMPUTE_IMAGE_TYPE_*`` of the image's disk format.

    The prefilter is enabled by ``[scheduler] query_placement_for_image_type_support``.
    Nothing is required for an instance that boots from a volume, for a request without
    an image (nova 34 fails on it), and for a disk format without a trait.
    """
    parsed = Request.of(request.spec_obj)
    if not parsed.is_bfv:
        disk_format = get_field(parsed.image, "disk_format")
        _require_trait(request, "COMPUTE_IMAGE_TYPE", disk_format)


def transform_image_metadata(request: PrefilterRequest) -> None:
    """Require the traits of image properties.

    The prefilter is enabled by ``[scheduler] image_metadata_prefilter``. A value
    without a trait is skipped, and the traits of the other values are required. If
    there is such a value, nova 34 requires none of the traits; it also fails on a
    request without an image.
    """
    properties = Request.of(request.spec_obj).settings.properties
    for name, prefix in _IMAGE_PREFIXES.items():
        _require_trait(request, prefix, properties.get(name))


def _require_trait(request: PrefilterRequest, prefix: str, value: str | None) -> None:
    """Require the trait of a value; if os-traits has no such trait, require nothing.

    Placement would reject a query with an unknown trait.
    """
    if not value:
        return
    trait = f"{prefix}_{value.replace('-', '_').upper()}"
    if hasattr(os_traits, trait):
        request.requirements.root_required.add(trait)
    else:
        LOG.error("os-traits has no trait %s for %r: it is not required", trait, value)
