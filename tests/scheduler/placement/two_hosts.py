# SPDX-License-Identifier: Apache-2.0
"""The hosts of the fixture `placement`, and who claims there."""

from __future__ import annotations

import uuid
from typing import Any

HOST, OTHER = (str(uuid.UUID(int=i)) for i in (1, 2))
OWNER: dict[str, Any] = {"project_id": "p", "user_id": "u"}
