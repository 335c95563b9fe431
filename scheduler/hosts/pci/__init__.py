# SPDX-License-Identifier: Apache-2.0
"""PCI devices: a host's pools, a guest's requests, and which hosts suffice."""

from .arrays import NO_NODE, NO_PROVIDER, NOT_THERE, PoolArrays, PoolRows
from .pools import NO_POOLS, HostPools, Pool, PoolKind, TakenPools
from .stats import PciDeviceStats
from .support import (
    Providers,
    apply_requests,
    single_pools,
    supported,
    supported_alone,
)

__all__ = [
    "NOT_THERE",
    "NO_NODE",
    "NO_POOLS",
    "NO_PROVIDER",
    "HostPools",
    "PciDeviceStats",
    "Pool",
    "PoolArrays",
    "PoolKind",
    "PoolRows",
    "Providers",
    "TakenPools",
    "apply_requests",
    "single_pools",
    "supported",
    "supported_alone",
]
