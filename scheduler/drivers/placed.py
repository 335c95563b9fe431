# SPDX-License-Identifier: Apache-2.0
"""One instance on the host that was chosen for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ..hosts import Consumption
from .weighing import Ranking


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """An instance and its host, an index into the hosts of a ranking."""

    instance_uuid: str
    ranking: Ranking
    index: int
    candidate: int
    limits: Mapping[str, object]
    consumption: Consumption

    def value(self, name: str) -> str:
        """Return an attribute of the host."""
        return str(self.ranking.hosts.value(name, self.index))
