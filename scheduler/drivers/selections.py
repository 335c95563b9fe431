# SPDX-License-Identifier: Apache-2.0
"""Selections: the form in which a conductor gets a selected host."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ...objects import SchedulerLimits, Selection
from ..hosts import HostBatch, metadata_values
from ..placement.candidates import AllocationRequest


def selection(
    hosts: HostBatch,
    index: int,
    default_availability_zone: str,
    limits: Mapping[str, object],
    allocation_request: AllocationRequest | None = None,
    allocation_request_version: str | None = None,
) -> Selection:
    """Return the selection of one host of a batch.

    Without an allocation request that field is ``null``, as a stock conductor expects
    where nothing is claimed.
    """
    zones = metadata_values(hosts.value("aggregates", index), "availability_zone")
    return Selection(
        compute_node_uuid=hosts.value("uuid", index),
        service_host=hosts.value("host", index),
        nodename=hosts.value("nodename", index),
        cell_uuid=hosts.value("cell_uuid", index),
        limits=SchedulerLimits.from_dict(dict(limits)),
        allocation_request=json.dumps(allocation_request),
        allocation_request_version=allocation_request_version,
        availability_zone=min(zones, default=default_availability_zone),
    )
