# SPDX-License-Identifier: Apache-2.0
"""A copy of the cloud on which moves are decided and counted, one after another."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np

from ...objects import CellMapping, Destination, InstanceGroup, RequestSpec
from ..candidates import (
    AllocationRequest,
    CandidatesQuery,
    DerivedData,
    QueryOffer,
    amounts_by_class,
    resources_of,
)
from ..drivers.claims.checks import Refusal
from ..drivers.claims.contention import Contention
from ..drivers.claims.recorded import RecordedClaims
from ..drivers.decision import Decision
from ..drivers.decision_log import DecisionLog
from ..drivers.instances import Assignment
from ..drivers.parts import Parts
from ..drivers.prepared import Caller
from ..drivers.record import DecisionRecord
from ..errors import InvalidRequest, NoValidHost
from ..hosts import HostBatch, HostTable
from ..hosts.launches import without_launch
from ..placement.allocations.claims import ClaimAnswer
from ..placement.memory import TableOffer
from ..placement.providers import (
    ProviderQuery,
    ProviderTable,
    ProviderView,
    QueryNotCovered,
)
from ..request import get_field
from ..sources.base import BaseHostSource, GroupsUnavailable
from ..views.offline import ViewCandidates

#: The hints that nova's conductor removes before it moves an instance.
_INTERNAL_HINT: Final = "_nova_check_type"
#: Why an instance fits on no host that is named.
SHARED: Final = (
    "it uses a provider that hosts share, such as storage: nova finds no candidate for "
    "it on a host that is named; migrate it without --host"
)


class GrantedClaims(RecordedClaims):
    """Grants each claim of a decision, and keeps what was granted.

    Attributes
    ----------
    granted : dict
        By instance: its host with what it consumes there, and the allocation request.
    """

    def __init__(self) -> None:
        super().__init__()
        self.granted: dict[str, tuple[Assignment, AllocationRequest]] = {}
        self._requests: dict[str, AllocationRequest] = {}

    def claim(
        self,
        requests: Mapping[str, AllocationRequest],
        hosts: Sequence[str],
        *,
        is_held: bool = False,
        shared: AbstractSet[str] = frozenset(),
    ) -> ClaimAnswer:
        """Grant a claim."""
        self._requests.update(requests)
        return super().claim(requests, hosts, is_held=is_held, shared=shared)

    def after(
        self, assignment: Assignment, answer: ClaimAnswer, eligible: HostBatch
    ) -> Refusal | None:
        """Keep what was granted; return None: the instance keeps it."""
        uuid = assignment.instance_uuid
        self.granted[uuid] = assignment, self._requests[uuid]
        return super().after(assignment, answer, eligible)


def decide_granted(
    parts: Parts, spec: RequestSpec, uuids: Sequence[str]
) -> tuple[DecisionRecord, Mapping[str, tuple[Assignment, AllocationRequest]]]:
    """Decide a request whose claims are all granted; nothing is counted.

    Returns
    -------
    record : DecisionRecord
        With the outcome `SELECTED` or `NO_VALID_HOST`, and the reason of the latter.
    granted : mapping
        By instance: its host with what it consumes there, and the allocation request;
        empty: no host was found.

    Raises
    ------
    SchedulerError
        A component failed.
    """
    project_id = get_field(spec, "project_id")
    record = DecisionRecord(
        request_id=None,
        instance_uuids=tuple(uuids),
        n_instances=len(uuids),
        started_at=parts.clock(),
        project_id=project_id,
        n_known_hosts=len(parts.table),
    )
    claims = GrantedClaims()
    decision = Decision(
        parts,
        Caller(request_id=None, project_id=project_id),
        spec,
        uuids,
        record,
        return_alternates=False,
        recorded=claims,
    )
    try:
        with decision.concluding():
            decision.run()
    except (NoValidHost, InvalidRequest) as e:
        record.reason = record.reason or str(e)
        return record, {}
    return record, claims.granted


class TableCandidates(ViewCandidates):
    """Candidates from a table of providers as it is now."""

    def __init__(self, providers: ProviderTable) -> None:
        super().__init__(None, ())
        self._table = providers
        self._parsed: dict[CandidatesQuery, ProviderQuery] = {}
        self._data = DerivedData()

    def get(self, query: CandidatesQuery, **_keywords: object) -> QueryOffer:
        """Return the candidates for a query.

        Raises
        ------
        NoValidHost
            Placement would refuse the query.
        """
        parsed = self._parsed.get(query)
        if parsed is None:
            parsed = self._parsed[query] = ProviderQuery.parse(query.params)
        try:
            matches = self._table.view().match(parsed)
        except QueryNotCovered as e:
            raise NoValidHost(f"Placement would refuse the query: {e}") from e
        return TableOffer(query, matches, self._data, began=0, began_at=0.0)

    def provider_view(self) -> ProviderView:
        """Return the providers as they are now."""
        return self._table.view()


class _CopiedSource(BaseHostSource):
    """The source of a copied table: it reads groups, and refreshes no host."""

    def __init__(self, source: BaseHostSource, parts: Parts) -> None:
        super().__init__(parts.conf)
        self.is_reporting = source.is_reporting
        self.are_zones_checked = source.are_zones_checked
        self.has_aggregates = source.has_aggregates
        self._source = source

    def start(self, table: HostTable) -> None:
        """Do nothing: the table is a copy."""

    def members_of_groups(
        self,
        uuids: Collection[str],
        project_id: str,
        is_placed: Callable[[str], bool],
    ) -> Mapping[str, frozenset[str]]:
        """Return the members of a project's groups, as the source knows them."""
        return self._source.members_of_groups(uuids, project_id, is_placed)


@dataclasses.dataclass(frozen=True, slots=True)
class KnownRequest:
    """The request of an instance: flavor, image, hints, group, cells and devices.

    Attributes
    ----------
    origin : str
        Where it was read: "nova", "decisions" or "simulation".
    """

    spec: RequestSpec
    origin: str


#: From instances with their service hosts, the request of each or why it is unknown.
FindRequests = Callable[[Mapping[str, str]], Mapping[str, KnownRequest | str]]


@dataclasses.dataclass(frozen=True, slots=True)
class DecidedMove:
    """A move that was decided and is not counted yet.

    Attributes
    ----------
    assignment, request : Assignment, AllocationRequest, or None
        The host and what is claimed there; None: the instance fits on no host.
    """

    spec: RequestSpec
    record: DecisionRecord
    assignment: Assignment | None
    request: AllocationRequest | None

    @property
    def n_choices(self) -> int:
        """The number of hosts that pass the filters."""
        if self.assignment is None:
            return 0
        steps = self.record.steps
        return steps[-1].n_out if steps else self.record.n_hosts

    def root_amounts(self) -> dict[str, int]:
        """Return what is claimed of the compute node's own provider, by class."""
        if self.assignment is None or self.request is None:
            return {}
        return dict(resources_of(self.request).get(self.assignment.value("uuid"), {}))


class PlannedCloud:
    """The cloud as it is after the moves that were planned so far.

    Attributes
    ----------
    parts : Parts
        Those of the scheduler, with copies of its hosts and providers.
    """

    def __init__(self, parts: Parts, view: ProviderView) -> None:
        self._providers = ProviderTable.of_view(view)
        self.parts = dataclasses.replace(
            parts,
            table=parts.table.copied(parts.clock),
            candidates=TableCandidates(self._providers),
            source=_CopiedSource(parts.source, parts),
            decisions=DecisionLog(1),
            rng=np.random.default_rng(parts.tie_seed),
            review=lambda _nodes: False,
            contention=Contention(),
            views=None,
            publish_claims=None,
            n_top_hosts=0,
        )
        self._members: dict[str, frozenset[str] | None] = {}

    @property
    def table(self) -> HostTable:
        """The hosts."""
        return self.parts.table

    def provider_view(self) -> ProviderView:
        """Return the providers as they are now."""
        return self._providers.view()

    def copied(self) -> PlannedCloud:
        """Return a copy, in which further moves can be tried."""
        cloud = PlannedCloud(self.parts, self.provider_view())
        cloud._members = self._members
        return cloud

    def request_of_move(
        self,
        spec: RequestSpec,
        instance_uuid: str,
        source: str,
        ignored: Collection[str],
    ) -> tuple[RequestSpec, Sequence[str]]:
        """Return the request that nova's conductor would send, and notes on it.

        An instance stays in its cell; forced hosts count for its creation only. The
        members of its server group are the current ones, on the hosts where they are
        after the moves so far.

        Parameters
        ----------
        source : str
            The service host that the instance is on.
        ignored : collection of str
            The service hosts that it must not go to.
        """
        spec = copy.deepcopy(spec)
        spec.instance_uuid, spec.num_instances = instance_uuid, 1
        spec.force_hosts = spec.force_nodes = None
        spec.ignore_hosts = sorted({*ignored, source})
        spec.requested_destination = None
        hosts = self.table.batch(self.table.nodes_of(source))
        if len(hosts) and hosts.value("cell_uuid", 0):
            cell = CellMapping(uuid=hosts.value("cell_uuid", 0))
            spec.requested_destination = Destination(host="", node=None, cell=cell)
        hints = get_field(spec, "scheduler_hints") or {}
        spec.scheduler_hints = {
            name: values for name, values in hints.items() if name != _INTERNAL_HINT
        }
        notes: list[str] = []
        group = get_field(spec, "instance_group")
        if group is not None:
            members = self._current_members(group, get_field(spec, "project_id"))
            if members is None:
                members = frozenset(get_field(group, "members") or ())
                notes.append(
                    "the members of its server group are those of its stored request: "
                    "later ones are not known"
                )
            group.members = sorted({*members, instance_uuid})
            hosts_of = self.table.instances.hosts_of
            group.hosts = sorted({h for uuid in group.members for h in hosts_of(uuid)})
        return spec, notes

    def _current_members(
        self, group: InstanceGroup, project_id: str | None
    ) -> frozenset[str] | None:
        """Return the members of a server group; None: the source does not know them."""
        uuid = get_field(group, "uuid")
        if not uuid or not project_id:
            return None
        if uuid not in self._members:
            try:
                found = self.parts.source.members_of_groups(
                    [uuid], project_id, self.table.instances.is_known
                )
            except GroupsUnavailable:
                found = {}
            self._members[uuid] = found.get(uuid)
        return self._members[uuid]

    def decide(self, spec: RequestSpec, *, is_named: bool = True) -> DecidedMove:
        """Decide a request of `request_of_move`; nothing is counted.

        Parameters
        ----------
        is_named : bool
            Whether nova will be asked for the destination by name. It then queries
            Placement for the tree of that host (``in_tree``), and a provider that hosts
            share serves nothing of the group without a suffix.

        Raises
        ------
        SchedulerError
            A component failed.
        """
        uuid = str(spec.instance_uuid)
        record, granted = decide_granted(self.parts, spec, [uuid])
        if not granted:
            return DecidedMove(spec, record, None, None)
        move = DecidedMove(spec, record, *granted[uuid])
        if not is_named or not self._uses_shared(move):
            return move
        destination = get_field(spec, "requested_destination")
        if destination is not None and destination.host:
            return move
        assert move.assignment is not None
        named = copy.deepcopy(spec)
        named.requested_destination = Destination(
            host=move.assignment.value("host"),
            node=None,
            cell=None if destination is None else destination.cell,
        )
        decided = self.decide(named)
        if decided.assignment is None:
            record.reason = SHARED
            return DecidedMove(spec, record, None, None)
        return DecidedMove(spec, record, decided.assignment, decided.request)

    def _uses_shared(self, move: DecidedMove) -> bool:
        """Return whether a move claims a provider outside the destination's tree."""
        assert move.assignment is not None
        assert move.request is not None
        trees = self.provider_view().state.trees
        node = trees.find(move.assignment.value("uuid"))
        return any(
            trees.roots[trees.find(uuid)] != node for uuid in resources_of(move.request)
        )

    def count(
        self, move: DecidedMove, source: str = "", *, is_freed: bool = False
    ) -> None:
        """Count a move that is over: its claim, and that it left its source, if any.

        Parameters
        ----------
        is_freed : bool
            Whether what it claims of the destination's root provider becomes free on
            the source, too. NUMA cells, devices and nested providers do not, nor do
            classes that nested providers of the source have: which of them the instance
            had is known to its compute service only.
        """
        assignment = move.assignment
        assert assignment is not None
        assert move.request is not None
        self._providers.add_used(amounts_by_class(move.request))
        claims, uuid = self.table.claims, assignment.instance_uuid
        nodes = self.table.nodes_of(source) if source else ()
        launched_at = None
        if len(nodes) == 1:
            launched_at = self._take_launch(assignment, nodes[0])
        claims.consume(
            assignment.value("uuid"), uuid, assignment.consumption, launched_at
        )
        claims.end_builds(assignment.value("host"), [uuid])
        if is_freed and len(nodes) == 1:
            self._free(move, nodes[0])
        if source:
            claims.release(source, uuid)

    def _take_launch(self, assignment: Assignment, node_uuid: str) -> int | None:
        """Remove an instance's launch from its source; return its time, if it is known.

        Launches do not name their instances: of several of the group, it is the
        earliest. That of a claim is removed as the claim is released.
        """
        group, uuid = assignment.consumption.group, assignment.instance_uuid
        if group is None or self.table.claims.is_granted(node_uuid, uuid):
            return None
        record = self.table.as_reported(node_uuid)
        launches = (record and record.launches) or ()
        times = (launched_at for launched_at, *of in launches if tuple(of) == group)
        launched_at = next(times, None)
        if launched_at is not None:
            rest = without_launch(launches, launched_at, group)
            self.table.change_many({node_uuid: {"launches": rest}})
        return launched_at

    def _free(self, move: DecidedMove, node_uuid: str) -> None:
        assignment, record = move.assignment, self.table.as_reported(node_uuid)
        assert assignment is not None
        state = self.provider_view().state
        tree = state.trees.roots == state.trees.find(node_uuid)
        self._providers.add_used({
            name: {node_uuid: -amount}
            for name, amount in move.root_amounts().items()
            # Where children have the class, too, the instance may have used theirs.
            if np.count_nonzero(tree[state.column(name).rows]) == 1
        })  # fmt: skip
        # A claim that is not reported yet is reverted as it is released.
        if record is None or self.table.claims.is_granted(
            node_uuid, assignment.instance_uuid
        ):
            return
        changes = {
            name: getattr(record, name) - delta
            for name, delta in assignment.consumption.deltas()
            if name != "num_io_ops"
        }
        self.table.change_many({node_uuid: changes})
