# SPDX-License-Identifier: Apache-2.0
"""Does the host have few enough instances?"""

from __future__ import annotations

from .column_limit import ColumnLimitFilter

REASON = "as many instances as max_instances_per_host allows, or more"


class NumInstancesFilter(ColumnLimitFilter):
    """Pass hosts with fewer instances than ``max_instances_per_host``."""

    REASON = REASON
    COLUMN = "num_instances"
    OPTION = "max_instances_per_host"
