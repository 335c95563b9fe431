# SPDX-License-Identifier: Apache-2.0
"""Request prefilters: what a request means to Placement."""

from .base import Aggregates, Prefilter, PrefilterRequest, fits_nowhere

#: Entry points of moorage.prefilters, in the order in which they run, which is nova's.
DEFAULT_PREFILTERS = (
    "map_az_to_placement_aggregate",
    "compute_status_filter",
)

__all__ = [
    "DEFAULT_PREFILTERS",
    "Aggregates",
    "Prefilter",
    "PrefilterRequest",
    "fits_nowhere",
]
