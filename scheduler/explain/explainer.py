# SPDX-License-Identifier: Apache-2.0
"""Explanations of requests on the current hosts and providers of a scheduler."""

from __future__ import annotations

import copy
import dataclasses
import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import numpy as np

from ...objects import RequestSpec
from ..candidates import CandidatesQuery, DerivedData, Offer
from ..drivers.attachment_finder import RecordedAttachments
from ..drivers.named_groups import with_current_groups
from ..drivers.parts import Parts
from ..drivers.placement_queries import ATTACHMENTS, build_queries, run_prefilters
from ..drivers.prepared import Caller
from ..drivers.record import DecisionRecord, Outcome
from ..errors import InvalidRequest, NoValidHost, SchedulerError, excerpt
from ..hosts import HostBatch
from ..locality import HostPlaces, places_of_host
from ..placement.memory import TableOffer
from ..placement.providers import (
    ProviderColumns,
    ProviderRecord,
    ProviderTable,
    ProviderView,
)
from ..placement.providers.tree_records import tree_records
from ..placement.tree_reading import read_tree
from ..request import Request, get_field
from ..views import CapturedView
from .capacity import NO_PROVIDERS, CapacityReport, NoProviders, capacity
from .closest import ClosestReport, ClosestSearch
from .cloud_fill import BY_ZONE, CloudFill, cloud_fill
from .dry_run import dry_run
from .flavors import FlavorRequest, request_of_flavor
from .host_checks import FailedCheck, HostChecks, NamedNode, failed_checks
from .host_detail import HostDetail, describe_host
from .host_list import HostPage, summarize
from .host_room import UNKNOWN_ROOM, CloudRoom, HostRoom, find_room
from .host_search import HostSearch, find_hosts
from .reasons import CheckStage, HostReason, HostVerdict, ProvidersFrom, host_reasons
from .tree_checks import HostTree

_FIRST: Final = "of several forced hosts only the first is considered"
#: Compute nodes of one service host that are explained; ironic has more.
MAX_NODES: Final = 20
#: Hosts whose providers are read from Placement for `Explainer.closest`.
MAX_TREES: Final = 20


class UnknownHost(SchedulerError):
    """Raised for a host that the host table does not have; it lists similar names."""


def similar_names(name: str, known: Sequence[str]) -> list[str]:
    """Return up to three known names that begin with a name, or else resemble it."""
    longer_names = [
        known_name for known_name in known if name and known_name.startswith(name)
    ]
    return longer_names[:3] or difflib.get_close_matches(name[:255], known, n=3)


@dataclasses.dataclass(frozen=True, slots=True)
class _QueriedRequest:
    """A request and its queries to Placement.

    `queries` is None if Placement is not queried. It is built as if the request named
    no host; `named` has the queries about the one compute node that the request names.
    """

    request: Request
    queries: Sequence[CandidatesQuery] | None
    refusal: HostReason | None = None
    named: NamedNode | None = None

    def queries_for(self, node: str) -> Sequence[CandidatesQuery] | None:
        """Return the queries about a compute node."""
        is_named = self.named is not None and self.named.uuid == node
        return self.named.queries if self.named and is_named else self.queries


class Explainer:
    """Explains requests and hosts; it changes and claims nothing.

    Parameters
    ----------
    parts : callable
        Returns the current parts of a scheduler.
    providers : callable
        Returns the current view of Placement's providers; None: there is no copy of
        them in this process, and Placement itself is queried.
    """

    def __init__(
        self,
        parts: Callable[[], Parts],
        providers: Callable[[], ProviderView | None] = lambda: None,
    ) -> None:
        self._parts = parts
        self._providers = providers

    @property
    def max_view_age_s(self) -> float:
        """``[moorage] max_view_age``: older host state is stale; 0: it never is."""
        return float(self._parts().conf.moorage.max_view_age)

    def state(self) -> tuple[Parts, ProviderView]:
        """Return the current parts and providers, on whose copies moves are planned.

        Raises
        ------
        NoProviders
            There is no copy of Placement's providers in this process.
        """
        parts, view = self._parts(), self._providers()
        parts.source.refresh_if_stale(parts.table)
        if view is None:
            raise NoProviders(NO_PROVIDERS)
        return parts, view

    def now(self) -> float:
        """Return the time of the hosts' state, seconds since the epoch."""
        return self._parts().clock()

    def unknowns(self) -> list[str]:
        """Return what the source of hosts does not know, in general or now."""
        return list(self._parts().source.unknowns())

    def cell_names(self) -> Mapping[str, str]:
        """Return the names of cells by UUID, as far as the source of hosts has them."""
        return self._parts().source.cell_names()

    def dry_run(
        self, context: object, spec_obj: RequestSpec, n_instances: int
    ) -> DecisionRecord:
        """Return the record of a decision without claims; see `dry_run`."""
        return dry_run(self._parts(), Caller.of(context), spec_obj, n_instances)

    def hosts(
        self,
        *,
        after: str = "",
        limit: int | None = None,
        flavors: Sequence[FlavorRequest] = (),
        has_instances: bool = False,
        node_uuids: Collection[str] | None = None,
        notes: Sequence[str] = (),
    ) -> HostPage:
        """Return the state of compute nodes; see `summarize`.

        Parameters
        ----------
        flavors : sequence of FlavorRequest
            The recent flavors for which the hosts' room is counted; none: the room is
            unknown.
        notes : sequence of str
            What else is unknown.
        """
        parts = self._parts()
        parts.source.refresh_if_stale(parts.table)
        room, problem = self._room(parts, flavors)
        if problem:
            notes = (*notes, f"{UNKNOWN_ROOM}{problem}")
        return summarize(
            parts.table,
            parts.conf,
            parts.clock(),
            after=after,
            limit=limit,
            room=room,
            is_reporting=parts.source.is_reporting,
            has_instances=has_instances,
            node_uuids=node_uuids,
            notes=(*self.unknowns(), *notes),
        )

    def room(self, flavors: Sequence[FlavorRequest]) -> CloudRoom | None:
        """Return the room of all hosts for recent flavors; None: it is unknown."""
        parts = self._parts()
        parts.source.refresh_if_stale(parts.table)
        room, _ = self._room(parts, flavors)
        return None if room is None else room.cloud

    def _room(
        self, parts: Parts, flavors: Sequence[FlavorRequest]
    ) -> tuple[HostRoom | None, str]:
        """Return the room of all hosts for flavors, or why it is unknown."""
        view = self._providers() if flavors else None
        if view is None:
            return None, NO_PROVIDERS if flavors else ""
        try:
            return find_room(parts, view, flavors, parts.table.batch()), ""
        except SchedulerError as e:  # such as a plugin that failed
            return None, str(e)

    def host(
        self,
        host: str,
        *,
        flavors: Sequence[FlavorRequest] = (),
        notes: Sequence[str] = (),
    ) -> HostDetail:
        """Return all that is known of a service host, or of one compute node of it.

        Of a host's nodes, `MAX_NODES` at most.

        Parameters
        ----------
        host : str
            The name of a service host, or of a compute node.
        flavors, notes : sequence
            As of `hosts`.

        Raises
        ------
        UnknownHost
        """
        parts = self._parts()
        node_uuids = frozenset(self._nodes(parts, host))
        page = self.hosts(
            limit=MAX_NODES, flavors=flavors, node_uuids=node_uuids, notes=notes
        )
        if not page.hosts:
            raise self._unknown(parts, host)
        return describe_host(
            parts,
            page,
            _aggregate_texts(parts),
            lambda node_uuid: self._records(parts, node_uuid),
        )

    def find_hosts(self, search: HostSearch) -> list[str]:
        """Return the UUIDs of the compute nodes that match; see `find_hosts`."""
        parts = self._parts()
        parts.source.refresh_if_stale(parts.table)
        return find_hosts(parts.table, parts.conf, parts.clock(), search)

    def view(self) -> bytes:
        """Return the current hosts, providers and options, encoded as a stored view."""
        parts = self._parts()
        parts.source.refresh_if_stale(parts.table)
        return CapturedView.of(parts).encode()

    def fill(self, by: str = BY_ZONE) -> CloudFill:
        """Return how full all compute nodes are; see `cloud_fill`."""
        parts = self._parts()
        parts.source.refresh_if_stale(parts.table)
        return cloud_fill(parts.table, parts.conf, parts.clock(), by)

    def places_of(self, hosts: Collection[str]) -> Mapping[str, HostPlaces]:
        """Return the current places of each known service host of some, by level."""
        parts = self._parts()
        levels = parts.conf.locality.levels
        if not levels or not hosts:
            return {}
        all_hosts = parts.table.batch()
        named = all_hosts.take(all_hosts.matches("host", hosts))
        return {
            named.value("host", i): places_of_host(
                named.value("aggregates", i),
                named.value("places", i),
                levels,
                named.value("placement_places", i),
            )
            for i in range(len(named))
        }

    def why_not(
        self, context: object, spec_obj: RequestSpec, host: str
    ) -> list[HostVerdict]:
        """Return a verdict for each compute node of a service host, or for one node.

        Parameters
        ----------
        host : str
            The name of a service host, or of a compute node.

        Raises
        ------
        UnknownHost
        SchedulerError
            The request is invalid, or a component failed.
        """
        parts = self._parts()
        nodes = self._nodes(parts, host)
        queried = self._build_queries(parts, Caller.of(context), spec_obj)
        return [self._judge(parts, queried, node) for node in nodes[:MAX_NODES]]

    def closest(self, context: object, spec_obj: RequestSpec) -> ClosestReport:
        """Return what would have to change for a request to fit.

        A request for several instances is also decided, without claims: the hosts that
        pass may lack room for all instances, or rules may forbid all on these hosts.

        If the providers are not in memory, the providers of only `MAX_TREES` hosts are
        read from Placement: of the hosts that fail the fewest other checks.

        Raises
        ------
        SchedulerError
            The request is invalid, or a component failed.
        """
        parts, checks, origin = self._checks(context, spec_obj)
        report = ClosestSearch(parts, checks).report(origin)
        n_instances = get_field(spec_obj, "num_instances") or 1
        if n_instances == 1:
            return report
        return self._with_fitting(report, context, spec_obj, n_instances)

    def failing_checks(
        self, context: object, spec_obj: RequestSpec
    ) -> list[FailedCheck]:
        """Return each check of a request that hosts fail, that of the most hosts first.

        The hosts that the request ignores are not counted.

        Raises
        ------
        SchedulerError
            The request is invalid, or a component failed.
        """
        _, checks, _ = self._checks(context, spec_obj)
        return failed_checks(checks)

    def _checks(
        self, context: object, spec_obj: RequestSpec
    ) -> tuple[Parts, HostChecks, ProvidersFrom]:
        """Return the checks of a request on all hosts, and where providers are from."""
        parts = self._parts()
        parts.source.refresh_if_stale(parts.table)
        caller = Caller.of(context)
        queried = self._build_queries(parts, caller, spec_obj)
        refusals = []
        while queried.refusal is not None and parts.prefilters:
            refusals.append(queried.refusal)
            parts = _without_prefilter(parts, queried.refusal.check)
            queried = self._build_queries(parts, caller, spec_obj)
        request, queries = queried.request, queried.queries
        hosts = parts.table.batch()
        view, origin = None, ProvidersFrom.NOT_ASKED
        if queries is not None:
            view, origin = self._providers(), ProvidersFrom.MEMORY
            if view is None:
                unqueried = HostChecks(parts, request, None, (), None, hosts)
                nearest = np.argsort(unqueried.n_failing(), kind="stable")[:MAX_TREES]
                hosts = hosts.take(np.sort(nearest))
                view, origin = _read_view(parts, hosts), ProvidersFrom.PLACEMENT
        checks = HostChecks(
            parts, request, queries, refusals, view, hosts, queried.named
        )
        return parts, checks, origin

    def _with_fitting(
        self,
        report: ClosestReport,
        context: object,
        spec_obj: RequestSpec,
        n_instances: int,
    ) -> ClosestReport:
        """Return a report that says how many of several instances fit at once."""
        record = self.dry_run(context, spec_obj, n_instances)
        lower, upper = 0, n_instances
        if record.outcome is not Outcome.SELECTED:
            upper -= 1
            while lower < upper:
                middle = (lower + upper + 1) // 2
                smaller = self.dry_run(context, spec_obj, middle)
                if smaller.outcome is Outcome.SELECTED:
                    lower = middle
                else:
                    upper = middle - 1
        return dataclasses.replace(
            report,
            n_instances=n_instances,
            n_fitting=upper,
            refusal=record.user_message,
        )

    def requests_of(self, instance_uuids: Collection[str]) -> Mapping[str, RequestSpec]:
        """Return the requests that the source has; see `BaseHostSource.requests_of`."""
        return self._parts().source.requests_of(instance_uuids)

    def nova_flavors(self, names: Collection[str] | None = None) -> list[FlavorRequest]:
        """Return requests for nova's flavors; see `BaseHostSource.flavors`."""
        flavors = self._parts().source.flavors(names)
        return [request_of_flavor(flavor) for flavor in flavors]

    def capacity(
        self, flavors: Sequence[FlavorRequest], *, n_listed: int = 0
    ) -> CapacityReport:
        """Return how many more instances of each flavor fit now; see `capacity`."""
        parts = self._parts()
        parts.source.refresh_if_stale(parts.table)
        return capacity(parts, self._providers(), flavors, n_listed=n_listed)

    def require_zone(self, zone: str | None) -> None:
        """Refuse an availability zone that does not exist, as nova's API does.

        Raises
        ------
        InvalidRequest
        """
        parts = self._parts()
        default: str = parts.conf.default_availability_zone
        zones = {aggregate.availability_zone for aggregate in parts.table.aggregates}
        zone_names = sorted({default, *filter(None, zones)})
        if zone is not None and zone not in zone_names:
            raise InvalidRequest(
                f"availability_zone: there is no zone {excerpt(zone)}; there are "
                f"{', '.join(zone_names)}"
            )

    def _nodes(self, parts: Parts, host: str) -> Sequence[str]:
        parts.source.refresh_if_stale(parts.table)
        nodes = parts.table.nodes_of(host) or parts.table.nodes_of(None, host)
        if nodes:
            return nodes
        raise self._unknown(parts, host)

    def _unknown(self, parts: Parts, host: str) -> UnknownHost:
        host_names = sorted(set(parts.table.batch().host))
        similar = similar_names(host, host_names)
        hint = f"; similar: {', '.join(similar)}" if similar else ""
        return UnknownHost(
            f"There is no host {excerpt(host)} among {len(host_names)}{hint}"
        )

    def _build_queries(
        self, parts: Parts, caller: Caller, spec_obj: RequestSpec
    ) -> _QueriedRequest:
        request = Request.validated(copy.deepcopy(spec_obj))
        # A weigher may refuse a hint that no filter reads.
        for weigher in parts.weighers:
            weigher.prepare(request.spec_obj)
        if request.is_rebuild:
            return _QueriedRequest(request, None)
        record = DecisionRecord(caller.request_id, (), 1, parts.clock())
        try:
            request = with_current_groups(parts, request)
            requirements = run_prefilters(parts, caller, request, record)
            queries = build_queries(parts, request, requirements)
            requested, named = request.requested_host, None
            nodes = parts.table.nodes_of(*requested) if requested else ()
            if len(nodes) == 1:
                # A decision does the same: see `restrict_to_requested_host`.
                requirements.in_tree = nodes[0]
                node_queries = build_queries(parts, request, requirements)
                named = NamedNode(nodes[0], node_queries)
            return _QueriedRequest(request, queries, named=named)
        except NoValidHost as e:
            name = record.steps[-1].name if record.steps else "query"
            reason = HostReason(CheckStage.PREFILTER, name, e.reason.strip())
            return _QueriedRequest(request, None, reason)

    def _judge(self, parts: Parts, queried: _QueriedRequest, node: str) -> HostVerdict:
        reasons = [queried.refusal] if queried.refusal else []
        offer, origin = None, ProvidersFrom.NOT_ASKED
        queries = queried.queries_for(node)
        if queries is not None:
            records, origin = self._records(parts, node)
            tree = HostTree(records, _aggregate_texts(parts)) if records else None
            reasons += _placement_reasons(tree, queries)
            offer = _offer(tree, queries)
        host = _host(parts, node, offer)
        reasons += host_reasons(host, queried.request, parts.filters)
        if _is_elsewhere(parts, queried.request, node) and not any(
            reason.stage is CheckStage.RESTRICTION and reason.check != "ignore_hosts"
            for reason in reasons
        ):
            reasons.append(HostReason(CheckStage.RESTRICTION, "force_hosts", _FIRST))
        return HostVerdict(
            host.value("host", 0),
            host.value("nodename", 0),
            node,
            tuple(reasons),
            origin,
        )

    def _records(
        self, parts: Parts, node: str
    ) -> tuple[Sequence[ProviderRecord], ProvidersFrom]:
        view = self._providers()
        if view is not None:
            return tree_records(view, node), ProvidersFrom.MEMORY
        return read_tree(parts.placement, node), ProvidersFrom.PLACEMENT


def _without_prefilter(parts: Parts, name: str) -> Parts:
    """Return parts without one prefilter; without all if none has that name."""
    if name == ATTACHMENTS:
        return dataclasses.replace(parts, attachments=RecordedAttachments())
    prefilters = [prefilter for prefilter in parts.prefilters if prefilter[0] != name]
    if len(prefilters) == len(parts.prefilters):
        prefilters = []
    return dataclasses.replace(parts, prefilters=prefilters)


def _read_view(parts: Parts, hosts: HostBatch) -> ProviderView:
    """Return the providers of some hosts, read from Placement."""
    records: dict[str, ProviderRecord] = {}
    for uuid in hosts.uuid.tolist():
        for record in read_tree(parts.placement, uuid):
            records.setdefault(record.uuid, record)
    return ProviderTable(ProviderColumns.of(records.values())).view()


def _aggregate_texts(parts: Parts) -> Mapping[str, str]:
    """Return a text for each aggregate by UUID."""
    table = parts.table
    texts = {place.aggregate: " ".join(place.place) for place in table.placement_places}
    for aggregate in table.aggregates:
        zone = aggregate.availability_zone
        texts[aggregate.uuid] = (
            f"{aggregate.name} (zone {zone})" if zone else aggregate.name
        )
    return texts


def _is_elsewhere(parts: Parts, request: Request, node: str) -> bool:
    """Return whether a request names a host to which a node does not belong."""
    requested = request.requested_host
    return requested is not None and node not in parts.table.nodes_of(*requested)


def _placement_reasons(
    tree: HostTree | None, queries: Sequence[CandidatesQuery]
) -> list[HostReason]:
    """Return the parts of the queries that a tree does not meet.

    Empty: the tree meets one of the queries.
    """
    if tree is None:
        text = "it has no resource provider in Placement"
        return [HostReason(CheckStage.PLACEMENT, "provider", text)]
    by_query = [tree.reasons(query) for query in queries]
    if not all(by_query):
        return []
    # The second query, without PCPU, mostly fails for the same reasons.
    return list(dict.fromkeys(reason for reasons in by_query for reason in reasons))


def _offer(tree: HostTree | None, queries: Sequence[CandidatesQuery]) -> Offer | None:
    """Return the candidates of one tree for the first query that it meets."""
    for query in queries if tree is not None else ():
        assert tree is not None
        if tree.reasons(query):
            continue
        matches = tree.match(query)
        offer = TableOffer(query, matches, DerivedData(), began=0, began_at=0)
        return Offer([offer])
    return None


def _host(parts: Parts, node: str, offer: Offer | None) -> HostBatch:
    """Return one compute node, with its candidates if it has any."""
    if offer is not None:
        hosts = parts.table.batch_of_offer(offer)
        is_node = hosts.matches("uuid", [node])
        if is_node.any():
            return hosts.take(is_node)
    host = parts.table.batch([node])
    if not len(host):
        raise UnknownHost(f"The compute node {node} has just been removed")
    return host
