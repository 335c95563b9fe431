# SPDX-License-Identifier: Apache-2.0
"""An instance and the host that was selected for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from ..hosts import Consumption, HostBatch
from .record import WeighedHost
from .weighing import Ranking

#: What is read of a chosen host once its instance is placed: what a selection has, and
#: what is compared with the host's state just before the claim.
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
    """What is kept of a chosen host: the hosts that were ranked take megabytes.

    Attributes
    ----------
    values : mapping
        Of its attributes, by name.
    top_hosts : tuple of WeighedHost
        The best hosts of the ranking, for the record; may be left out.
    """

    values: Mapping[str, Any]
    weight: float
    top_hosts: tuple[WeighedHost, ...] = ()

    @classmethod
    def of(cls, ranking: Ranking, index: int, *, has_top: bool) -> Self:
        """Return what is kept of one host of a ranking."""
        return cls(
            attributes(ranking.hosts, index),
            float(ranking.total[index]),
            ranking.top() if has_top else (),
        )


def attributes(hosts: HostBatch, index: int) -> dict[str, Any]:
    """Return what is read of a chosen host once its instance is placed."""
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
        """Return the same without the hosts that were ranked."""
        return dataclasses.replace(self, ranking=None)
