"""One decision of filter_scheduler, from the request to claimed selections."""

from __future__ import annotations

import copy
import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from ...objects import RequestSpec, Selection
from ..errors import InvalidRequest, NoValidHost, PlacementError, PlacementRejected
from ..hosts import Consumption, HostBatch
from ..placement.candidates import AllocationCandidates
from ..placement.claims import ClaimAnswer, ClaimResult, claim, claim_all, release
from ..placement.query import (
    CandidatesQuery,
    Requirements,
    build_fallback_query,
    build_query,
)
from ..placement.request_checks import validate_request
from ..prefilters.base import PrefilterRequest
from .base import Parts
from .caller import Caller
from .filtering import filtered
from .ledger import Ledger
from .record import ClaimAttempt, DecisionRecord, InstanceRecord
from .restrictions import aim, evacuated_from, is_rebuild, restricted, skips_filters
from .selections import selection
from .weighing import Ranking, ranked

LOG = logging.getLogger(__name__)

_NOT_ENOUGH = "There are not enough hosts available."
_MIB_PER_GIB = 1024


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """One instance with its host: an index into the ranking's hosts."""

    instance_uuid: str | None
    ranking: Ranking
    index: int
    candidate: int | None

    @property
    def node_uuid(self) -> str:
        """The compute node's UUID."""
        return str(self.ranking.hosts.value("uuid", self.index))


#: Says whether an instance may have a host, and the candidate that it has there.
Accept = Callable[[str | None, HostBatch, int], tuple[bool, int | None]]


class Decision:
    """Decide one request. It is made for it, and used once."""

    def __init__(
        self,
        parts: Parts,
        caller: Caller,
        spec_obj: RequestSpec,
        instance_uuids: Sequence[str] | None,
        return_alternates: bool,
        record: DecisionRecord,
    ) -> None:
        validate_request(spec_obj)
        self._parts = parts
        self._caller = caller
        self._spec = spec_obj
        self._is_rebuild = is_rebuild(spec_obj)
        self._is_claimed = instance_uuids is not None and not self._is_rebuild
        self._uuids = _uuids(spec_obj, instance_uuids)
        max_attempts = parts.conf.scheduler.max_attempts
        self._n_alternates = max_attempts - 1 if return_alternates else 0
        self._record = record
        record.n_instances = len(self._uuids)
        self._filters = [] if skips_filters(spec_obj) else parts.filters
        self._claims: dict[str, ClaimAnswer] = {}

    def run(self) -> list[list[Selection]]:
        """Return one list of selections an instance; see `BaseSchedulerDriver`."""
        self._filters = [f.prepare(self._spec) for f in self._filters]
        self._weighers = [w.prepare(self._spec) for w in self._parts.weighers]
        hosts, ledger = self._hosts()
        with self._timed("hosts"):
            hosts = restricted(hosts, self._spec, self._record.steps)
        if not self._is_claimed:
            return self._selections(self._place(hosts, ledger, _anything), ledger)
        assert ledger is not None  # only a rebuild, which claims nothing, has none
        try:
            placed = self._place_and_claim(hosts, ledger)
            selections = self._selections(placed, ledger)
        except BaseException:
            self._release()
            raise
        self._consume(placed)
        return selections

    # -- Placement's candidates, and their hosts --------------------------------------

    def _hosts(self) -> tuple[HostBatch, Ledger | None]:
        table = self._parts.table
        if self._is_rebuild:
            hosts, ledger = table.batch(), None
        else:
            candidates = self._candidates()
            with self._timed("hosts"):
                hosts = table.batch(candidates.by_host)
            ledger = Ledger(candidates)
            self._record.n_without_row = len(candidates.by_host) - len(hosts)
            if not len(hosts):
                self._tell_unknown(candidates)
        self._record.n_hosts = len(hosts)
        self._record.view_revision = hosts.revision
        return hosts, ledger

    def _tell_unknown(self, candidates: AllocationCandidates) -> None:
        LOG.error(
            "Placement has %d allocation candidate(s), but the host table has none of "
            "their %d root provider(s), for example %s: do the source of hosts and "
            "Placement tell of the same cloud?",
            candidates.n_requests, len(candidates.by_host), next(iter(candidates.by_host)),
        )  # fmt: skip

    def _candidates(self) -> AllocationCandidates:
        requirements = self._requirements()
        limit = self._parts.conf.scheduler.max_placement_results
        query = build_query(self._spec, requirements, limit=limit)
        candidates = self._ask(query)
        fallback = build_fallback_query(self._spec, requirements, limit=limit)
        if fallback is not None:
            candidates = candidates.followed_by(self._ask(fallback))
        self._record.n_candidates = candidates.n_requests
        if not candidates.n_requests:
            LOG.info("Placement has no allocation candidates for %s", query.path)
            raise NoValidHost()
        return candidates

    def _requirements(self) -> Requirements:
        requirements = Requirements()
        request = PrefilterRequest(
            spec_obj=self._spec,
            requirements=requirements,
            aggregates=self._parts.table.aggregates,
            conf=self._parts.conf,
        )
        for _name, prefilter in self._parts.prefilters:
            prefilter(request)
        aim(self._spec, self._parts.table, requirements)
        return requirements

    def _ask(self, query: CandidatesQuery) -> AllocationCandidates:
        self._record.queries.append(query.path)
        with self._timed("placement"):
            try:
                answer = self._parts.placement.allocation_candidates(
                    query, global_request_id=self._caller.global_request_id
                )
            except PlacementRejected as e:
                # An unknown trait or class in a flavor: as for nova, nothing has it.
                LOG.error("Placement cannot answer %s: %s", query.path, e)
                raise NoValidHost() from e
        self._record.is_cut |= answer.is_cut
        return answer

    # -- hosts for instances ------------------------------------------------------------

    def _place_and_claim(self, hosts: HostBatch, ledger: Ledger) -> list[Placed]:
        if len(self._uuids) > 1:
            placed = self._place(hosts, ledger, self._plan(ledger))
            if self._claim_all(placed, ledger):
                return placed
            # The answer was stale, or others were faster: one by one, then, with
            # every candidate of every host to fall back on.
            ledger.give_all_back()
        return self._place(hosts, ledger, self._claim_one(ledger))

    def _place(
        self, hosts: HostBatch, ledger: Ledger | None, accept: Accept
    ) -> list[Placed]:
        """Give each instance a host, or raise NoValidHost.

        A host that a filter rejected once does not come back for a later instance.
        """
        placed: list[Placed] = []
        for number, uuid in enumerate(self._uuids):
            ranking = self._rank(hosts, uuid, number)
            found = self._first_accepted(ranking, uuid, accept)
            if found is None:
                raise NoValidHost(_NOT_ENOUGH)
            placed.append(found)
            hosts = ranking.hosts
            if number + 1 < len(self._uuids):
                mark = uuid or f"instance {number}"
                hosts = hosts.with_instance(found.index, mark, _consumption(self._spec))
        return placed

    def _rank(self, hosts: HostBatch, uuid: str | None, number: int) -> Ranking:
        spec_obj = _of_instance(self._spec, uuid)
        with self._timed("filters"):
            hosts = filtered(
                self._filters,
                hosts,
                spec_obj,
                index=number,
                is_rebuild=self._is_rebuild,
                steps=self._record.steps,
            )
        with self._timed("weighers"):
            return ranked(
                self._weighers,
                hosts,
                spec_obj,
                conf=self._parts.conf,
                ties=self._ties(hosts),
                rng=self._parts.rng,
            )

    def _ties(self, hosts: HostBatch) -> npt.NDArray[np.float64]:
        """Return what orders equal hosts: the same for a row until the next start."""
        n_rows = int(hosts.rows.max()) + 1 if len(hosts) else 0
        order = np.random.default_rng(self._parts.tie_seed).random(n_rows)
        ties: npt.NDArray[np.float64] = order[hosts.rows]
        return ties

    @staticmethod
    def _first_accepted(
        ranking: Ranking, uuid: str | None, accept: Accept
    ) -> Placed | None:
        for index in map(int, ranking.order):
            is_accepted, candidate = accept(uuid, ranking.hosts, index)
            if is_accepted:
                return Placed(uuid, ranking, index, candidate)
        return None

    # -- claims ---------------------------------------------------------------------------

    def _plan(self, ledger: Ledger) -> Accept:
        def take(
            uuid: str | None, hosts: HostBatch, index: int
        ) -> tuple[bool, int | None]:
            candidate = ledger.next_of(hosts.value("uuid", index))
            if candidate is not None:
                ledger.take(candidate)
            return candidate is not None, candidate

        return take

    def _claim_one(self, ledger: Ledger) -> Accept:
        def try_host(
            uuid: str | None, hosts: HostBatch, index: int
        ) -> tuple[bool, int | None]:
            assert uuid is not None  # what is claimed has a consumer
            node = hosts.value("uuid", index)
            while (candidate := ledger.next_of(node)) is not None:
                answer = self._claim(
                    uuid, ledger, candidate, hosts.value("host", index)
                )
                if answer.result is ClaimResult.CLAIMED:
                    self._claims[uuid] = answer
                    ledger.take(candidate)
                    return True, candidate
                if answer.result is ClaimResult.CONTENDED:
                    break  # busy, not full: another host is the faster way
                ledger.refuse(candidate)
            return False, None

        return try_host

    def _claim(
        self, uuid: str, ledger: Ledger, candidate: int, host: str
    ) -> ClaimAnswer:
        with self._timed("claim"):
            answer = claim(
                self._parts.placement,
                uuid,
                ledger.request(candidate),
                project_id=self._owner("project_id"),
                user_id=self._owner("user_id"),
                global_request_id=self._caller.global_request_id,
                evacuated_from=evacuated_from(self._spec, self._parts.table),
                rng=self._parts.rng,
            )
        self._note_claim([uuid], [host], answer)
        return answer

    def _claim_all(self, placed: Sequence[Placed], ledger: Ledger) -> bool:
        wanted = {
            p.instance_uuid: ledger.request(p.candidate)
            for p in placed
            if p.instance_uuid is not None and p.candidate is not None
        }
        with self._timed("claim"):
            answer = claim_all(
                self._parts.placement,
                wanted,
                project_id=self._owner("project_id"),
                user_id=self._owner("user_id"),
                global_request_id=self._caller.global_request_id,
                evacuated_from=evacuated_from(self._spec, self._parts.table),
                rng=self._parts.rng,
            )
        hosts = [p.ranking.hosts.value("host", p.index) for p in placed]
        self._note_claim(list(wanted), hosts, answer)
        if answer.result is not ClaimResult.CLAIMED:
            return False
        self._claims.update(dict.fromkeys(wanted, answer))
        return True

    def _note_claim(
        self, uuids: Sequence[str], hosts: Sequence[str], answer: ClaimAnswer
    ) -> None:
        self._record.claims.append(
            ClaimAttempt(
                instance_uuids=tuple(uuids),
                hosts=tuple(hosts),
                result=answer.result.value,
                n_attempts=answer.n_attempts,
                detail=answer.detail,
            )
        )

    def _owner(self, name: str) -> str:
        """Return the request's project or user, else the caller's; Placement needs one."""
        mine = getattr(self._spec, name) if name in self._spec else None
        owner = mine or getattr(self._caller, name)
        if not owner:
            raise InvalidRequest(
                f"RequestSpec.{name} is not set, nor is it in the request context; "
                "an allocation belongs to somebody"
            )
        return str(owner)

    def _release(self) -> None:
        """Give back what was claimed; a failure is told and masks nothing."""
        before = {u: c for a in self._claims.values() for u, c in a.before.items()}
        try:
            release(
                self._parts.placement,
                self._claims,
                before=before,
                global_request_id=self._caller.global_request_id,
            )
        except PlacementError as e:
            LOG.error("A failed request leaves allocations behind. %s", e)

    def _consume(self, placed: Sequence[Placed]) -> None:
        consumption = _consumption(self._spec)
        for p in placed:
            if p.instance_uuid is not None:
                self._parts.table.consume(p.node_uuid, p.instance_uuid, consumption)

    # -- what is answered -----------------------------------------------------------------

    def _selections(
        self, placed: Sequence[Placed], ledger: Ledger | None
    ) -> list[list[Selection]]:
        last = placed[-1].ranking
        if self._n_alternates and len(placed) > 1:
            last = self._rank(last.hosts, self._uuids[-1], len(placed) - 1)
        chosen = {p.node_uuid for p in placed}
        return [self._with_alternates(p, last, chosen, ledger) for p in placed]

    def _with_alternates(
        self,
        placed: Placed,
        ranking: Ranking,
        chosen: set[str],
        ledger: Ledger | None,
    ) -> list[Selection]:
        hosts = placed.ranking.hosts
        mine = self._selection(hosts, placed.index, ledger, placed.candidate)
        others = [mine]
        for index in map(int, ranking.order):
            if len(others) > self._n_alternates:
                break
            node = ranking.hosts.value("uuid", index)
            if (
                node in chosen
                or ranking.hosts.value("cell_uuid", index) != mine.cell_uuid
            ):
                continue
            candidate = ledger.next_of(node) if ledger else None
            if candidate is not None or not self._is_claimed:
                others.append(self._selection(ranking.hosts, index, ledger, candidate))
        self._note_instance(placed, others)
        return others

    def _selection(
        self, hosts: HostBatch, index: int, ledger: Ledger | None, candidate: int | None
    ) -> Selection:
        default_zone = self._parts.conf.default_availability_zone
        if not self._is_claimed or ledger is None or candidate is None:
            return selection(hosts, index, default_zone)
        return selection(
            hosts, index, default_zone, ledger.request(candidate), ledger.version
        )

    def _note_instance(self, placed: Placed, selections: Sequence[Selection]) -> None:
        self._record.instances.append(
            InstanceRecord(
                instance_uuid=placed.instance_uuid,
                host=selections[0].service_host,
                weight=float(placed.ranking.total[placed.index]),
                top_hosts=placed.ranking.top(),
                alternates=tuple(s.service_host for s in selections[1:]),
            )
        )

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._record.add_time(step, time.perf_counter() - started)


def _anything(
    uuid: str | None, hosts: HostBatch, index: int
) -> tuple[bool, int | None]:
    """Accept every host: nothing is claimed."""
    return True, None


def _uuids(
    spec_obj: RequestSpec, instance_uuids: Sequence[str] | None
) -> list[str | None]:
    """Return an entry an instance; what is given beats ``num_instances``."""
    if instance_uuids:
        return list(instance_uuids)
    number = spec_obj.num_instances if "num_instances" in spec_obj else 1
    return [None] * number


def _of_instance(spec_obj: RequestSpec, uuid: str | None) -> RequestSpec:
    """Return the request as it is for one instance; the request itself stays as it is."""
    if uuid is None or ("instance_uuid" in spec_obj and spec_obj.instance_uuid == uuid):
        return spec_obj
    mine = copy.copy(spec_obj)
    mine._changed_fields = set(spec_obj._changed_fields)
    mine.instance_uuid = uuid
    return mine


def _consumption(spec_obj: RequestSpec) -> Consumption:
    flavor = spec_obj.flavor
    return Consumption(
        memory_mb=flavor.memory_mb,
        disk_mb=(flavor.root_gb + flavor.ephemeral_gb) * _MIB_PER_GIB,
        vcpus=flavor.vcpus,
    )
