# SPDX-License-Identifier: Apache-2.0
"""The hosts of the fixture `placement`."""

from __future__ import annotations

import uuid

HOST, OTHER = (str(uuid.UUID(int=i)) for i in (1, 2))
