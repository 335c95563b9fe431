# SPDX-License-Identifier: Apache-2.0
"""The host table: one array a column, one row a compute node."""

from .aggregates import (
    AggregateMap,
    HostAggregate,
    PlacementPlace,
    metadata_values,
)
from .batch import HostBatch, HostState, without
from .claims import Consumption
from .column_arrays import TableImage, UnreportedClaim
from .columns import Column
from .instances import (
    ImageProperties,
    ImageProperty,
    properties_of_image,
    properties_of_instance,
)
from .launches import Group, Launch, Launches
from .numa import HostTopology, Limits
from .pci import HostPools
from .record import COLUMNS, Columns, HostRecord
from .table import HostTable

__all__ = [
    "COLUMNS",
    "AggregateMap",
    "Column",
    "Columns",
    "Consumption",
    "Group",
    "HostAggregate",
    "HostBatch",
    "HostPools",
    "HostRecord",
    "HostState",
    "HostTable",
    "HostTopology",
    "ImageProperties",
    "ImageProperty",
    "Launch",
    "Launches",
    "Limits",
    "PlacementPlace",
    "TableImage",
    "UnreportedClaim",
    "metadata_values",
    "properties_of_image",
    "properties_of_instance",
    "without",
]
