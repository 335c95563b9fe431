# SPDX-License-Identifier: Apache-2.0
"""All that is known of one service host: nodes, providers, instances, events."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from ..drivers.parts import Parts
from ..drivers.record import DecisionRecord, Outcome
from ..errors import SchedulerError
from ..hosts import HostAggregate, UnreportedClaim
from ..placement.providers import ProviderRecord
from ..sources.base import BaseHostSource
from .host_list import HostPage, HostSummary
from .host_room import CloudRoom
from .reasons import ProvidersFrom

#: Instances of one service host that are listed.
MAX_INSTANCES: Final = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class InventoryUse:
    """One inventory of a resource provider, and how much of it is allocated."""

    total: int
    reserved: int
    allocation_ratio: float
    used: int


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderDetail:
    """One resource provider of a compute node.

    Attributes
    ----------
    parent_uuid : str or None
        None: it is the compute node itself, or shares its inventory with the node.
    inventories : mapping
        By resource class.
    aggregates : tuple of str
        The names of Placement's aggregates that it is in, with the zone if they define
        one; the UUID of an aggregate whose name is unknown.
    """

    uuid: str
    parent_uuid: str | None
    inventories: Mapping[str, InventoryUse]
    traits: tuple[str, ...]
    aggregates: tuple[str, ...]

    @classmethod
    def of(cls, record: ProviderRecord, names: Mapping[str, str]) -> ProviderDetail:
        """Return a provider with the aggregates' names, by UUID."""
        return cls(
            record.uuid,
            record.parent_uuid,
            {
                name: InventoryUse(
                    inventory.total,
                    inventory.reserved,
                    inventory.allocation_ratio,
                    record.used.get(name, 0),
                )
                for name, inventory in sorted(record.inventories.items())
            },
            tuple(sorted(record.traits)),
            tuple(sorted(names.get(uuid, uuid) for uuid in record.aggregates)),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class NodeDetail:
    """One compute node, and its providers, the root first.

    Attributes
    ----------
    problem : str
        Why the providers are unknown; empty: they are known.
    """

    state: HostSummary
    providers: tuple[ProviderDetail, ...]
    providers_from: ProvidersFrom
    problem: str


@dataclasses.dataclass(frozen=True, slots=True)
class AggregateOfHost:
    """A host aggregate of nova."""

    name: str
    uuid: str
    zone: str | None
    metadata: Mapping[str, str]

    @classmethod
    def of(cls, aggregate: HostAggregate) -> AggregateOfHost:
        """Return an aggregate of the host table."""
        return cls(
            aggregate.name,
            aggregate.uuid,
            aggregate.availability_zone,
            dict(aggregate.metadata),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceOnHost:
    """One instance of a service host.

    Attributes
    ----------
    claimed_at : float or None
        When it was claimed, seconds since the epoch; None: a report includes it.
    """

    uuid: str
    claimed_at: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class HostEvent:
    """What happened to a host at a time, seconds since the epoch.

    Attributes
    ----------
    kind : str
        The result of a claim; or "selected", "pending claim", "report" or "refused
        report".
    request_id : str or None
        The request of a claim.
    """

    at: float
    kind: str
    text: str
    request_id: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class HostDetail:
    """One service host.

    Attributes
    ----------
    aggregates : tuple of AggregateOfHost or None
        None: the source reports none, and no cast of nova has named any.
    instances : tuple of InstanceOnHost
        The known ones. All nodes of a service host share them.
    n_unnamed : int or None
        How many more instances its nodes count; None: the source reports no instances.
    events : tuple of HostEvent
        The newest first.
    notes : tuple of str
        What is unknown.
    """

    host: str
    nodes: tuple[NodeDetail, ...]
    aggregates: tuple[AggregateOfHost, ...] | None
    instances: tuple[InstanceOnHost, ...]
    n_unnamed: int | None
    room: CloudRoom | None
    events: tuple[HostEvent, ...]
    notes: tuple[str, ...]

    def with_events(self, events: Iterable[HostEvent]) -> HostDetail:
        """Return the same host with more events."""
        all_events = sorted(
            (*self.events, *events), key=lambda event: event.at, reverse=True
        )
        return dataclasses.replace(self, events=tuple(all_events))


def describe_host(
    parts: Parts,
    page: HostPage,
    aggregate_names: Mapping[str, str],
    read_providers: Callable[[str], tuple[Sequence[ProviderRecord], ProvidersFrom]],
) -> HostDetail:
    """Return what hosts, providers and the source know of a service host now.

    Parameters
    ----------
    page : HostPage
        The nodes of the service host, one at least.
    aggregate_names : mapping
        By the UUID of Placement's aggregate.
    read_providers : callable
        Takes a node's UUID; returns its providers, the root first, and their origin.
    """
    table, source = parts.table, parts.source
    host, node_uuids = page.hosts[0].host, {node.node_uuid for node in page.hosts}
    claims = [
        claim for claim in table.claims.unreported() if claim.node_uuid in node_uuids
    ]
    claimed_at = {claim.instance_uuid: claim.claimed_at for claim in claims}
    nodes = []
    for state in page.hosts:
        try:
            records, origin = read_providers(state.node_uuid)
            problem = "" if records else "it has no resource provider in Placement"
        except SchedulerError as e:
            records, origin, problem = (), ProvidersFrom.NOT_ASKED, str(e)
        providers = tuple(
            ProviderDetail.of(record, aggregate_names) for record in records
        )
        nodes.append(NodeDetail(state, providers, origin, problem))
    aggregates = None
    if source.has_aggregates or tuple(table.aggregates):
        aggregates = tuple(
            AggregateOfHost.of(aggregate)
            for aggregate in table.aggregates
            if host in aggregate.hosts
        )
    uuids = sorted(table.instances.of_host(host))
    instances = tuple(
        InstanceOnHost(uuid, claimed_at.get(uuid)) for uuid in uuids[:MAX_INSTANCES]
    )
    n_counted = sum(state.n_instances or 0 for state in page.hosts)
    n_unnamed = max(n_counted, len(uuids)) - len(instances)
    return HostDetail(
        host,
        tuple(nodes),
        aggregates,
        instances,
        n_unnamed if source.is_reporting else None,
        page.room,
        (),
        page.notes,
    ).with_events(_current_events(claims, source, page.hosts))


def _current_events(
    claims: Iterable[UnreportedClaim],
    source: BaseHostSource,
    nodes: Sequence[HostSummary],
) -> Iterator[HostEvent]:
    """Yield the events that hosts and source know: pending claims and reports."""
    node_of = {node.node_uuid: node.node for node in nodes}
    for claim in claims:
        verb = "reserved" if claim.is_reserved else "claimed"
        text = f"{claim.instance_uuid} {verb} on {node_of[claim.node_uuid]}"
        yield HostEvent(claim.claimed_at, "pending claim", text)
    for node in nodes:
        if node.seen_at is not None:
            text = f"the newest heartbeat or report of {node.node}"
            yield HostEvent(node.seen_at, "report", text)
    if (refused := source.refused_report(nodes[0].host)) is not None:
        at, cause = refused
        yield HostEvent(at, "refused report", cause)


def events_of_records(
    records: Iterable[DecisionRecord], host: str
) -> Iterator[HostEvent]:
    """Yield the claims on a host, granted and refused, that decisions have recorded."""
    for record in records:
        is_claimed = False
        for claim in record.claims:
            if host not in claim.hosts:
                continue
            is_claimed = True
            n_on_host = len(claim.instance_uuids)
            if len(claim.hosts) > 1:
                placed = {
                    instance.instance_uuid
                    for instance in record.instances
                    if instance.host == host
                }
                n_on_host = len(placed.intersection(claim.instance_uuids))
            n_instances = f"{n_on_host} instance(s)" if n_on_host else "an instance"
            detail = f": {claim.detail}" if claim.detail else ""
            yield HostEvent(
                record.started_at + (claim.at_ms or 0.0) / 1000,
                claim.result,
                f"{n_instances}{detail}",
                record.request_id,
            )
        n_selected = sum(instance.host == host for instance in record.instances)
        if n_selected and not is_claimed and record.outcome is Outcome.SELECTED:
            text = f"{n_selected} instance(s), without a claim"
            yield HostEvent(record.started_at, "selected", text, record.request_id)
