# SPDX-License-Identifier: Apache-2.0
"""Conversion of a host's record to the form of a report."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from ..scheduler.hosts import HostRecord


def report_values(record: HostRecord) -> dict[str, Any]:
    """Return the columns as values of HostReport's fields, without `last_seen_up`."""
    plain = {
        column.name: getattr(record, column.name)
        for column in dataclasses.fields(record)
        if column.name != "last_seen_up"
    }
    topology = record.numa_topology
    return {
        **plain,
        "stats": dict(record.stats),
        "metrics": None if record.metrics is None else dict(record.metrics),
        "supported_instances": [list(each) for each in record.supported_instances],
        "numa_topology": None
        if topology is None
        else json.dumps(topology.to_object().obj_to_primitive(), sort_keys=True),
        "pci_stats": json.dumps(record.pci_stats.to_dicts(), sort_keys=True),
    }
