# SPDX-License-Identifier: Apache-2.0
"""Does the host have few enough I/O operations in progress?"""

from __future__ import annotations

from .column_limit import ColumnLimitFilter

REASON = "as many I/O operations as max_io_ops_per_host allows, or more"


class IoOpsFilter(ColumnLimitFilter):
    """Pass hosts with fewer I/O operations than ``max_io_ops_per_host``."""

    REASON = REASON
    COLUMN = "num_io_ops"
    OPTION = "max_io_ops_per_host"
