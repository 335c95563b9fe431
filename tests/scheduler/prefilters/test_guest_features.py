# SPDX-License-Identifier: Apache-2.0
"""Features that flavor and image enable are required of the root provider."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.scheduler.errors import InvalidRequest, NoValidHost
from moorage.scheduler.prefilters import Prefilter
from moorage.scheduler.prefilters.traits import (
    accelerators_filter,
    ephemeral_encryption_filter,
    packed_virtqueue_filter,
    tpm_secret_security_filter,
    virtio_sound_filter,
)

from ...conftest import image
from .surroundings import required, root

ENCRYPTION = "COMPUTE_EPHEMERAL_ENCRYPTION"
SECURITY = "COMPUTE_SECURITY_TPM_SECRET_SECURITY"
TPM = {"hw:tpm_version": "2.0"}


@pytest.mark.parametrize(
    ("prefilter", "extra_specs", "properties", "traits"),
    [
        (accelerators_filter, {}, {}, []),
        (accelerators_filter, {"accel:device_profile": ""}, {}, []),
        (
            accelerators_filter,
            {"accel:device_profile": "fpga"},
            {},
            ["COMPUTE_ACCELERATORS"],
        ),
        (packed_virtqueue_filter, {}, {}, []),
        (packed_virtqueue_filter, {"hw:virtio_packed_ring": "false"}, {}, []),
        (
            packed_virtqueue_filter,
            {"hw:virtio_packed_ring": "true"},
            {},
            ["COMPUTE_NET_VIRTIO_PACKED"],
        ),
        (
            packed_virtqueue_filter,
            {},
            {"hw_virtio_packed_ring": True},
            ["COMPUTE_NET_VIRTIO_PACKED"],
        ),
        (ephemeral_encryption_filter, {}, {}, []),
        (
            ephemeral_encryption_filter,
            {"hw:ephemeral_encryption_format": "luks"},
            {},
            [],
        ),
        (ephemeral_encryption_filter, {"hw:ephemeral_encryption": "1"}, {}, ["ALONE"]),
        (
            ephemeral_encryption_filter,
            {"hw:ephemeral_encryption": "1"},
            {"hw_ephemeral_encryption_format": "luksv2"},
            ["ALONE", "COMPUTE_EPHEMERAL_ENCRYPTION_LUKSV2"],
        ),
        (virtio_sound_filter, {}, {"hw_sound_model": "ich9"}, []),
        (
            virtio_sound_filter,
            {"hw:sound_model": "virtio"},
            {},
            ["COMPUTE_SOUND_MODEL_VIRTIO"],
        ),
        (tpm_secret_security_filter, {"hw:tpm_secret_security": "host"}, {}, []),
        (tpm_secret_security_filter, TPM, {}, [f"{SECURITY}_USER"]),
        (
            tpm_secret_security_filter,
            {"hw:tpm_secret_security": "host"},
            {"hw_tpm_version": "2.0"},
            [f"{SECURITY}_HOST"],
        ),
        (
            tpm_secret_security_filter,
            {**TPM, "hw:tpm_secret_security": "deployment"},
            {},
            [f"{SECURITY}_DEPLOYMENT"],
        ),
    ],
)
def test_feature(
    prefilter: Prefilter,
    extra_specs: dict[str, str],
    properties: dict[str, Any],
    traits: list[str],
) -> None:
    found = required(prefilter, extra_specs=extra_specs, image=image(**properties))
    assert found == root(*(ENCRYPTION if t == "ALONE" else t for t in traits))


@pytest.mark.parametrize(
    ("prefilter", "extra_specs", "properties"),
    [
        (
            packed_virtqueue_filter,
            {"hw:virtio_packed_ring": "true"},
            {"hw_virtio_packed_ring": False},
        ),
        (
            ephemeral_encryption_filter,
            {"hw:ephemeral_encryption": "true", "hw:ephemeral_encryption_format": "x"},
            {},
        ),
        (virtio_sound_filter, {"hw:sound_model": "gramophone"}, {}),
    ],
)
def test_contradictions_and_unknown_values_are_refused(
    prefilter: Prefilter, extra_specs: dict[str, str], properties: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequest):
        required(prefilter, extra_specs=extra_specs, image=image(**properties))


def test_unknown_security_of_a_tpm_fits_nowhere() -> None:
    unknown = {**TPM, "hw:tpm_secret_security": "nobody"}
    with pytest.raises(NoValidHost, match="'nobody' is not supported"):
        required(tpm_secret_security_filter, extra_specs=unknown)


@pytest.mark.parametrize(
    "prefilter",
    [
        accelerators_filter,
        packed_virtqueue_filter,
        ephemeral_encryption_filter,
        virtio_sound_filter,
        tpm_secret_security_filter,
    ],
)
def test_no_image_requires_nothing(prefilter: Prefilter) -> None:
    assert required(prefilter, image=None) == root()
