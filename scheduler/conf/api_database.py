# SPDX-License-Identifier: Apache-2.0
"""[api_database]: nova's API database; it names the cells."""

import copy

from .database import OPTS as _OPTS

GROUP = "api_database"

#: Copies: oslo.config cannot tell apart one option in two groups.
OPTS = tuple(copy.deepcopy(opt) for opt in _OPTS)
