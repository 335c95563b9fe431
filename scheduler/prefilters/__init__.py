# SPDX-License-Identifier: Apache-2.0
"""Request prefilters, which add requirements of a request to the Placement query."""

from collections.abc import Mapping
from types import MappingProxyType

from .base import (
    AggregateFacts,
    Aggregates,
    Prefilter,
    PrefilterRequest,
    no_valid_host,
)
from .networks import NetworkClient, NetworkLookup

#: Our entry points of moorage.prefilters, in the order in which they run (nova's).
DEFAULT_PREFILTERS = (
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

#: The option of [scheduler] that enables a prefilter; all other prefilters always run.
ENABLED_BY: Mapping[str, str] = MappingProxyType(
    {
        "require_tenant_aggregate": "limit_tenants_to_placement_aggregate",
        "require_image_type_support": "query_placement_for_image_type_support",
        "isolate_aggregates": "enable_isolated_aggregate_filtering",
        "transform_image_metadata": "image_metadata_prefilter",
        "routed_networks_filter": "query_placement_for_routed_network_aggregates",
    }
)


__all__ = [
    "DEFAULT_PREFILTERS",
    "ENABLED_BY",
    "AggregateFacts",
    "Aggregates",
    "NetworkClient",
    "NetworkLookup",
    "Prefilter",
    "PrefilterRequest",
    "no_valid_host",
]
