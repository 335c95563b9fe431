# SPDX-License-Identifier: Apache-2.0
"""Candidates from the providers in memory, or else from Placement.

Before a request fails, the providers that lack only room for it are read again: their
usage in memory may be too high.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ...candidates import (
    AllocationRequest,
    CandidatesQuery,
    DerivedData,
    QueryOffer,
    resources_of,
)
from ...errors import DatabaseUnavailable
from ..allocations.limits import MAX_REREAD
from ..cache import CandidatesCache
from ..candidates_source import (
    CacheStats,
    CandidatesSource,
    CountedClaim,
    FollowingStats,
)
from ..database import ProviderFollower
from ..providers import Matches, ProviderQuery, ProviderView, QueryNotCovered
from ..providers.state import ProviderState
from .confirming import Confirmation, Confirmations
from .lag import Lag
from .table_offer import TableOffer

_Rows = npt.NDArray[np.int32]


def lacking_room(
    view: ProviderView, query: ProviderQuery, *, turn: int = 0
) -> list[str]:
    """Return the UUIDs of providers that lack only room for a query.

    Their trees do not match the query now, but would match it if nothing were in use.

    Parameters
    ----------
    turn : int
        If more than `MAX_REREAD` providers lack room, each turn returns the next
        `MAX_REREAD` of them.

    Raises
    ------
    QueryNotCovered
        The table cannot answer the query; see `ProviderView.match`.
    """
    matches_if_unused = _with_nothing_in_use(view).match(query)
    full_roots = np.setdiff1d(matches_if_unused.roots, view.match(query).roots)
    in_use = _providers_in_use(view.state, matches_if_unused, full_roots)
    # The empty array: concatenate() requires at least one.
    rows = np.unique(np.concatenate([full_roots[:0], *in_use]))
    if len(rows) > MAX_REREAD:
        rows = np.roll(rows, -turn * MAX_REREAD)[:MAX_REREAD]
    uuids: list[str] = view.state.trees.uuids[rows].tolist()
    return uuids


def _with_nothing_in_use(view: ProviderView) -> ProviderView:
    """Return the same providers with nothing in use."""
    inventories = {
        name: replace(column, used=np.zeros_like(column.used))
        for name, column in view.state.inventories.items()
    }
    return replace(view, state=replace(view.state, inventories=inventories))


def _providers_in_use(
    state: ProviderState, matches_if_unused: Matches, roots: _Rows
) -> Iterator[_Rows]:
    """Yield the providers in these trees that match if unused, and are in use."""
    for slot in matches_if_unused.slots:
        providers = slot.providers[np.isin(slot.roots, roots)]
        for name in slot.amounts:
            column = state.column(name)
            positions, indices = column.positions(providers)
            yield providers[indices[column.used[positions] > 0]]


LOG = logging.getLogger(__name__)

#: Whether the table answered a query, or why it did not: then the cache answers it.
#: `query_counts` returns these counts together with those of the cache.
_MEMORY: Final = "memory"
_NOT_COVERED: Final = "not_covered"
_STALE: Final = "stale"

#: The sequence number of an offer from a table that was read in the background. It is
#: lower than that of any request.
_BEFORE_ALL_REQUESTS: Final = 0


class ProviderCandidatesSource(CandidatesSource):
    """Answer queries from a table of providers that follows Placement.

    Parameters
    ----------
    follower : ProviderFollower
    cache : CandidatesCache
        Answers the queries that the table cannot answer.
    confirmations : Confirmations
        Queries Placement for more candidates before a request fails.
    lag : Lag
        Detects that the followed database is behind Placement.
    max_age_s : callable
        Returns the age in seconds up to which the table is used.
    clock : callable
        Returns monotonic seconds, as for the cache.

    Attributes
    ----------
    follower : ProviderFollower
    """

    def __init__(
        self,
        follower: ProviderFollower,
        cache: CandidatesCache,
        confirmations: Confirmations,
        lag: Lag,
        *,
        max_age_s: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self.follower = follower
        self._cache = cache
        self._confirmations = confirmations
        self._lag = lag
        self._max_age_s = max_age_s
        self._clock = clock
        self._derived = DerivedData()
        self._counts = Counter(dict.fromkeys((_MEMORY, _NOT_COVERED, _STALE), 0))
        #: The newest known revision of the hosts' supply, and the revision that was the
        #: newest one at the last poll.
        self._supply_revision: int | None = None
        self._polled_supply_revision: int | None = None

    def load(self) -> None:
        """Read all providers; if the database is unavailable, a later poll reads them.

        Raises
        ------
        ConfigurationError
            Placement's database cannot be read, or its schema is unknown.
        """
        try:
            self.follower.load()
        except DatabaseUnavailable as e:
            LOG.warning("%s Placement is queried for candidates until it answers", e)

    def start(self) -> None:
        """Start following the providers in the background."""
        self.follower.start()

    def stop(self) -> None:
        """Stop following the providers."""
        self.follower.stop()
        self._cache.stop()

    def next_sequence(self) -> int:
        """Advance the logical clock of the cache and return it."""
        return self._cache.next_sequence()

    def invalidate_older_than(self, supply_revision: int) -> None:
        """Invalidate cached answers, and poll before the table is used again.

        The poll sees, for example, the trait of a host that has just been disabled.
        """
        self._cache.invalidate_older_than(supply_revision)
        # The first call: the table of providers was loaded after the hosts.
        if self._supply_revision is None:
            self._polled_supply_revision = supply_revision
        self._supply_revision = supply_revision

    # -- queries -----------------------------------------------------------------------

    def get(
        self,
        query: CandidatesQuery,
        *,
        since: int | None = None,
        max_age_s: float = math.inf,
        rejected: QueryOffer | None = None,
        n_instances: int = 1,
        project_id: str | None = None,
        global_request_id: str | None = None,
    ) -> QueryOffer:
        """Return the candidates for a query, from the table where possible.

        With `since`, the table is refreshed first. Placement is then queried for more
        candidates if the offer has none, or none besides the rejected ones, or if the
        table was refreshed for the rejected offer already.
        """
        offer = self._offer(query, since, max_age_s)
        if offer is not None and since is not None:
            is_useful = (
                offer.n_open > 0
                if rejected is None
                else rejected.began < since and offer.has_more_than(rejected)
            )
            if not is_useful:
                offer = self._confirm(offer, n_instances, project_id, global_request_id)
        if offer is not None:
            return offer
        return self._cache.get(
            query,
            since=since,
            max_age_s=max_age_s,
            global_request_id=global_request_id,
        )

    def _offer(
        self, query: CandidatesQuery, since: int | None, max_age_s: float
    ) -> TableOffer | None:
        """Return what the table offers; None: Placement must be queried."""
        try:
            parsed = ProviderQuery.parse(query.params)
        except QueryNotCovered as e:
            self._count_not_covered(query, e)
            return None
        if self._lag.review():
            self._counts[_STALE] += 1
            return None
        if since is None:
            return self._offer_if_recent(query, parsed, max_age_s)
        return self._offer_after_refresh(query, parsed)

    def _count_not_covered(
        self, query: CandidatesQuery, error: QueryNotCovered
    ) -> None:
        self._counts[_NOT_COVERED] += 1
        LOG.debug("Placement must answer %s: %s", query.path, error)

    def _offer_if_recent(
        self, query: CandidatesQuery, parsed: ProviderQuery, max_age_s: float
    ) -> TableOffer | None:
        """Return what the table offers; None: it is too old, or cannot answer."""
        age_s, supply_revision = self.follower.age_s(), self._supply_revision
        is_usable = age_s <= self._max_age_s()
        is_behind_hosts = supply_revision != self._polled_supply_revision
        if is_usable and (is_behind_hosts or age_s > max_age_s):
            is_usable = self.follower.poll()
            if is_usable:
                self._polled_supply_revision = supply_revision
        if not is_usable:
            self._counts[_STALE] += 1
            return None
        return self._match(query, parsed, began=_BEFORE_ALL_REQUESTS)

    def _offer_after_refresh(
        self, query: CandidatesQuery, parsed: ProviderQuery
    ) -> TableOffer | None:
        """Refresh the table, and return its offer; None: stale, or not covered."""
        began = self.next_sequence()
        if not self._refresh_table(parsed):
            self._counts[_STALE] += 1
            return None
        return self._match(query, parsed, began=began)

    def _refresh_table(self, parsed: ProviderQuery) -> bool:
        """Poll the database, and reread the providers that lack only room for a query.

        Return whether the table is usable now.
        """
        is_polled = self.follower.poll()
        if not is_polled or self.follower.age_s() > self._max_age_s():
            return False
        view = self.follower.table.view()
        n_answers = self._counts[_MEMORY]  # grows, so that each call has another turn
        try:
            provider_uuids = lacking_room(view, parsed, turn=n_answers)
        except QueryNotCovered:
            return True  # `_match` handles this error
        return not provider_uuids or self.follower.refresh(provider_uuids)

    def _match(
        self, query: CandidatesQuery, parsed: ProviderQuery, *, began: int
    ) -> TableOffer | None:
        """Return the table's candidates for a query; None: it cannot answer."""
        began_at = self._clock() - self.follower.age_s()
        try:
            matches = self.follower.table.view().match(parsed)
        except QueryNotCovered as e:
            self._count_not_covered(query, e)
            return None
        self._counts[_MEMORY] += 1
        return TableOffer(
            query,
            matches,
            self._derived,
            began=began,
            began_at=began_at,
            is_complete=False,
        )

    def _confirm(
        self,
        offer: TableOffer,
        n_instances: int,
        project_id: str | None,
        global_request_id: str | None,
    ) -> TableOffer | None:
        """Query Placement for more candidates than an offer has.

        Return the offer, marked as complete; None: Placement has more candidates.
        """
        outcome, answer = self._confirmations.confirm(
            offer,
            self.follower.revision,
            n_instances=n_instances,
            project_id=project_id,
            global_request_id=global_request_id,
        )
        if outcome is not Confirmation.DISAGREED:
            return offer.confirmed()
        assert answer is not None
        if (missing_request := offer.lacking(answer)) is not None:
            providers = resources_of(missing_request)
            trees = offer.state.trees
            rows = [row for row in map(trees.find, providers) if row >= 0]
            LOG.warning(
                "Placement has allocation candidates for %s that its providers in "
                "memory lack; Placement is believed. In Placement: %s of %s; in "
                "memory: %s",
                offer.query.path,
                dict(missing_request),
                {uuid: answer.provider_summaries.get(uuid) for uuid in providers},
                offer.state.summaries(np.array(rows, np.int32)),
            )
            self._lag.compare(providers, global_request_id)
        self.follower.mark_changed(answer.provider_summaries)
        return None

    # -- claims ------------------------------------------------------------------------

    def count_claim(
        self,
        requests: Iterable[AllocationRequest],
        *,
        began: int | None = None,
        age_s: float | None = None,
    ) -> CountedClaim:
        """Subtract a granted claim from the table and from cached answers."""
        claimed = list(requests)
        resources = [resources_of(request) for request in claimed]
        if age_s is None or age_s <= self.follower.age_s():
            self.follower.count_claim(resources)
        else:  # the table was read after the claim was granted, and may include it
            self.follower.mark_changed(
                {uuid for by_uuid in resources for uuid in by_uuid}
            )
        return self._cache.count_claim(claimed, began=began, age_s=age_s)

    def release(self, claim: CountedClaim) -> None:
        """Add a released claim's amounts back. Idempotent."""
        if claim.is_released:
            return
        self._cache.release(claim)
        resources = [
            {uuid: {name: amount}} for (uuid, name), amount in claim.amounts.items()
        ]
        self.follower.release(resources)

    def exclude(self, offer: QueryOffer, number: int) -> None:
        """Read the providers of a refused candidate again.

        If they still have room for it, their records in the database are compared with
        Placement's.
        """
        if not isinstance(offer, TableOffer):
            self._cache.exclude(offer, number)
            return
        resources = resources_of(offer.request(number))
        is_read = self.follower.refresh(list(resources))
        if is_read and self.follower.table.view().state.has_room(resources):
            self._lag.compare(resources)

    def mark_changed(self, node_uuids: Collection[str]) -> None:
        """Read the providers of compute nodes again, in the background."""
        trees = self.follower.table.view().state.trees
        roots = [row for row in map(trees.find, node_uuids) if row >= 0]
        members = trees.members(np.array(roots, np.int32))
        self.follower.mark_changed(trees.uuids[members].tolist())

    # -- cached answers ----------------------------------------------------------------

    def age_s(self, offer: QueryOffer) -> float:
        """Return the seconds since the data of an offer was read from the database."""
        return self._clock() - offer.began_at

    def lift_limit(self, offer: QueryOffer) -> bool:
        """Lift the limit of a cached answer; the table has none."""
        return self._cache.lift_limit(offer)

    def set_limits(self, max_age_s: float, max_requests: int) -> None:
        """Change the limits of cached answers."""
        self._cache.set_limits(max_age_s, max_requests)

    def stats(self) -> CacheStats:
        """Return the size and the counters of the cache."""
        return self._cache.stats()

    def provider_view(self) -> ProviderView | None:
        """Return the providers in memory; None: too old, or the database lags."""
        is_recent = self.follower.age_s() <= self._max_age_s()
        is_usable = is_recent and not self._lag.trouble
        return self.follower.table.view() if is_usable else None

    def following_stats(self) -> FollowingStats:
        """Return the statistics of polling the providers' database."""
        return dataclasses.replace(self.follower.stats(), trouble=self._lag.trouble)

    def query_counts(self) -> Mapping[str, int]:
        """Return the number of queries, by how each was answered."""
        table_counts = {**self._counts, **self._confirmations.counts()}
        return {**self._cache.query_counts(), **table_counts}
