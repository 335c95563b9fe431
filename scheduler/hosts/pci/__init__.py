# SPDX-License-Identifier: Apache-2.0
"""PCI devices: a host's pools, a guest's requests, and which hosts suffice."""

from .arrays import NO_NODE, NO_PROVIDER, NOT_THERE, PoolArrays, PoolRows
from .pools import NO_POOLS, HostPools, Pool, PoolKind, Taken
from .requests import PciRequest, providers_of, read_requests
from .stats import PciDeviceStats
from .support import Affinity, take, taken
from .vector import NearPools, supported, supported_alone

__all__ = [
    "NOT_THERE",
    "NO_NODE",
    "NO_POOLS",
    "NO_PROVIDER",
    "Affinity",
    "HostPools",
    "NearPools",
    "PciDeviceStats",
    "PciRequest",
    "Pool",
    "PoolArrays",
    "PoolKind",
    "PoolRows",
    "Taken",
    "providers_of",
    "read_requests",
    "supported",
    "supported_alone",
    "take",
    "taken",
]
