# SPDX-License-Identifier: Apache-2.0
"""Make Selection objects, the form in which a conductor receives a selected host."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...objects import SchedulerLimits, Selection
from ..candidates import AllocationRequest
from ..hosts import metadata_values


def make_selection(
    host: Mapping[str, Any],
    default_availability_zone: str,
    limits: Mapping[str, object],
    allocation_request: AllocationRequest | None = None,
    allocation_request_version: str | None = None,
) -> Selection:
    """Return the selection of one host from its attributes.

    Without an allocation request the field is ``null``, as a stock conductor expects
    if nothing is claimed.
    """
    zones = metadata_values(host["aggregates"], "availability_zone")
    return Selection(
        compute_node_uuid=host["uuid"],
        service_host=host["host"],
        nodename=host["nodename"],
        cell_uuid=host["cell_uuid"],
        limits=SchedulerLimits.from_dict(dict(limits)),
        allocation_request=json.dumps(allocation_request),
        allocation_request_version=allocation_request_version,
        availability_zone=min(zones, default=default_availability_zone),
    )
