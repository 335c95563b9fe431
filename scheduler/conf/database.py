# SPDX-License-Identifier: Apache-2.0
"""[database]: the database of the cell in which nova's own scheduler would run."""

import copy
from typing import Final

from oslo_db import options

GROUP = "database"

#: Those of oslo.db's options that are read: the URL, and what an engine gets.
_NAMES: Final = (
    "connection",
    "mysql_sql_mode",
    "mysql_wsrep_sync_wait",
    "connection_recycle_time",
    "connection_debug",
    "connection_trace",
    "max_pool_size",
    "max_overflow",
    "pool_timeout",
    "sqlite_synchronous",
    "connection_parameters",
)

OPTS = tuple(copy.deepcopy(opt) for opt in options.database_opts if opt.dest in _NAMES)
