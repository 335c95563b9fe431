# SPDX-License-Identifier: Apache-2.0
"""The availability zone of each host, as nova shows it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ..hosts import HostAggregate, HostBatch


def zone_of(aggregates: Iterable[HostAggregate], default: str) -> str:
    """Return the zone of a host in these aggregates."""
    zones = (aggregate.availability_zone for aggregate in aggregates)
    return next(filter(None, zones), default)


def zones_of(hosts: HostBatch, default: str) -> npt.NDArray[np.object_]:
    """Return each host's zone, shape (n_hosts,).

    Parameters
    ----------
    default : str
        ``default_availability_zone``.
    """
    zones: npt.NDArray[np.object_]
    zones = hosts.map_distinct(
        "aggregates", lambda aggregates: zone_of(aggregates, default), object
    )
    return zones
