# SPDX-License-Identifier: Apache-2.0
"""nova's versioned objects as they cross the wire, their registry, their serializer.

Names, versions, fields and enums are nova 34's. `WireObject` reads and writes them,
`REGISTRY` keeps ours separate from nova's, `Serializer` is passed to oslo.messaging.
"""

from .aggregate import Aggregate, AggregateList
from .base import REGISTRY, WireObject, read_object
from .cell_mapping import CellMapping, CellMappingList, HostMapping, InstanceMapping
from .compute_node import ComputeNode, ComputeNodeList
from .cpu import VirtCPUFeature, VirtCPUModel, VirtCPUTopology
from .device_metadata import DeviceBus, DeviceMetadata, InstanceDeviceMetadata
from .errors import MalformedObject, TooNewValue, UnsetField, UnsupportedObject
from .flavor import Flavor
from .host_report import REPORT_KEYS, ReportKind, report_data, report_primitive
from .hv_spec import HVSpec
from .image_meta import ImageMeta
from .image_props import ImageMetaProps
from .instance import Instance, InstanceList
from .instance_group import InstanceGroup
from .instance_numa import InstanceNUMACell, InstanceNUMATopology
from .instance_parts import (
    EC2Ids,
    InstanceFault,
    InstanceInfoCache,
    KeyPair,
    KeyPairList,
    MigrationContext,
    Tag,
    TagList,
    TrustedCerts,
)
from .monitor_metric import MonitorMetric, MonitorMetricList
from .network_metadata import NetworkMetadata
from .network_request import NetworkRequest, NetworkRequestList
from .numa import NUMACell, NUMAPagesTopology, NUMATopology, NUMATopologyLimits
from .opaque import OpaqueObject
from .pci_device import PciDevice, PciDeviceList, PciDevicePool, PciDevicePoolList
from .pci_request import InstancePCIRequest, InstancePCIRequests
from .request_group import Destination, RequestGroup, RequestLevelParams
from .request_spec import RequestSpec
from .resource import Resource, ResourceList, ResourceMetadata
from .scheduler_limits import SchedulerLimits, SchedulerRetries
from .security_group import SecurityGroup, SecurityGroupList
from .selection import Selection
from .serializer import Serializer
from .service import Service, ServiceList

__all__ = [
    "REGISTRY",
    "REPORT_KEYS",
    "Aggregate",
    "AggregateList",
    "CellMapping",
    "CellMappingList",
    "ComputeNode",
    "ComputeNodeList",
    "Destination",
    "DeviceBus",
    "DeviceMetadata",
    "EC2Ids",
    "Flavor",
    "HVSpec",
    "HostMapping",
    "ImageMeta",
    "ImageMetaProps",
    "Instance",
    "InstanceDeviceMetadata",
    "InstanceFault",
    "InstanceGroup",
    "InstanceInfoCache",
    "InstanceList",
    "InstanceMapping",
    "InstanceNUMACell",
    "InstanceNUMATopology",
    "InstancePCIRequest",
    "InstancePCIRequests",
    "KeyPair",
    "KeyPairList",
    "MalformedObject",
    "MigrationContext",
    "MonitorMetric",
    "MonitorMetricList",
    "NUMACell",
    "NUMAPagesTopology",
    "NUMATopology",
    "NUMATopologyLimits",
    "NetworkMetadata",
    "NetworkRequest",
    "NetworkRequestList",
    "OpaqueObject",
    "PciDevice",
    "PciDeviceList",
    "PciDevicePool",
    "PciDevicePoolList",
    "ReportKind",
    "RequestGroup",
    "RequestLevelParams",
    "RequestSpec",
    "Resource",
    "ResourceList",
    "ResourceMetadata",
    "SchedulerLimits",
    "SchedulerRetries",
    "SecurityGroup",
    "SecurityGroupList",
    "Selection",
    "Serializer",
    "Service",
    "ServiceList",
    "Tag",
    "TagList",
    "TooNewValue",
    "TrustedCerts",
    "UnsetField",
    "UnsupportedObject",
    "VirtCPUFeature",
    "VirtCPUModel",
    "VirtCPUTopology",
    "WireObject",
    "read_object",
    "report_data",
    "report_primitive",
]
