# SPDX-License-Identifier: Apache-2.0
"""[api_database]: nova's API database, which has the cell mappings."""

import copy

from .database import OPTS as _OPTS

GROUP = "api_database"

#: Copies: oslo.config does not distinguish one option object in two groups.
OPTS = tuple(copy.deepcopy(opt) for opt in _OPTS)
