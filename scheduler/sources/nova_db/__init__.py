# SPDX-License-Identifier: Apache-2.0
"""The source "nova_db": host state from nova's databases.

It reads cells and aggregates from the API database, and compute nodes, services and
instances from each cell's database. The result equals that of nova's own host manager;
a poll reads only what changed since the last one (`changes`). Where options enable it,
it also writes host mappings (`discovery`) and the scheduler's own row in ``services``
(`service_record`).
"""

from .heartbeats import BaseHeartbeats
from .polled_databases import CellStatus
from .service_record import ServiceRecord
from .source import NovaDBSource, from_conf

__all__ = ["BaseHeartbeats", "CellStatus", "NovaDBSource", "ServiceRecord", "from_conf"]
