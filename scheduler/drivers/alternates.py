# SPDX-License-Identifier: Apache-2.0
"""Selections, the form in which a conductor receives a chosen host and alternates."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from ...objects import SchedulerLimits, Selection
from ..candidates import MICROVERSION, AllocationRequest, Offer
from ..hosts import HostBatch, metadata_values
from .claims.accepting import NO_CANDIDATE
from .instances import PlacedInstance, read_attributes
from .weighing import Ranking

#: Returns the limits that the selection of a host carries.
LimitsOf = Callable[[HostBatch, int], Mapping[str, object]]


@dataclasses.dataclass(frozen=True, slots=True)
class SelectionMaker:
    """Makes the selections of one decision.

    Attributes
    ----------
    ledger : Offer or None
        None: nothing is claimed.
    """

    ledger: Offer | None
    limits_of: LimitsOf
    default_availability_zone: str

    def of_instance(self, placed: PlacedInstance) -> Selection:
        """Return the selection of an instance's host."""
        return self._make(placed.chosen.values, placed.limits, placed.candidate)

    def alternates(
        self, ranking: Ranking, cell: str, *, chosen: Collection[str], number: int
    ) -> list[Selection]:
        """Return the best hosts of a cell on which there is no instance of ours.

        Parameters
        ----------
        chosen : collection of str
            UUIDs of the nodes that the instances of the request got.
        """
        found = self._suitable(ranking, cell, chosen)
        return list(itertools.islice(found, number))

    def _suitable(
        self, ranking: Ranking, cell: str, chosen: Collection[str]
    ) -> Iterator[Selection]:
        hosts = ranking.hosts
        for index in ranking:
            node = hosts.value("uuid", index)
            if node in chosen or hosts.value("cell_uuid", index) != cell:
                continue
            candidate: int | None = NO_CANDIDATE
            if self.ledger is not None:
                candidate = self.ledger.next_candidate(node, hosts.candidates_of(index))
            if candidate is not None:
                host = read_attributes(hosts, index)
                yield self._make(host, self.limits_of(hosts, index), candidate)

    def _make(
        self, host: Mapping[str, Any], limits: Mapping[str, object], candidate: int
    ) -> Selection:
        zones = metadata_values(host["aggregates"], "availability_zone")
        request: AllocationRequest | None = None
        if self.ledger is not None:
            request = self.ledger.request(candidate)
        return Selection.of_valid(
            compute_node_uuid=host["uuid"],
            service_host=host["host"],
            nodename=host["nodename"],
            cell_uuid=host["cell_uuid"],
            limits=SchedulerLimits.from_dict(dict(limits)),
            # "null" if nothing is claimed, as a stock conductor expects.
            allocation_request=json.dumps(request),
            allocation_request_version=self.ledger and MICROVERSION,
            availability_zone=min(zones, default=self.default_availability_zone),
        )
