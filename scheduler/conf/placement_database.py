# SPDX-License-Identifier: Apache-2.0
"""[placement_database]: Placement's database, which is only read."""

import copy

from .database import OPTS as _OPTS

GROUP = "placement_database"

#: Copies: oslo.config does not distinguish one option object in two groups.
OPTS = tuple(copy.deepcopy(opt) for opt in _OPTS)

_BY_NAME = {opt.dest: opt for opt in OPTS}
_BY_NAME["connection"].help = (
    "URL of Placement's database, such as mysql+pymysql://moorage:…@db/placement. It "
    "is only read: the privilege SELECT on all tables suffices. It must be the "
    "database that Placement writes to, or on a cluster node of it."
)
