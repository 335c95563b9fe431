# SPDX-License-Identifier: Apache-2.0
"""An instance and the host that was selected for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ..hosts import Consumption
from .weighing import Ranking


@dataclasses.dataclass(frozen=True, slots=True)
class PlacedInstance:
    """An instance with its host, an index into the hosts of a ranking."""

    instance_uuid: str
    ranking: Ranking
    index: int
    candidate: int
    limits: Mapping[str, object]
    consumption: Consumption

    def value(self, name: str) -> str:
        """Return an attribute of the host."""
        return str(self.ranking.hosts.value(name, self.index))
