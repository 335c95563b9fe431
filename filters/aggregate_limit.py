# SPDX-License-Identifier: Apache-2.0
"""A limit that the aggregates of a host set for one of its columns."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ..scheduler.hosts import HostAggregate, HostBatch

LOG = logging.getLogger(__name__)

AggregateLimits = npt.NDArray[np.int64]

#: Limits beyond int64 are clipped, which makes them no limit at all.
_ENDS: Final = np.iinfo(np.int64)


def aggregate_limits(hosts: HostBatch, key: str, default: int) -> AggregateLimits:
    """Return the smallest integer that each host's aggregates have under a key.

    A host without one has the default. If one of a host's values is not an integer, it
    has the default too, as in nova; one warning covers all such hosts.

    Parameters
    ----------
    key : str
        Of the metadata, and the name of the default's option.

    Returns
    -------
    ndarray of int64, shape (n_hosts,)
    """
    wrong: set[HostAggregate] = set()

    def limit(aggregates: Sequence[HostAggregate]) -> int:
        having = [a for a in aggregates if key in a.metadata]
        try:
            least = min((int(a.metadata[key]) for a in having), default=default)
        except ValueError:
            wrong.update(having)
            least = default
        return max(_ENDS.min, min(least, _ENDS.max))

    limits = hosts.map_distinct("aggregates", limit, np.int64)
    if wrong:
        values = sorted(f"{a.name}: {a.metadata[key]!r}" for a in wrong)
        LOG.warning(
            "%s must be an integer in every aggregate of a host; it is %s; "
            "%d, the option, is used instead",
            key, ", ".join(values), default,
        )  # fmt: skip
    return limits
