# SPDX-License-Identifier: Apache-2.0
"""[database]: the database of the cell that nova's own scheduler would run in."""

import copy

from oslo_db import options

GROUP = "database"

#: oslo.db's own; nova leaves out the same one.
OPTS = tuple(
    copy.deepcopy(opt)
    for opt in options.database_opts
    if opt.dest != "use_db_reconnect"
)
