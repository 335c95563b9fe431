# SPDX-License-Identifier: Apache-2.0
"""What a guest's features require of Placement, and which images can have them."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.scheduler.errors import InvalidRequest
from moorage.scheduler.request.flavor_and_image import (
    FlavorAndImage,
    feature_resources,
    feature_traits,
)

UEFI = {"hw_firmware_type": "uefi"}
STATELESS = UEFI | {"hw_firmware_stateless": True}


def encrypted(model: str | None, properties: dict[str, Any]) -> FlavorAndImage:
    extra_specs = {"hw:mem_encryption": "true"}
    if model:
        extra_specs["hw:mem_encryption_model"] = model
    return FlavorAndImage(1, extra_specs, properties)


@pytest.mark.parametrize(
    ("model", "properties", "trait"),
    [
        (None, UEFI, "HW_CPU_X86_AMD_SEV"),
        ("amd-sev", UEFI | {"hw_machine_type": "pc-q35-2.11"}, "HW_CPU_X86_AMD_SEV"),
        ("amd-sev-es", UEFI, "HW_CPU_X86_AMD_SEV_ES"),
        ("amd-sev-snp", STATELESS, "HW_CPU_X86_AMD_SEV_SNP"),
        ("intel-tdx", STATELESS | {"hw_video_model": "none"}, "HW_CPU_X86_INTEL_TDX"),
    ],
    ids=str,
)
def test_memory_encryption_is_a_context_and_a_trait(
    model: str | None, properties: dict[str, Any], trait: str
) -> None:
    guest = encrypted(model, properties)

    assert feature_resources(guest) == {"MEM_ENCRYPTION_CONTEXT": 1}
    assert trait in feature_traits(guest)


@pytest.mark.parametrize(
    ("model", "properties", "named"),
    [
        (None, {}, "hw_firmware_type"),
        ("amd-sev", {"hw_firmware_type": "bios"}, "hw_firmware_type"),
        ("amd-sev", UEFI | {"hw_machine_type": "pc"}, "hw_machine_type"),
        ("amd-sev-snp", UEFI, "hw_firmware_stateless"),
        ("intel-tdx", UEFI | {"hw_video_model": "none"}, "hw_firmware_stateless"),
        ("intel-tdx", STATELESS, "hw_video_model"),
        ("intel-tdx", STATELESS | {"hw_video_model": "vga"}, "hw_video_model"),
    ],
    ids=str,
)
def test_image_that_cannot_be_encrypted_is_refused(
    model: str | None, properties: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidRequest, match=named):
        feature_traits(encrypted(model, properties))


def test_guest_without_features_requires_nothing() -> None:
    guest = FlavorAndImage(1, {"hw:mem_encryption": "no"}, {})

    assert feature_traits(guest) == set()
    assert feature_resources(guest) == {}
