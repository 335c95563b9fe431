# SPDX-License-Identifier: Apache-2.0
"""The traits and resources that a guest's features need from Placement.

One function per feature. The rules are those of nova 34
(``nova.scheduler.utils`` and ``nova.virt.hardware``).
"""

from __future__ import annotations

from collections import Counter

import os_resource_classes as orc
import os_traits
from oslo_log import log as logging

from ..errors import InvalidRequest, excerpt
from .flavor_and_image import FlavorAndImage

LOG = logging.getLogger(__name__)

_MEMORY_ENCRYPTION_TRAITS = {
    "amd-sev": os_traits.HW_CPU_X86_AMD_SEV,
    "amd-sev-es": os_traits.HW_CPU_X86_AMD_SEV_ES,
    "amd-sev-snp": os_traits.HW_CPU_X86_AMD_SEV_SNP,
    "intel-tdx": os_traits.HW_CPU_X86_INTEL_TDX,
}
_NEED_STATELESS_FIRMWARE = frozenset({"amd-sev-snp", "intel-tdx"})
_NEED_NO_VIDEO = frozenset({"intel-tdx"})
_TPM_VERSION_TRAITS = {
    "1.2": os_traits.COMPUTE_SECURITY_TPM_1_2,
    "2.0": os_traits.COMPUTE_SECURITY_TPM_2_0,
}
_TPM_MODEL_TRAITS = {
    "tpm-tis": os_traits.COMPUTE_SECURITY_TPM_TIS,
    "tpm-crb": os_traits.COMPUTE_SECURITY_TPM_CRB,
}
_MAXPHYSADDR_TRAITS = {
    "passthrough": os_traits.COMPUTE_ADDRESS_SPACE_PASSTHROUGH,
    "emulate": os_traits.COMPUTE_ADDRESS_SPACE_EMULATED,
}
_PCI_POLICIES = ("required", "legacy", "preferred", "socket")
_SECURE_BOOT = ("required", "disabled", "optional")


def memory_encryption_traits(guest: FlavorAndImage) -> set[str]:
    """Return the trait of the requested encryption, AMD SEV if no model is named.

    Raises
    ------
    InvalidRequest
        The model is unknown or contradictory, or the image does not support it.
    """
    if not guest.agreed_flag("mem_encryption"):
        return set()
    model = guest.agreed("mem_encryption_model", _MEMORY_ENCRYPTION_TRAITS) or "amd-sev"
    _check_encryptable(guest, model)
    return {_MEMORY_ENCRYPTION_TRAITS[model]}


def _check_encryptable(guest: FlavorAndImage, model: str) -> None:
    _check_image(guest, model, "hw_firmware_type", "uefi")
    # Without a machine type, the compute service checks its default.
    machine_type = guest.image_property("hw_machine_type")
    if machine_type is not None and "q35" not in machine_type:
        raise _not_encryptable(model, "hw_machine_type", machine_type, "a q35")
    if model in _NEED_STATELESS_FIRMWARE:
        _check_image(guest, model, "hw_firmware_stateless", True)
    if model in _NEED_NO_VIDEO:
        _check_image(guest, model, "hw_video_model", "none")


def _check_image(guest: FlavorAndImage, model: str, name: str, needed: object) -> None:
    value = guest.image_property(name)
    if value != needed:
        raise _not_encryptable(model, name, value, repr(needed))


def _not_encryptable(
    model: str, name: str, value: object, expected: str
) -> InvalidRequest:
    return InvalidRequest(
        f"{name} of the image is {excerpt(value)}; it must be {expected} for memory "
        f"encryption with {model}"
    )


def tpm_traits(guest: FlavorAndImage) -> set[str]:
    """Return the traits of a virtual TPM's version and model, TIS if none is named.

    Raises
    ------
    InvalidRequest
        Version or model is unknown or contradictory, or CRB is requested with 1.2.
    """
    version = guest.agreed("tpm_version", _TPM_VERSION_TRAITS)
    if version is None:
        return set()
    model = guest.agreed("tpm_model", _TPM_MODEL_TRAITS) or "tpm-tis"
    if model == "tpm-crb" and version != "2.0":
        raise InvalidRequest(
            f"hw:tpm_model is 'tpm-crb' with hw:tpm_version {excerpt(version)}; "
            "it must be 'tpm-tis', or the version '2.0'"
        )
    return {_TPM_VERSION_TRAITS[version], _TPM_MODEL_TRAITS[model]}


def secure_boot_traits(guest: FlavorAndImage) -> set[str]:
    """Return the trait of UEFI secure boot if it is required, not just optional."""
    is_required = guest.agreed("secure_boot", _SECURE_BOOT, prefix="os") == "required"
    return {os_traits.COMPUTE_SECURITY_UEFI_SECURE_BOOT} if is_required else set()


def maxphysaddr_traits(guest: FlavorAndImage) -> set[str]:
    """Return the trait of the mode of the guest's physical address width."""
    mode = guest.agreed("maxphysaddr_mode", _MAXPHYSADDR_TRAITS)
    return {_MAXPHYSADDR_TRAITS[mode]} if mode else set()


def stateless_firmware_traits(guest: FlavorAndImage) -> set[str]:
    """Return the trait of stateless firmware, which requires a UEFI image."""
    if not guest.image_property("hw_firmware_stateless"):
        return set()
    if guest.image_property("hw_firmware_type") != "uefi":
        LOG.warning("hw_firmware_stateless is ignored: hw_firmware_type is not uefi")
        return set()
    return {os_traits.COMPUTE_SECURITY_STATELESS_FIRMWARE}


def pci_affinity_traits(guest: FlavorAndImage) -> set[str]:
    """Return the trait of hosts that can place PCI devices and CPUs on one socket."""
    policy = guest.agreed("pci_numa_affinity_policy", _PCI_POLICIES)
    return {os_traits.COMPUTE_SOCKET_PCI_NUMA_AFFINITY} if policy == "socket" else set()


_FEATURES = (
    memory_encryption_traits,
    tpm_traits,
    pci_affinity_traits,
    secure_boot_traits,
    maxphysaddr_traits,
    stateless_firmware_traits,
)


def feature_traits(guest: FlavorAndImage) -> set[str]:
    """Return the traits that a host needs for all of a guest's features.

    Raises
    ------
    InvalidRequest
        A value is unknown, or flavor and image contradict each other.
    """
    return set().union(*(traits(guest) for traits in _FEATURES))


def feature_resources(guest: FlavorAndImage) -> dict[str, int]:
    """Return the resources of a guest's features: encryption contexts, pmem."""
    resources = dict(_pmem_namespaces(guest))
    if guest.agreed_flag("mem_encryption"):
        resources[orc.MEM_ENCRYPTION_CONTEXT] = 1
    return resources


def _pmem_namespaces(guest: FlavorAndImage) -> Counter[str]:
    labels = map(str.strip, (guest.extra_spec("hw:pmem") or "").split(","))
    return Counter(
        orc.normalize_name(f"PMEM_NAMESPACE_{label}") for label in labels if label
    )
