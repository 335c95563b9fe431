# SPDX-License-Identifier: Apache-2.0
"""The list of prefilters, and the error of one that finds no host."""

from __future__ import annotations

from importlib.metadata import entry_points

from moorage.scheduler.prefilters import DEFAULT_PREFILTERS, no_valid_host


def test_default_prefilters_are_all_that_are_installed() -> None:
    installed = {point.name for point in entry_points(group="moorage.prefilters")}

    assert sorted(DEFAULT_PREFILTERS) == sorted(installed)


def test_order_is_novas() -> None:
    assert DEFAULT_PREFILTERS == (
        "require_tenant_aggregate",
        "map_az_to_placement_aggregate",
        "require_image_type_support",
        "compute_status_filter",
        "isolate_aggregates",
        "transform_image_metadata",
        "accelerators_filter",
        "packed_virtqueue_filter",
        "routed_networks_filter",
        "remote_managed_ports_filter",
        "ephemeral_encryption_filter",
        "virtio_sound_filter",
        "tpm_secret_security_filter",
        "owner_nova_filter",
    )


def test_prefilters_load() -> None:
    for point in entry_points(group="moorage.prefilters"):
        assert callable(point.load())


def test_wording_is_novas() -> None:
    message = str(no_valid_host("No hosts available for tenant"))

    assert message == (
        "No valid host was found. Scheduling failed: No hosts available for tenant"
    )
