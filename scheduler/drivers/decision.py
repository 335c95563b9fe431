# SPDX-License-Identifier: Apache-2.0
"""One decision: query Placement, attempt to select and claim hosts, query again."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from ...objects import RequestSpec
from ..candidates import CandidatesQuery, Offer
from ..errors import (
    MAX_MESSAGE,
    NoValidHost,
    PluginError,
    as_nova,
    as_ours,
    shortened,
)
from ..hosts import Consumption, HostBatch
from ..placement.allocations.limits import MAX_QUERIES, MAX_REREAD_TREES
from ..placement.query import Requirements
from ..request import Request
from ..request.checks import instance_uuids_of
from .base import Selections
from .claims.claims import Claims, StaleOffer, checks_of
from .claims.contention import Contention
from .claims.peer_claims import PeerClaim
from .claims.placement_backend import PlacementBackend
from .claims.recorded import RecordedClaims
from .driver_steps import DriverSteps
from .instances import NOT_ENOUGH, PlacedInstance, fill_provider_mapping
from .named_groups import with_current_groups
from .parts import DecisionInput, KeepsViews, Parts
from .placement_queries import (
    build_queries,
    build_requirements,
    query_candidates,
    requery_candidates,
)
from .prepared import Caller, PreparedRequest
from .record import DecisionRecord, Outcome, ReplayKey
from .restrictions import restrict_hosts
from .user_reasons import count_causes

LOG = logging.getLogger(__name__)


class Decision:
    """The decision of one request; an object of this class is used once.

    Parameters
    ----------
    recorded : RecordedClaims, optional
        Answers claims instead of Placement, in a dry run or a replay.
    repeated : ReplayKey, optional
        The key of the decision that is replayed.
    """

    def __init__(  # noqa: PLR0913 - three by name
        self,
        parts: Parts,
        caller: Caller,
        spec_obj: RequestSpec,
        instance_uuids: Sequence[str] | None,
        record: DecisionRecord,
        *,
        return_alternates: bool,
        recorded: RecordedClaims | None = None,
        repeated: ReplayKey | None = None,
    ) -> None:
        self._parts = parts
        self._caller = caller
        self._spec = spec_obj
        self._given_uuids = instance_uuids
        self._record = record
        self._return_alternates = return_alternates
        self._recorded = recorded
        self._repeated = repeated
        self._request: Request | None = None
        self._queries: Sequence[CandidatesQuery] = ()
        self._offer: Offer | None = None
        self._attempt: DriverSteps | None = None
        #: The values with which the current attempt can be repeated.
        self._key = self._new_key()
        #: What the current attempt has read, and the id of its stored view.
        self._read = DecisionInput()
        self._view: str | None = None

    def run(self) -> Selections:
        """Query Placement and select; return a list of selections for each instance.

        The errors are those of `query` and `select`.
        """
        self.query()
        return self.select()

    def query(self) -> Requirements | None:
        """Query Placement for candidates; return the requirements of the query.

        Return None for a rebuild: Placement is not queried, and all hosts are
        candidates.

        Raises
        ------
        InvalidRequest
            The request is malformed or contradictory.
        NoValidHost
            There are no candidates.
        """
        parts, caller, record = self._parts, self._caller, self._record
        request = with_current_groups(parts, Request.validated(self._spec))
        spec_obj = request.spec_obj
        if record.request is not None:
            record.request = spec_obj
        self._uuids = instance_uuids_of(spec_obj, self._given_uuids)
        if not self._uuids:
            raise NoValidHost(NOT_ENOUGH)  # nova's answer to a request of no instance
        record.n_instances = len(self._uuids)
        self._request = request
        self._arrived = parts.candidates.next_sequence()
        may_change_cell = request.destination.preferred_cell is not None
        if may_change_cell and not request.is_rebuild:
            # Otherwise the instance may change cells only because the last poll missed
            # a host of the preferred cell.
            parts.source.poll(parts.table)
        self._refresh_hosts()
        requirements = None
        if not request.is_rebuild:
            requirements = build_requirements(parts, caller, request, record)
        # Not earlier: filters may depend on rules that `build_requirements` sets.
        n_alternates = parts.conf.scheduler.max_attempts - 1
        self._prepared = PreparedRequest(
            parts,
            caller,
            request,
            self._uuids,
            record,
            n_alternates=n_alternates if self._return_alternates else 0,
        )
        if requirements is not None:
            self._queries = build_queries(parts, request, requirements)
            self._read = DecisionInput(self._queries)
            self._offer = query_candidates(
                parts,
                caller,
                self._queries,
                record,
                arrived=self._arrived,
                n_instances=len(self._uuids),
                is_current=may_change_cell,
            )
        return requirements

    def select(self) -> Selections:
        """Return a list of selections for each instance; see `BaseSchedulerDriver`.

        Placement is queried again if it refuses many claims on the candidates of an
        answer, and before a request fails because a cached or truncated answer has no
        suitable host. Also before a request fails, claims on the candidates' hosts that
        may have ended are reviewed, and the source is polled for the hosts' state.

        Raises
        ------
        NoValidHost
            At least one instance fits on no host.
        """
        n_attempts = 1
        while True:
            try:
                return self._decide(may_give_up=n_attempts == 1)
            except StaleOffer:
                self._arrived = self._parts.candidates.next_sequence()
                self._query_again(is_stale=True)
            except NoValidHost:
                if self._offer is None or n_attempts == MAX_QUERIES:
                    raise
                if len(self._uuids) > 1:
                    # The providers may have room for some instances, but not for all:
                    # have their state read again.
                    roots = itertools.islice(self._offer.roots, MAX_REREAD_TREES)
                    self._parts.candidates.mark_changed(list(roots))
                with self._record.timed("review"):
                    is_freed = self._parts.review(self._offer.roots)
                is_freed |= self._is_outdated()
                if not self._query_again() and not is_freed:
                    raise
            self._record.restart()
            n_attempts += 1

    def _query_again(self, *, is_stale: bool = False) -> bool:
        """Renew the offer; return whether Placement has a better one now.

        If it has none, the current offer is used again, with nothing reserved.
        """
        assert self._offer is not None
        newer = requery_candidates(
            self._parts,
            self._caller,
            self._queries,
            self._record,
            arrived=self._arrived,
            earlier=self._offer,
            is_stale=is_stale,
        )
        self._offer = self._offer.renewed() if newer is None else newer
        return newer is not None

    # -- one attempt -------------------------------------------------------------------

    def _decide(self, *, may_give_up: bool) -> Selections:
        """Attempt the decision once; release all claims if that fails.

        Parameters
        ----------
        may_give_up : bool
            See `Claims`.
        """
        parts, prepared, offer = self._parts, self._prepared, self._offer
        self._attempt = None
        self._key = key = self._new_key()
        hosts = self._load_hosts(offer)
        with self._record.timed("hosts"):
            hosts = restrict_hosts(hosts, prepared.request, self._record.steps)
        contention = Contention(key.contention)
        claims = None
        # An old conductor names no instances, and claims by itself: nothing is claimed.
        if offer is not None and self._recorded is not None:
            recorded = self._recorded
            claims = Claims(prepared, offer, recorded, [recorded], [contention])
        elif offer is not None and self._given_uuids is not None:
            backend = PlacementBackend(prepared)
            claims = Claims(
                prepared,
                offer,
                backend,
                checks_of(prepared, offer, hosts),
                [contention, parts.contention],
                may_give_up=may_give_up,
            )
            parts.orphans.release_before_new_claim(
                self._uuids, excluding=backend.evacuated_from
            )
        attempt = self._attempt = DriverSteps(
            prepared, hosts, offer, claims, contention, key.random_seed
        )
        try:
            selections = parts.driver.select(attempt)
            if selections is None or selections is not attempt.selected:
                raise PluginError(
                    f"[moorage] driver: select of {type(parts.driver).__name__} must "
                    "return what selections or select_by_weight of its steps returned"
                )
            if claims is not None and offer is not None and self._recorded is None:
                self._finish(attempt.placed, claims, offer)
        except BaseException:
            if claims is not None:
                claims.release()
            raise
        return selections

    def _finish(
        self, placed: Sequence[PlacedInstance], claims: Claims, offer: Offer
    ) -> None:
        """Count the instances in the host table, publish and confirm their claims."""
        parts, request = self._parts, self._prepared.request
        # Not earlier: a further attempt must read the request unchanged.
        fill_provider_mapping(request, offer.request(placed[-1].candidate)["mappings"])
        table, now = parts.table, parts.clock()
        try:
            for instance in placed:
                node_uuid, uuid = instance.value("uuid"), instance.instance_uuid
                table.claims.consume(node_uuid, uuid, instance.consumption, now)
        except BaseException:
            for instance in placed:
                # An earlier request has consumed what it claimed, which stays.
                if claims.backend.has_claimed(instance.instance_uuid):
                    table.claims.release(instance.value("host"), instance.instance_uuid)
            raise
        if parts.publish_claims is not None:
            spec_obj = request.spec_obj
            parts.publish_claims(
                [PeerClaim.of(instance, offer, spec_obj, now) for instance in placed]
            )
        claims.backend.mark_answered()

    def _new_key(self) -> ReplayKey:
        """Return the values with which an attempt that begins now can be repeated."""
        repeated = self._repeated
        share = self._parts.contention.share
        return ReplayKey(
            view="",
            at=self._parts.clock(),
            return_alternates=self._return_alternates,
            random_seed=None if repeated is None else repeated.random_seed,
            contention=share if repeated is None else repeated.contention,
            n_claims=len(self._record.claims),
        )

    def last_placement(self) -> tuple[HostBatch, int, Consumption]:
        """Return where the last instance was placed.

        Returns
        -------
        hosts : HostBatch
            The hosts before the instance was placed.
        index : int
            The index of the instance's host in `hosts`.
        consumption : Consumption
            What the instance consumes.
        """
        assert self._attempt is not None
        uuid = self._uuids[-1]
        [last_instance] = (p for p in self._attempt.placed if p.instance_uuid == uuid)
        assert last_instance.ranking is not None
        return (
            last_instance.ranking.hosts,
            last_instance.index,
            last_instance.consumption,
        )

    # -- the outcome -------------------------------------------------------------------

    @contextmanager
    def concluding(self) -> Iterator[None]:
        """Record the outcome, the reason and the time of a decision.

        The decision runs in the block of this context manager. An error that is not
        ours is raised as a SchedulerError with the error as its cause.
        """
        record = self._record
        try:
            with record.timed("total"):
                yield
            record.outcome = Outcome.SELECTED
        except NoValidHost as e:
            record.outcome, record.reason = Outcome.NO_VALID_HOST, e.reason
            reason, is_silent = e.reason, e.reason in ("", NOT_ENOUGH)
            is_asked = self._parts.conf.moorage.user_reasons != "nova"
            if self._request is not None and is_silent and is_asked:
                # nova's message does not say why no host fits.
                reason = count_causes(
                    record,
                    self._request,
                    self._parts.table.batch(),
                    self._parts.table.aggregates,
                    () if self._offer is None else self._offer.roots,
                    None if self._attempt is None else self._attempt.tried(),
                )
            error = NoValidHost(reason)
            record.user_message, error.is_logged = str(error), True
            raise error from e
        except BaseException as e:
            record.outcome = Outcome.FAILED
            record.reason = shortened(f"{type(e).__name__}: {e}", MAX_MESSAGE)
            if not isinstance(e, Exception):
                raise  # it ends the thread
            record.user_message = str(as_nova(e))
            failure = as_ours(e)
            failure.is_logged = True
            raise failure from (e.__cause__ if failure is e else e)
        finally:
            if self._recorded is None and self._parts.views is not None:
                self._record_view(self._parts.views)

    def _record_view(self, views: KeepsViews) -> None:
        """Set `DecisionRecord.replay` if a view of the decision is stored."""
        view = self._view
        if view is None and self._record.outcome is Outcome.NO_VALID_HOST:
            view = views.capture_failed(self._parts, self._read)
        if view is not None:
            key = dataclasses.replace(self._key, view=view)
            if self._attempt is not None:
                seed = self._attempt.random_seed
                key = dataclasses.replace(key, random_seed=seed)
            self._record.replay = key

    # -- hosts -----------------------------------------------------------------------

    def _refresh_hosts(self, missing: Collection[str] = ()) -> None:
        """Have the source refresh stale and missing hosts, as far as it can."""
        table, candidates = self._parts.table, self._parts.candidates
        with self._record.timed("refresh"):
            self._parts.source.refresh_if_stale(table, missing)
        candidates.invalidate_older_than(table.supply_revision)
        if freed := table.take_freed():
            candidates.mark_changed(freed)

    def _is_outdated(self) -> bool:
        """Poll the source; return whether hosts have changed since the decision."""
        table = self._parts.table
        with self._record.timed("refresh"):
            is_polled = self._parts.source.poll(table)
        if freed := table.take_freed():
            self._parts.candidates.mark_changed(freed)
        return is_polled and table.revision != self._record.view_revision

    def _load_hosts(self, offer: Offer | None) -> HostBatch:
        """Return the hosts of Placement's candidates; all hosts for a rebuild.

        If the table lacks hosts of candidates, the source first refreshes the table.
        """
        parts, record, table = self._parts, self._record, self._parts.table
        if offer is None:
            hosts = table.batch()
        else:
            with record.timed("hosts"):
                hosts = table.batch_of_offer(offer)
            if len(hosts) < offer.n_roots and (missing := table.missing(offer.roots)):
                self._refresh_hosts(missing)
                with record.timed("hosts"):
                    hosts = table.batch_of_offer(offer)
            record.n_without_row = offer.n_roots - len(hosts)
            if not len(hosts):
                LOG.error(
                    "Placement has %d allocation candidate(s), but none of their %d "
                    "root provider(s) is a known host, for example not %s: do the "
                    "source of hosts and Placement describe the same cloud?",
                    offer.n_open,
                    offer.n_roots,
                    next(iter(offer.roots)),
                )
        record.n_hosts = len(hosts)
        record.view_revision = hosts.revision
        record.view_age_s = parts.source.age_s(parts.clock())
        self._read = DecisionInput(self._queries, offer, hosts.revision)
        if parts.views is not None:
            # If a view of an earlier attempt is stored, it is outdated: replace it.
            is_due = self._view is not None
            self._view = parts.views.capture(parts, self._read, is_due=is_due)
        return hosts
