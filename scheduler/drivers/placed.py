# SPDX-License-Identifier: Apache-2.0
"""An instance and the host that was selected for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from ..hosts import Consumption, HostBatch
from .record import WeighedHost
from .weighing import Ranking

#: The attributes of a chosen host that are read after placing: those of a selection,
#: and those that are compared with the host's state just before the claim.
_ATTRIBUTES = (
    "uuid",
    "host",
    "nodename",
    "cell_uuid",
    "aggregates",
    "disabled",
    "forced_down",
)


@dataclasses.dataclass(frozen=True, slots=True)
class ChosenHost:
    """A chosen host, without its ranking, which takes megabytes.

    Attributes
    ----------
    values : mapping
        Its attributes, by name.
    top_hosts : tuple of WeighedHost
        The best hosts of the ranking, for the record; may be empty.
    """

    values: Mapping[str, Any]
    weight: float
    top_hosts: tuple[WeighedHost, ...] = ()

    @classmethod
    def of(cls, ranking: Ranking, index: int, *, has_top: bool) -> Self:
        """Return one host of a ranking."""
        return cls(
            read_attributes(ranking.hosts, index),
            float(ranking.total[index]),
            ranking.top() if has_top else (),
        )


def read_attributes(hosts: HostBatch, index: int) -> dict[str, Any]:
    """Return the attributes of a chosen host."""
    return {name: hosts.value(name, index) for name in _ATTRIBUTES}


@dataclasses.dataclass(frozen=True, slots=True)
class PlacedInstance:
    """An instance and its host.

    Attributes
    ----------
    ranking : Ranking or None
        The ranking in which the host is at `index`; None for an instance that is
        neither the one placed last nor the last one of the request.
    """

    instance_uuid: str
    chosen: ChosenHost
    candidate: int
    limits: Mapping[str, object]
    consumption: Consumption
    index: int
    ranking: Ranking | None

    def value(self, name: str) -> str:
        """Return an attribute of the host."""
        return str(self.chosen.values[name])

    def without_ranking(self) -> Self:
        """Return a copy without the ranking, which frees its hosts."""
        return dataclasses.replace(self, ranking=None)
