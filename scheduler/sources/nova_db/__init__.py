# SPDX-License-Identifier: Apache-2.0
"""The source "nova_db": host state from the databases of a nova.

Of the API database it reads cells and aggregates, of each cell's database compute
nodes, services and instances. What it makes of them is what nova's own host manager
would make; what changed since the last look is all that a look reads (`changes`). It
writes host mappings (`discovery`) and the scheduler's own row among nova's services
(`service_record`), where an option asks for it.
"""

from .cells import CellStatus
from .heartbeats import BaseHeartbeats
from .service_record import ServiceRecord
from .source import NovaDBSource, from_conf

__all__ = ["BaseHeartbeats", "CellStatus", "NovaDBSource", "ServiceRecord", "from_conf"]
