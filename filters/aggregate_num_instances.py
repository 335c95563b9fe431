# SPDX-License-Identifier: Apache-2.0
"""Does the host have fewer instances than its aggregates allow?"""

from __future__ import annotations

from .column_limit import AggregateColumnLimitFilter

REASON = "as many instances as its aggregates allow, or more"


class AggregateNumInstancesFilter(AggregateColumnLimitFilter):
    """Pass hosts with fewer instances than their aggregates allow.

    The limit is the metadata ``max_instances_per_host``, or else the option.
    """

    REASON = REASON
    COLUMN = "num_instances"
    OPTION = "max_instances_per_host"
