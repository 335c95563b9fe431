# SPDX-License-Identifier: Apache-2.0
"""The comparison of a cloud with Placement: pure, of two states that were read."""

from __future__ import annotations

import dataclasses
import enum
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import os_resource_classes as orc

from .cloud import Cloud, Fate, FateState, KnownFlavor, KnownHost
from .placement_state import AuditedProvider, HeldAllocations, PlacementState

#: Classes of which only the providers of compute nodes have inventory.
_OF_COMPUTES: Final = (orc.VCPU, orc.PCPU, orc.MEMORY_MB)
#: The consumer types of nova. It sends none yet, and Placement returns "unknown" then.
_NOVAS_TYPES: Final = frozenset({None, "unknown", "INSTANCE", "MIGRATION"})


class Kind(enum.Enum):
    """What a finding is; the value is the label of its metric."""

    LEFTOVER = "leftover_allocation"
    MISSING = "missing_allocation"
    DOUBLED = "doubled_allocation"
    MISPLACED = "misplaced_allocation"
    DIFFERENT = "different_allocation"
    HOSTLESS = "provider_without_host"
    PROVIDERLESS = "host_without_provider"
    INVENTORY = "different_inventory"
    NOT_IN_AGGREGATE = "missing_aggregate"
    IN_AGGREGATE = "extra_aggregate"
    SUSPECTED = "suspected_orphan"

    @property
    def title(self) -> str:
        """What findings of this kind are, for people."""
        return _TITLES[self]


_TITLES: Final = {
    Kind.LEFTOVER: "Allocations of consumers that do not exist, or are on no host",
    Kind.MISSING: "Instances on a host without an allocation",
    Kind.DOUBLED: "Instances with allocations on several compute nodes",
    Kind.MISPLACED: "Instances with an allocation on another compute node than theirs",
    Kind.DIFFERENT: "Instances whose allocation differs from their flavor",
    Kind.HOSTLESS: "Resource providers of compute nodes that do not exist",
    Kind.PROVIDERLESS: "Compute nodes without a resource provider",
    Kind.INVENTORY: "Inventories that differ from what the host reports",
    Kind.NOT_IN_AGGREGATE: "Compute nodes that are not in Placement's aggregate",
    Kind.IN_AGGREGATE: "Compute nodes that are only in Placement's aggregate",
    Kind.SUSPECTED: "Suspected orphans of schedulers on this machine",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """Something that differs.

    Attributes
    ----------
    subject : str
        UUID of the consumer, or of the provider, which is that of its compute node.
    name : str
        The host of the subject; empty if it has none.
    evidence : str
        What was compared; equal in two comparisons only if nothing changed in between.
    repair : tuple of str
        Commands in their order, and comments that begin with ``#``.
    since : float or None
        When it became so, seconds since the epoch; None: unknown.
    generation : int or None
        The consumer's; None: the subject is none, or holds nothing.
    """

    kind: Kind
    subject: str
    name: str
    evidence: str
    repair: tuple[str, ...]
    since: float | None = None
    generation: int | None = None

    @property
    def identity(self) -> tuple[Kind, str, str, int | None]:
        """What is equal in two comparisons if its consumer was not written between."""
        return self.kind, self.subject, self.evidence, self.generation


def unplaced_consumers(cloud: Cloud, placement: PlacementState) -> list[str]:
    """Return the consumers on compute nodes' providers that no host is known to have.

    Those of another type than nova's, and those that hold nothing of a compute node,
    are of other services.
    """
    roots = _compute_roots(cloud, placement)
    return [
        uuid
        for uuid, held in placement.consumers.items()
        if uuid not in cloud.instances
        and uuid not in cloud.in_use
        and held.consumer_type in _NOVAS_TYPES
        and any(_root(placement, provider) in roots for provider in held.resources)
    ]


def differing_instances(cloud: Cloud, placement: PlacementState) -> list[str]:
    """Return the instances whose amounts differ from what the rows of instances say.

    Rows have neither swap nor extra specs: the whole flavors of these must be read.
    """
    return [
        uuid
        for uuid, instance in cloud.instances.items()
        if instance.flavor is not None
        and (held := placement.consumers.get(uuid)) is not None
        and instance.flavor.differences(_amounts(held.resources.values()))
    ]


def compare(
    cloud: Cloud,
    placement: PlacementState,
    fates: Mapping[str, Fate],
    flavors: Mapping[str, KnownFlavor],
    suspected: Mapping[str, Collection[str]],
) -> list[Finding]:
    """Return all that differs, by kind.

    Parameters
    ----------
    fates
        Of `unplaced_consumers`; empty: the source knows no fates.
    flavors
        Of `differing_instances`.
    suspected
        The providers of the claims that are suspected orphans, by consumer.
    """
    findings = [
        *_leftovers(placement, fates),
        *_of_instances(cloud, placement, flavors),
        *_of_hosts(cloud, placement),
        *_of_aggregates(cloud, placement),
    ]
    reported = {finding.subject for finding in findings}
    for uuid, providers in suspected.items():
        held = placement.consumers.get(uuid)
        if held is None or uuid in reported or not held.resources.keys() & providers:
            continue
        instance, hosts = cloud.instances.get(uuid), set[str]()
        for provider in providers:
            if (host := cloud.hosts.get(_root(placement, provider))) is not None:
                hosts.add(host.host)
        if instance is not None and hosts & instance.hosts:
            continue  # it is there
        evidence = f"a scheduler suspects its claim; it holds {_text(placement, held)}"
        findings.append(
            Finding(
                Kind.SUSPECTED,
                uuid,
                "",
                evidence,
                (
                    f"openstack server show {uuid}",
                    "# if no such server exists:",
                    f"openstack resource provider allocation delete {uuid}",
                ),
                held.written_at,
                held.generation,
            )
        )
    return findings


def _leftovers(
    placement: PlacementState, fates: Mapping[str, Fate]
) -> Iterator[Finding]:
    for uuid, fate in fates.items():
        held = placement.consumers.get(uuid)
        if fate.state is FateState.IN_USE or held is None:
            continue
        times = [at for at in (fate.since, held.written_at) if at is not None]
        yield Finding(
            Kind.LEFTOVER,
            uuid,
            "",
            f"{fate.text}; it holds {_text(placement, held)}",
            (f"openstack resource provider allocation delete {uuid}",),
            max(times, default=None),
            held.generation,
        )


def _of_instances(
    cloud: Cloud, placement: PlacementState, flavors: Mapping[str, KnownFlavor]
) -> Iterator[Finding]:
    """Yield what is wrong with the allocations of instances on hosts."""
    roots = _compute_roots(cloud, placement)
    for uuid, instance in cloud.instances.items():
        held, host = placement.consumers.get(uuid), ", ".join(sorted(instance.hosts))
        heal = f"nova-manage placement heal_allocations --instance {uuid}"
        if held is None:
            evidence = f"instance on {host} holds nothing"
            yield Finding(Kind.MISSING, uuid, host, evidence, (heal,))
            continue
        if instance.node_uuid is None:
            continue
        at: defaultdict[str, list[str]] = defaultdict(list)
        for provider in held.resources:
            if (root := _root(placement, provider)) in roots:
                at[root].append(provider)
        if instance.node_uuid not in at:
            where = f"holds {_text(placement, held)}"
            evidence = f"instance on {host} {where}"
            yield Finding(
                Kind.MISPLACED,
                uuid,
                host,
                evidence,
                (f"{heal} --force",),
                held.written_at,
                held.generation,
            )
            continue
        extra = at.keys() - {instance.node_uuid} - instance.evacuated_from
        if extra:
            names = ", ".join(sorted(placement.providers[root].name for root in extra))
            yield Finding(
                Kind.DOUBLED,
                uuid,
                host,
                f"instance on {host} also holds an allocation on {names}",
                tuple(
                    "openstack --os-placement-api-version 1.28 resource provider "
                    f"allocation unset --provider {provider} {uuid}"
                    for root in sorted(extra)
                    for provider in sorted(at[root])
                ),
                held.written_at,
                held.generation,
            )
        if instance.flavor is None or uuid not in flavors:
            continue
        elsewhere = {
            provider
            for root in at
            if root != instance.node_uuid
            for provider in at[root]
        }
        amounts = _amounts(
            resources
            for provider, resources in held.resources.items()
            if provider not in elsewhere
        )
        if differences := flavors[uuid].differences(amounts):
            yield Finding(
                Kind.DIFFERENT,
                uuid,
                host,
                f"instance on {host} holds {', '.join(differences)}",
                (f"{heal} --force",),
                held.written_at,
                held.generation,
            )


def _of_hosts(cloud: Cloud, placement: PlacementState) -> Iterator[Finding]:
    """Yield providers without hosts, hosts without providers, and their inventories."""
    trees = placement.trees()
    by_name = {provider.name: provider for provider in placement.providers.values()}
    consumers_of: Counter[str] = Counter(
        root
        for held in placement.consumers.values()
        for root in {_root(placement, provider) for provider in held.resources}
    )
    for root in sorted(_compute_roots(cloud, placement) - cloud.hosts.keys()):
        provider = placement.providers[root]
        n_consumers = consumers_of[root]
        evidence = f"no compute node has the UUID of provider {provider.name}"
        repair = [
            f"openstack resource provider delete {member.uuid}"
            for member in _leaves_first(trees[root])
        ]
        if n_consumers:
            evidence += "; consumers hold allocations of it"
            repair.insert(
                0,
                f"# first free it; openstack resource provider show --allocations "
                f"{root} lists who holds it",
            )
        yield Finding(
            Kind.HOSTLESS,
            root,
            provider.name,
            evidence,
            tuple(repair),
            None if n_consumers else provider.changed_at,
        )
    for host in cloud.hosts.values():
        restart = f"# on {host.host}: restart {cloud.reporter}, which writes it"
        if host.uuid in placement.providers:
            yield from _of_inventory(host, trees.get(host.uuid, ()), restart)
            continue
        evidence = f"Placement has no resource provider {host.uuid}"
        repair = [restart]
        if (other := by_name.get(host.node)) is not None:
            evidence += f"; its name {host.node} has provider {other.uuid}"
            repair.insert(0, f"openstack resource provider delete {other.uuid}")
        yield Finding(Kind.PROVIDERLESS, host.uuid, host.host, evidence, tuple(repair))


def _of_inventory(
    host: KnownHost, tree: Sequence[AuditedProvider], restart: str
) -> Iterator[Finding]:
    totals: Counter[str] = Counter()
    for provider in tree:
        totals.update(provider.totals)
    differing = []
    for name, reported in host.totals.items():
        total = totals[name]
        is_shared = name == orc.DISK_GB and not total
        # The dedicated CPUs of a host may be counted among its CPUs.
        is_with_pinned = name == orc.VCPU and total + totals[orc.PCPU] == reported
        if total != reported and not is_shared and not is_with_pinned:
            differing.append(f"{name} {total} instead of {reported}")
    if not differing:
        return
    changed = [
        provider.changed_at for provider in tree if provider.changed_at is not None
    ]
    yield Finding(
        Kind.INVENTORY,
        host.uuid,
        host.host,
        f"{', '.join(differing)}, as the host reports",
        (restart, f"openstack resource provider inventory list {host.uuid}"),
        max(changed, default=None),
    )


def _of_aggregates(cloud: Cloud, placement: PlacementState) -> Iterator[Finding]:
    """Yield the compute nodes whose aggregates are not nova's.

    Aggregates of Placement that are no host aggregates of nova are left out: shared
    storage and places have their own. nova puts no host with several nodes into
    Placement's aggregates.
    """
    aggregates = {
        aggregate.uuid: aggregate
        for aggregate in cloud.aggregates or ()
        if aggregate.uuid
    }
    wanted: defaultdict[str, set[str]] = defaultdict(set)
    for uuid, aggregate in aggregates.items():
        for name in aggregate.hosts:
            wanted[name].add(uuid)
    n_nodes = Counter(host.host for host in cloud.hosts.values())
    for host in cloud.hosts.values():
        provider = placement.providers.get(host.uuid)
        if provider is None:
            continue
        of_host = wanted.get(host.host, set())
        if n_nodes[host.host] == 1:
            for uuid in sorted(of_host - provider.aggregates):
                yield Finding(
                    Kind.NOT_IN_AGGREGATE,
                    host.uuid,
                    host.host,
                    f"host is in aggregate {aggregates[uuid].name} ({uuid}) of nova, "
                    "and its provider is not",
                    ("nova-manage placement sync_aggregates",),
                )
        for uuid in sorted((provider.aggregates & aggregates.keys()) - of_host):
            remaining = "".join(
                f" --aggregate {other}"
                for other in sorted(provider.aggregates - {uuid})
            )
            yield Finding(
                Kind.IN_AGGREGATE,
                host.uuid,
                host.host,
                f"host is not in aggregate {aggregates[uuid].name} ({uuid}) of nova",
                (
                    "openstack --os-placement-api-version 1.18 resource provider "
                    f"aggregate set{remaining} {host.uuid}",
                ),
            )


def _compute_roots(cloud: Cloud, placement: PlacementState) -> set[str]:
    """Return the roots of the trees of compute nodes, existing ones or not."""
    return {
        provider.root_uuid
        for provider in placement.providers.values()
        if provider.root_uuid in cloud.hosts
        or any(name in provider.totals for name in _OF_COMPUTES)
    }


def _root(placement: PlacementState, provider_uuid: str) -> str:
    provider = placement.providers.get(provider_uuid)
    return provider_uuid if provider is None else provider.root_uuid


def _amounts(resources: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for amounts in resources:
        total.update(amounts)
    return total


def _text(placement: PlacementState, held: HeldAllocations) -> str:
    """Return what a consumer holds, such as ``VCPU 2, MEMORY_MB 4096 on node7``."""
    return "; ".join(
        f"{', '.join(f'{name} {used}' for name, used in sorted(resources.items()))} on "
        + (placement.providers[uuid].name if uuid in placement.providers else uuid)
        for uuid, resources in sorted(held.resources.items())
    )


def _leaves_first(tree: Sequence[AuditedProvider]) -> list[AuditedProvider]:
    """Return a tree's providers in an order in which they can be deleted."""
    parent_of = {provider.uuid: provider.parent_uuid for provider in tree}

    def depth(provider: AuditedProvider) -> int:
        n_ancestors, uuid = 0, provider.parent_uuid
        while uuid is not None:
            n_ancestors, uuid = n_ancestors + 1, parent_of.get(uuid)
        return n_ancestors

    return sorted(tree, key=lambda provider: (-depth(provider), provider.uuid))
