# SPDX-License-Identifier: Apache-2.0
"""Does the host have fewer I/O operations than its aggregates allow?"""

from __future__ import annotations

from .column_limit import AggregateColumnLimitFilter

REASON = "as many I/O operations as its aggregates allow, or more"


class AggregateIoOpsFilter(AggregateColumnLimitFilter):
    """Pass hosts with fewer I/O operations than their aggregates allow.

    The limit is the metadata ``max_io_ops_per_host``, or else the option.
    """

    REASON = REASON
    COLUMN = "num_io_ops"
    OPTION = "max_io_ops_per_host"
