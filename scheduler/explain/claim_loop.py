# SPDX-License-Identifier: Apache-2.0
"""Claim a host for equal instances, one after another, on copies of its state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..candidates import CandidatesQuery, DerivedData, Offer, amounts_by_class
from ..drivers.filter_chain import collect_limits, filter_hosts
from ..drivers.instances import consumption_of, consumption_on_host
from ..drivers.parts import Parts
from ..hosts import HostBatch
from ..placement.memory import TableOffer
from ..placement.providers import (
    ProviderColumns,
    ProviderQuery,
    ProviderTable,
    ProviderView,
)
from ..placement.providers.tree_records import tree_records
from ..request import Request
from .query_checks import with_names_of, without_tree

#: The maximum number of claims that are tried for one flavor.
MAX_CLAIMS: Final = 500


class ClaimLoop:
    """Claims a host for one instance after another until a claim is refused.

    Parameters
    ----------
    request : Request
        The request of each instance.
    queries : sequence of CandidatesQuery
        The queries whose candidates are claimed, the first query's candidates first.

    Attributes
    ----------
    n_left : int
        How many more claims may be tried.
    """

    def __init__(
        self,
        parts: Parts,
        view: ProviderView,
        request: Request,
        queries: Sequence[CandidatesQuery],
    ) -> None:
        self._parts = parts
        self._view = view
        self._request = request
        self._queries = [
            (query, ProviderQuery.parse(without_tree(query.params)))
            for query in queries
        ]
        spec_obj = request.spec_obj
        self._filters = [filter_.prepare(spec_obj) for filter_ in parts.filters]
        self._consumption = consumption_of(request, parts.conf)
        self.n_left = MAX_CLAIMS

    def run(self, node_uuid: str, limit: int) -> int | None:
        """Return how many instances can be claimed on a compute node, up to `limit`.

        None: `MAX_CLAIMS` was reached before a claim was refused.
        """
        table = ProviderTable(ProviderColumns.of(tree_records(self._view, node_uuid)))
        host: HostBatch | None = None
        for n_claimed in range(limit):
            if self.n_left <= 0:
                return None
            self.n_left -= 1
            offer = self._offer(table.view())
            offered = self._parts.table.batch_of_offer(offer)
            offered = offered.take(offered.matches("uuid", [node_uuid]))
            if not len(offered):
                return n_claimed
            host = offered if host is None else host.with_candidates_of(offered)
            host_after_claim = self._claim_next(host, offer, table, n_claimed)
            if host_after_claim is None:
                return n_claimed
            host = host_after_claim
        return limit

    def _offer(self, view: ProviderView) -> Offer:
        offers = []
        for query, parsed in self._queries:
            matches = with_names_of(view, parsed).match(parsed)
            offers.append(
                TableOffer(query, matches, DerivedData(), began=0, began_at=0)
            )
        return Offer(offers)

    def _claim_next(
        self, host: HostBatch, offer: Offer, table: ProviderTable, number: int
    ) -> HostBatch | None:
        """Claim an instance in the table; return the host with it; None: refused."""
        spec_obj = self._request.spec_obj
        passed = filter_hosts(
            self._filters, host, spec_obj, index=0, is_rebuild=False, steps=[]
        )
        if not len(passed):
            return None
        candidates = passed.candidates_of(0)
        candidate = offer.next_candidate(passed.value("uuid", 0), candidates)
        if candidate is None:
            return None
        limits = collect_limits(self._filters, passed, 0, spec_obj, is_rebuild=False)
        request = offer.request(candidate)
        table.add_used(amounts_by_class(request))
        consumption = consumption_on_host(
            self._consumption, limits, request["mappings"]
        )
        return host.with_instance(0, f"capacity {number}", consumption)
