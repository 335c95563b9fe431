# SPDX-License-Identifier: Apache-2.0
"""[database]: the database of the cell in which nova's own scheduler would run."""

import copy

from oslo_db import options

GROUP = "database"

#: oslo.db's options, except use_db_reconnect, which nova omits, too.
OPTS = tuple(
    copy.deepcopy(opt)
    for opt in options.database_opts
    if opt.dest != "use_db_reconnect"
)
