# SPDX-License-Identifier: Apache-2.0
"""Move operations: which consumer holds the source and which the destination.

    instance ── source      replace_with_migration     migration ── source
                            move, or then a claim      instance  ── destination
    confirm: the migration's allocations are removed
    revert:  the instance holds the source again; the allocations of the migration and
             of the destination are removed

Placement deletes a consumer that is emptied, so generations restart. A late copy of the
write that moves the source to the migration would be accepted again after that: it
says that the migration has no consumer yet, and the instance can have the same
generation again. Therefore the same write also creates the *marker* of the migration, a
consumer that never holds anything. Placement keeps it, and refuses each later copy of
the write, which says that there is no marker yet.

This holds for a cold migration, a live migration and a resize (on the same host, both
flavors count until it is confirmed or reverted, as in nova). An evacuation has no
migration consumer: the instance holds both until the source's tree is removed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from ..objects import Selection
from ..scheduler.candidates import AllocationRequest
from ..scheduler.errors import (
    AllocationUpdateFailed,
    InvalidRequest,
    PlacementUnavailable,
)
from ..scheduler.placement.allocations.claims import ClaimAnswer, claim_result
from ..scheduler.placement.allocations.engine import (
    AllocationsByConsumer,
    Resources,
    Rewrite,
)
from ..scheduler.placement.answers import ConsumerAllocations, DesiredAllocations
from .client import ConductorClient, ConsumerType
from .selected import allocation_request

_INSTANCE, _MIGRATION = ConsumerType.INSTANCE, ConsumerType.MIGRATION


def replace_with_migration(
    client: ConductorClient,
    instance_uuid: str,
    migration_uuid: str,
    *,
    global_request_id: str | None = None,
) -> Resources:
    """Move the allocations of an instance to its migration.

    Parameters
    ----------
    migration_uuid : str
        A new one for each migration: under that of one that was reverted, a late copy
        of this write is not refused.

    Returns
    -------
    mapping
        What the migration holds now; pass it to `revert`.

    Raises
    ------
    AllocationUpdateFailed
        Instance and migration both hold allocations, or neither does. Both do if a
        build request that was delivered twice has claimed since the instance's were
        moved; `revert` ends the move then, and that claim.
    PlacementError
        Placement failed; see `ConductorClient.rewrite`.
    """

    def plan(held: AllocationsByConsumer) -> dict[str, DesiredAllocations]:
        instance, migration = held[instance_uuid], held[migration_uuid]
        if migration.resources and not instance.resources:
            return {}
        if migration.resources or not instance.resources:
            raise _unexpected("replaced", instance_uuid, migration_uuid, held)
        return {
            marker_uuid: DesiredAllocations.empty(instance, _MIGRATION),
            instance_uuid: DesiredAllocations.empty(instance, _INSTANCE),
            migration_uuid: DesiredAllocations.unchanged(instance, _MIGRATION),
        }

    marker_uuid = _marker_uuid(migration_uuid)
    uuids = (instance_uuid, migration_uuid, marker_uuid)
    rewrite = client.rewrite(uuids, plan, global_request_id=global_request_id)
    rewrite.raise_unless_done(
        f"Migration {migration_uuid} was not given the allocations"
    )
    return next(
        consumer.resources for consumer in rewrite.read.values() if consumer.resources
    )


def move(
    client: ConductorClient,
    instance_uuid: str,
    migration_uuid: str,
    selection: Selection,
    *,
    global_request_id: str | None = None,
) -> ClaimAnswer:
    """Move the source to the migration and claim the destination, in one POST.

    Use a new UUID for each migration, as with `replace_with_migration`.
    Where the migration holds the source already, only the destination is claimed.
    A refusal changes nothing: another selection can be tried.

    Raises
    ------
    InvalidRequest
        The selection has no allocation request.
    AllocationUpdateFailed
        There is no source, or the instance holds another destination already; or
        another client kept changing the two consumers.
    PlacementError
        Placement failed; see `ConductorClient.rewrite`.
    """
    plan = _MovePlan(instance_uuid, migration_uuid, _claimable(selection))
    uuids = (instance_uuid, migration_uuid, _marker_uuid(migration_uuid))
    rewrite = client.rewrite(uuids, plan, global_request_id=global_request_id)
    return _claim_answer(rewrite)


def confirm(
    client: ConductorClient,
    migration_uuid: str,
    *,
    global_request_id: str | None = None,
) -> bool:
    """Remove the allocations of a migration; return whether it had any."""

    def plan(held: AllocationsByConsumer) -> dict[str, DesiredAllocations]:
        migration = held[migration_uuid]
        if not migration.resources:
            return {}
        return {migration_uuid: DesiredAllocations.empty(migration, _MIGRATION)}

    rewrite = client.rewrite(
        [migration_uuid], plan, global_request_id=global_request_id
    )
    rewrite.raise_unless_done(f"Migration {migration_uuid} was not released")
    return rewrite.n_writes > 0


def revert(
    client: ConductorClient,
    instance_uuid: str,
    migration_uuid: str,
    *,
    source: Resources | None = None,
    global_request_id: str | None = None,
) -> None:
    """Replace the destination's allocations of an instance with its migration's.

    Parameters
    ----------
    source : mapping, optional
        What `replace_with_migration` returned. It distinguishes a revert that was done
        already from one that comes after `confirm`.

    Raises
    ------
    AllocationUpdateFailed
        The migration holds nothing: it was confirmed, or reverted before.
    PlacementError
        Placement failed; see `ConductorClient.rewrite`.
    """
    plan = _RevertPlan(instance_uuid, migration_uuid, source)
    uuids = (instance_uuid, migration_uuid)
    rewrite = client.rewrite(uuids, plan, global_request_id=global_request_id)
    rewrite.raise_unless_done(f"Migration {migration_uuid} was not reverted")


def remove_provider_tree(
    client: ConductorClient,
    instance_uuid: str,
    root_uuid: str,
    *,
    global_request_id: str | None = None,
) -> bool:
    """Remove an instance's allocations of one host; return whether it had any.

    Used for the source after an evacuation, or for a destination that a check refused.
    Allocations of sharing providers stay: they belong to no host.

    Parameters
    ----------
    root_uuid : str
        UUID of the host's compute node, or of any provider of its tree.
    """

    def plan(held: AllocationsByConsumer) -> dict[str, DesiredAllocations]:
        instance = held[instance_uuid]
        if not instance.resources:
            return {}
        # Read after the allocations, so that the tree has every provider that they
        # name, even during a reshape.
        tree = _tree(client, root_uuid, global_request_id)
        remaining = {
            uuid: amounts
            for uuid, amounts in instance.resources.items()
            if uuid not in tree
        }
        if len(remaining) == len(instance.resources):
            return {}
        changed = replace(instance, resources=remaining)
        return {instance_uuid: DesiredAllocations.unchanged(changed, _INSTANCE)}

    rewrite = client.rewrite([instance_uuid], plan, global_request_id=global_request_id)
    rewrite.raise_unless_done(
        f"Instance {instance_uuid} was not released from {root_uuid}"
    )
    return rewrite.n_writes > 0


@dataclass(frozen=True, slots=True)
class _MovePlan:
    """The plan of a move; see `move`."""

    instance_uuid: str
    migration_uuid: str
    request: AllocationRequest

    def __call__(self, held: AllocationsByConsumer) -> dict[str, DesiredAllocations]:
        instance, migration = held[self.instance_uuid], held[self.migration_uuid]
        if migration.resources and instance.matches(self.request):
            return {}
        if bool(migration.resources) == bool(instance.resources):
            raise _unexpected("moved", self.instance_uuid, self.migration_uuid, held)
        # The migration is written even if it holds the source already: its generation
        # then detects a revert or a confirm between the read and the write.
        source: ConsumerAllocations = migration if migration.resources else instance
        marker = {}
        if not migration.resources:
            uuid = _marker_uuid(self.migration_uuid)
            marker[uuid] = DesiredAllocations.empty(source, _MIGRATION)
        return {
            **marker,
            self.instance_uuid: DesiredAllocations(self.request, source, _INSTANCE),
            self.migration_uuid: DesiredAllocations.unchanged(source, _MIGRATION),
        }


@dataclass(slots=True)
class _RevertPlan:
    """The plan of a revert; it stores the source to recognize a finished revert."""

    instance_uuid: str
    migration_uuid: str
    source: Resources | None

    def __call__(self, held: AllocationsByConsumer) -> dict[str, DesiredAllocations]:
        instance, migration = held[self.instance_uuid], held[self.migration_uuid]
        if migration.resources:
            self.source = migration.resources
            return {
                self.instance_uuid: DesiredAllocations.unchanged(migration, _INSTANCE),
                self.migration_uuid: DesiredAllocations.empty(migration, _MIGRATION),
            }
        if self.source and instance.resources == self.source:
            return {}
        raise _unexpected("reverted", self.instance_uuid, self.migration_uuid, held)


def _marker_uuid(migration_uuid: str) -> str:
    """Return the UUID of the consumer that exists once a migration has begun."""
    return str(uuid5(NAMESPACE_OID, f"moorage: {migration_uuid} has begun"))


def _claimable(selection: Selection) -> AllocationRequest:
    """Return a selection's allocation request; raise InvalidRequest without one."""
    request = allocation_request(selection)
    if request is None:
        raise InvalidRequest(
            f"Selection.allocation_request of host {selection.service_host} is null: "
            "there is nothing to claim"
        )
    return request


def _claim_answer(rewrite: Rewrite) -> ClaimAnswer:
    result = claim_result(rewrite, "The instance was not moved")
    return ClaimAnswer(result, rewrite.n_writes, rewrite.answer)


def _unexpected(
    done: str, instance_uuid: str, migration_uuid: str, held: AllocationsByConsumer
) -> AllocationUpdateFailed:
    holds = {
        uuid: ", ".join(sorted(consumer.resources)) or "nothing"
        for uuid, consumer in held.items()
    }
    return AllocationUpdateFailed(
        f"Allocations cannot be {done}: the migration {migration_uuid} holds "
        f"{holds[migration_uuid]}, the instance {instance_uuid} holds "
        f"{holds[instance_uuid]}."
    )


def _tree(
    client: ConductorClient, root_uuid: str, global_request_id: str | None
) -> frozenset[str]:
    """Return the UUIDs of all providers in the tree of a provider."""
    url = f"/resource_providers?in_tree={root_uuid}"
    body: Any = client.read(url, global_request_id=global_request_id)
    try:
        return frozenset(provider["uuid"] for provider in body["resource_providers"])
    except (KeyError, TypeError) as e:
        raise PlacementUnavailable(f"GET {url} returned no providers: {body}") from e
