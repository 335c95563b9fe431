# SPDX-License-Identifier: Apache-2.0
"""The steps of a decision, as its driver calls them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..errors import PluginError
from ..hosts import HostBatch
from ..request import Request
from .base import Selections
from .claims.accepting import (
    Accept,
    Claims,
    accept_any,
    claim_in_placement,
    reserve_in_ledger,
)
from .claims.ledger import Ledger
from .instances import PlacedInstance
from .weighing import Ranking

if TYPE_CHECKING:
    from .decision import Decision


class Steps:
    """Implements `DecisionSteps` on a decision.

    Parameters
    ----------
    ledger : Ledger or None
        None: any host is accepted.
    claims : Claims or None
        None: nothing is claimed; candidates are reserved in the ledger.

    Attributes
    ----------
    placed : list of PlacedInstance
        The instances that have a host, in the order in which they got it.
    made : list of list of Selection, or None
        What the driver has to return.
    """

    def __init__(
        self,
        decision: Decision,
        hosts: HostBatch,
        ledger: Ledger | None,
        claims: Claims | None,
    ) -> None:
        self._decision = decision
        self.candidates = hosts
        self._ledger = ledger
        self._claims = claims
        self.placed: list[PlacedInstance] = []
        self.made: Selections | None = None

    @property
    def request(self) -> Request:
        """The request."""
        return self._decision.request

    @property
    def instance_uuids(self) -> Sequence[str]:
        """The instances that need a host each."""
        return self._decision.instance_uuids

    def passing(self, hosts: HostBatch, instance_uuid: str) -> HostBatch:
        """Return the hosts that pass all enabled filters."""
        # As for the first instance: filters that run once per request run, too.
        return self._decision.filter_hosts(hosts, instance_uuid, 0)

    def weights(self, hosts: HostBatch, instance_uuid: str) -> npt.NDArray[np.float64]:
        """Return the weight of each host."""
        return self._decision.rank_hosts(hosts, instance_uuid).total

    def claim(
        self, hosts: HostBatch, index: int, instance_uuid: str
    ) -> HostBatch | None:
        """Claim a host for an instance."""
        candidate = self._accept()(instance_uuid, hosts, index)
        if candidate is None:
            return None
        placed = self._decision.place_instance(
            _in_order(hosts), instance_uuid, index, candidate, self._ledger
        )
        self.placed.append(placed)
        return hosts.with_instance(index, instance_uuid, placed.consumption)

    def _accept(self) -> Accept:
        if self._ledger is None:
            return accept_any
        if self._claims is None:
            return reserve_in_ledger(self._ledger)
        return claim_in_placement(self._ledger, self._claims)

    def selections(self, alternates: HostBatch) -> Selections:
        """Return the chosen hosts, and alternates in their order.

        Raises
        ------
        PluginError
            Not every instance has exactly one host.
        """
        placed = sorted(each.instance_uuid for each in self.placed)
        if placed != sorted(self.instance_uuids):
            raise PluginError(
                f"the driver claimed hosts for {placed}, not for each of "
                f"{sorted(self.instance_uuids)} once"
            )
        others = _in_order(alternates)
        self.made = self._decision.make_selections(self.placed, self._ledger, others)
        return self.made

    def select_by_weight(self) -> Selections:
        """Place all instances on the hosts of the highest weight."""
        self.placed, self.made = self._decision.select_by_weight(
            self.candidates, self._ledger, self._claims
        )
        return self.made


def _in_order(hosts: HostBatch) -> Ranking:
    """Return a ranking that keeps the order of the hosts."""
    return Ranking(hosts, np.zeros(len(hosts)), np.arange(len(hosts), dtype=float))
