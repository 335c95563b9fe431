# SPDX-License-Identifier: Apache-2.0
"""nova's versioned objects as they cross the wire, their registry, their serializer.

Names, versions, fields and enums are nova 34's. `WireObject` reads and writes them,
`REGISTRY` keeps ours separate from nova's, `Serializer` is passed to oslo.messaging.
"""

from .base import REGISTRY, WireObject
from .cell_mapping import CellMapping, HostMapping, InstanceMapping
from .envelope import OpaqueObject
from .errors import (
    MalformedObject,
    TooNewValue,
    UnsetField,
    UnsupportedObject,
    UnsupportedReportVersion,
)
from .host import (
    Aggregate,
    AggregateList,
    ComputeNode,
    ComputeNodeList,
    HVSpec,
    MonitorMetric,
    MonitorMetricList,
    Service,
    ServiceList,
)
from .host_report import REPORT_KEYS, ReportKind, report_data, report_primitive
from .image import ImageMeta, ImageMetaProps
from .instance import Instance, InstanceList
from .network import (
    NetworkMetadata,
    NetworkRequest,
    NetworkRequestList,
    SecurityGroup,
    SecurityGroupList,
)
from .numa import (
    InstanceNUMACell,
    InstanceNUMATopology,
    NUMACell,
    NUMAPagesTopology,
    NUMATopology,
    NUMATopologyLimits,
)
from .pci import (
    InstancePCIRequest,
    InstancePCIRequests,
    PciDevice,
    PciDevicePool,
    PciDevicePoolList,
)
from .request_parts import (
    Destination,
    Flavor,
    InstanceGroup,
    RequestGroup,
    RequestLevelParams,
    SchedulerRetries,
)
from .request_spec import RequestSpec
from .selection import SchedulerLimits, Selection
from .serializer import Serializer

__all__ = [
    "REGISTRY",
    "REPORT_KEYS",
    "Aggregate",
    "AggregateList",
    "CellMapping",
    "ComputeNode",
    "ComputeNodeList",
    "Destination",
    "Flavor",
    "HVSpec",
    "HostMapping",
    "ImageMeta",
    "ImageMetaProps",
    "Instance",
    "InstanceGroup",
    "InstanceList",
    "InstanceMapping",
    "InstanceNUMACell",
    "InstanceNUMATopology",
    "InstancePCIRequest",
    "InstancePCIRequests",
    "MalformedObject",
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
    "PciDevicePool",
    "PciDevicePoolList",
    "ReportKind",
    "RequestGroup",
    "RequestLevelParams",
    "RequestSpec",
    "SchedulerLimits",
    "SchedulerRetries",
    "SecurityGroup",
    "SecurityGroupList",
    "Selection",
    "Serializer",
    "Service",
    "ServiceList",
    "TooNewValue",
    "UnsetField",
    "UnsupportedObject",
    "UnsupportedReportVersion",
    "WireObject",
    "report_data",
    "report_primitive",
]
