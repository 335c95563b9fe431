# SPDX-License-Identifier: Apache-2.0
"""Candidates from the providers in memory, or else from Placement.

Before a request fails, the providers that would serve it if they had room are read
again: their usage in memory may be too high.
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

    Their trees do not match, and would if nothing were used.

    Parameters
    ----------
    turn : int
        Of more than `MAX_REREAD`, each turn has others.

    Raises
    ------
    QueryNotCovered
        As `ProviderView.match`.
    """
    empty = _empty(view).match(query)
    full = np.setdiff1d(empty.roots, view.match(query).roots)
    rows = np.unique(np.concatenate([full[:0], *_used(view.state, empty, full)]))
    if len(rows) > MAX_REREAD:
        rows = np.roll(rows, -turn * MAX_REREAD)[:MAX_REREAD]
    uuids: list[str] = view.state.trees.uuids[rows].tolist()
    return uuids


def _empty(view: ProviderView) -> ProviderView:
    """Return the same providers with nothing in use."""
    inventories = {
        name: replace(column, used=np.zeros_like(column.used))
        for name, column in view.state.inventories.items()
    }
    return replace(view, state=replace(view.state, inventories=inventories))


def _used(state: ProviderState, empty: Matches, roots: _Rows) -> Iterator[_Rows]:
    """Yield the providers in use that could serve the query in these trees."""
    for slot in empty.slots:
        providers = slot.providers[np.isin(slot.roots, roots)]
        for name in slot.amounts:
            column = state.column(name)
            at, indices = column.positions(providers)
            yield providers[indices[column.used[at] > 0]]


LOG = logging.getLogger(__name__)

#: How a query was answered; `query_counts` also has those of the cache, which answered
#: the queries that are not covered and those for which the table was stale.
_MEMORY: Final = "memory"
_NOT_COVERED: Final = "not_covered"
_STALE: Final = "stale"

#: A sequence number before any request: the table was read in the background.
_LONG_AGO: Final = 0


class ProviderCandidatesSource(CandidatesSource):
    """Answer queries from a table of providers that follows Placement.

    Parameters
    ----------
    follower : ProviderFollower
    cache : CandidatesCache
        Answers the queries that the table cannot.
    confirmations : Confirmations
        Queries Placement before a request fails.
    lag : Lag
        Knows whether the followed database is behind Placement.
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
        #: Revisions of the hosts' supply: the last, and the last that led to a poll.
        self._supply_revision: int | None = None
        self._polled_supply: int | None = None

    def load(self) -> None:
        """Read all providers; if the database is away, that is left to polls.

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
        """Follow the providers in the background."""
        self.follower.start()

    def stop(self) -> None:
        """Follow the providers no more."""
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
        if self._supply_revision is None:  # the table was loaded after the hosts
            self._polled_supply = supply_revision
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

        With `since`, what the table may lack is read first. If that adds nothing to
        what was rejected, or has been read for it before, Placement confirms that it
        has no more.
        """
        offer = self._offer(query, since, max_age_s)
        if offer is not None and since is not None:
            is_useful = (
                offer.n_open > 0
                if rejected is None
                else rejected.began < since and offer.has_more_than(rejected)
            )
            if not is_useful:
                offer = self._confirmed(
                    offer, n_instances, project_id, global_request_id
                )
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
            return self._current(query, parsed, max_age_s)
        return self._refreshed(query, parsed)

    def _count_not_covered(self, query: CandidatesQuery, e: QueryNotCovered) -> None:
        self._counts[_NOT_COVERED] += 1
        LOG.debug("Placement must answer %s: %s", query.path, e)

    def _current(
        self, query: CandidatesQuery, parsed: ProviderQuery, max_age_s: float
    ) -> TableOffer | None:
        """Return what the table offers; None: it is too old, or cannot answer."""
        age_s, supply = self.follower.age_s(), self._supply_revision
        is_usable = age_s <= self._max_age_s()
        # Older than the hosts' state, or than this query may have it.
        if is_usable and (supply != self._polled_supply or age_s > max_age_s):
            is_usable = self.follower.poll()
            if is_usable:
                self._polled_supply = supply
        if not is_usable:
            self._counts[_STALE] += 1
            return None
        return self._match(query, parsed, began=_LONG_AGO)

    def _refreshed(
        self, query: CandidatesQuery, parsed: ProviderQuery
    ) -> TableOffer | None:
        """Read what changed, and what lacks only room; return what is offered then."""
        began = self.next_sequence()
        if not self._reread(parsed):
            self._counts[_STALE] += 1
            return None
        return self._match(query, parsed, began=began)

    def _reread(self, parsed: ProviderQuery) -> bool:
        """Return whether the table is usable now."""
        is_read = self.follower.poll()
        if not is_read or self.follower.age_s() > self._max_age_s():
            return False
        view, turn = self.follower.table.view(), self._counts[_MEMORY]
        try:
            lacking = lacking_room(view, parsed, turn=turn)
        except QueryNotCovered:
            return True  # `_match` finds it, too
        return not lacking or self.follower.refresh(lacking)

    def _match(
        self, query: CandidatesQuery, parsed: ProviderQuery, *, began: int
    ) -> TableOffer | None:
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

    def _confirmed(
        self,
        offer: TableOffer,
        n_instances: int,
        project_id: str | None,
        global_request_id: str | None,
    ) -> TableOffer | None:
        """Return an offer that has all candidates; None: Placement has more."""
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
        if (lacking := offer.lacking(answer)) is not None:
            providers = resources_of(lacking)
            trees = offer.state.trees
            rows = [row for row in map(trees.find, providers) if row >= 0]
            LOG.warning(
                "Placement has allocation candidates for %s that its providers in "
                "memory lack; Placement is believed. In Placement: %s of %s; in "
                "memory: %s",
                offer.query.path,
                dict(lacking),
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
        parts = [resources_of(request) for request in claimed]
        if age_s is None or age_s <= self.follower.age_s():
            self.follower.count_claim(parts)
        else:  # the table has been read since then
            self.follower.mark_changed({uuid for part in parts for uuid in part})
        return self._cache.count_claim(claimed, began=began, age_s=age_s)

    def release(self, claim: CountedClaim) -> None:
        """Add a released claim's amounts back. Idempotent."""
        if claim.is_released:
            return
        self._cache.release(claim)
        parts = [{uuid: {name: n}} for (uuid, name), n in claim.amounts.items()]
        self.follower.release(parts)

    def exclude(self, offer: QueryOffer, number: int) -> None:
        """Read the providers of a refused candidate again.

        If they still have room for it, they are compared with Placement's.
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
        """Return the age of the table when the offer was made, and since."""
        return self._clock() - offer.began_at

    def lift_limit(self, offer: QueryOffer) -> bool:
        """Lift the limit of a cached answer; the table has none."""
        return self._cache.lift_limit(offer)

    def set_limits(self, max_age_s: float, max_requests: int) -> None:
        """Change the limits of cached answers."""
        self._cache.set_limits(max_age_s, max_requests)

    def stats(self) -> CacheStats:
        """Return the size of the cache and its counters."""
        return self._cache.stats()

    def provider_view(self) -> ProviderView | None:
        """Return the providers in memory; None: they are too old."""
        is_recent = self.follower.age_s() <= self._max_age_s()
        is_usable = is_recent and not self._lag.trouble
        return self.follower.table.view() if is_usable else None

    def following_stats(self) -> FollowingStats:
        """Return how the providers are followed."""
        return dataclasses.replace(self.follower.stats(), trouble=self._lag.trouble)

    def query_counts(self) -> Mapping[str, int]:
        """Return how many queries were answered in which way."""
        own = {**self._counts, **self._confirmations.counts()}
        return {**self._cache.query_counts(), **own}
