# SPDX-License-Identifier: Apache-2.0
"""Move operations: what holds the source, what holds the destination, and until when.

    instance ── source      replace_with_migration     migration ── source
                            move, or then a claim      instance  ── destination
    confirm: the migration holds nothing any more
    revert:  the instance holds the source again, the migration and the destination no
             more

The same for a cold migration, a resize (on the same host both flavors count until it
is confirmed or reverted, as in nova) and a live migration. An evacuation has no
migration: the instance holds both, until the source's tree is removed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..objects import Selection
from ..scheduler.errors import (
    AllocationUpdateFailed,
    InvalidRequest,
    PlacementUnavailable,
)
from ..scheduler.placement.allocations.claims import ClaimAnswer, claim_result
from ..scheduler.placement.allocations.engine import (
    AllocationsByConsumer,
    DesiredAllocations,
    Resources,
    Rewrite,
)
from ..scheduler.placement.candidates import AllocationRequest
from ..scheduler.placement.client import ConsumerAllocations
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
    """Let a migration hold what an instance holds, and the instance nothing.

    Returns
    -------
    mapping
        What the migration holds now; `revert` can be given it.

    Raises
    ------
    AllocationUpdateFailed
        Both hold something, or neither does.
    PlacementError
        Placement could not do its part; see `ConductorClient.rewrite`.
    """

    def plan(held: AllocationsByConsumer) -> dict[str, DesiredAllocations]:
        instance, migration = held[instance_uuid], held[migration_uuid]
        if migration.resources and not instance.resources:
            return {}
        if migration.resources or not instance.resources:
            raise _unexpected("replaced", instance_uuid, migration_uuid, held)
        return {
            instance_uuid: DesiredAllocations.empty(instance, _INSTANCE),
            migration_uuid: DesiredAllocations.unchanged(instance, _MIGRATION),
        }

    uuids = (instance_uuid, migration_uuid)
    rewrite = client.rewrite(uuids, plan, global_request_id=global_request_id)
    rewrite.raise_unless_done(f"Migration {migration_uuid} was not given what it moves")
    return next(h.resources for h in rewrite.read.values() if h.resources)


def move(
    client: ConductorClient,
    instance_uuid: str,
    migration_uuid: str,
    selection: Selection,
    *,
    global_request_id: str | None = None,
) -> ClaimAnswer:
    """Let a migration hold the source and claim the destination, in one POST.

    Where the migration holds the source already, only the destination is claimed.
    A refusal changes nothing: another selection can be tried.

    Raises
    ------
    InvalidRequest
        The selection claims nothing.
    AllocationUpdateFailed
        There is no source, or the instance holds another destination already; or
        somebody else kept changing the two consumers.
    PlacementError
        Placement could not do its part; see `ConductorClient.rewrite`.
    """
    plan = _Move(instance_uuid, migration_uuid, _claimable(selection))
    uuids = (instance_uuid, migration_uuid)
    rewrite = client.rewrite(uuids, plan, global_request_id=global_request_id)
    return _claim_answer(rewrite)


def confirm(
    client: ConductorClient,
    migration_uuid: str,
    *,
    global_request_id: str | None = None,
) -> bool:
    """Release what a migration holds; return whether it held anything."""

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
    """Give an instance what its migration holds, instead of its destination's.

    Parameters
    ----------
    source : mapping, optional
        What `replace_with_migration` returned. With it, a revert that was done
        already is told from one that comes after `confirm`.

    Raises
    ------
    AllocationUpdateFailed
        The migration holds nothing: it was confirmed, or reverted before.
    PlacementError
        Placement could not do its part; see `ConductorClient.rewrite`.
    """
    plan = _Revert(instance_uuid, migration_uuid, source)
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
    """Release what an instance holds of one host; return whether it held any.

    The source's after an evacuation, or a destination's that a check refused. What it
    holds of sharing providers stays: it has no host's part there.

    Parameters
    ----------
    root_uuid : str
        UUID of the host's compute node, or of any provider of its tree.
    """

    def plan(held: AllocationsByConsumer) -> dict[str, DesiredAllocations]:
        instance = held[instance_uuid]
        if not instance.resources:
            return {}
        # Read after the allocations: a provider that they name is in it, even where
        # a host's tree is reshaped just now.
        tree = _tree(client, root_uuid, global_request_id)
        kept = {u: r for u, r in instance.resources.items() if u not in tree}
        if len(kept) == len(instance.resources):
            return {}
        rest = replace(instance, resources=kept)
        return {instance_uuid: DesiredAllocations.unchanged(rest, _INSTANCE)}

    rewrite = client.rewrite([instance_uuid], plan, global_request_id=global_request_id)
    rewrite.raise_unless_done(
        f"Instance {instance_uuid} was not released from {root_uuid}"
    )
    return rewrite.n_writes > 0


@dataclass(frozen=True, slots=True)
class _Move:
    """The plan of a move."""

    instance_uuid: str
    migration_uuid: str
    request: AllocationRequest

    def __call__(self, held: AllocationsByConsumer) -> dict[str, DesiredAllocations]:
        instance, migration = held[self.instance_uuid], held[self.migration_uuid]
        if migration.resources and instance.are(self.request):
            return {}
        if bool(migration.resources) == bool(instance.resources):
            raise _unexpected("moved", self.instance_uuid, self.migration_uuid, held)
        # Also where it holds the source already it is written: nobody may revert or
        # confirm it between our look and our write.
        source: ConsumerAllocations = migration if migration.resources else instance
        return {
            self.instance_uuid: DesiredAllocations(self.request, source, _INSTANCE),
            self.migration_uuid: DesiredAllocations.unchanged(source, _MIGRATION),
        }


@dataclass(slots=True)
class _Revert:
    """The plan of a revert; it remembers the source, to know it again."""

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


def _claimable(selection: Selection) -> AllocationRequest:
    request = allocation_request(selection)
    if request is None:
        raise InvalidRequest(
            f"Selection.allocation_request of host {selection.service_host} is null: "
            "there is nothing to be claimed of it"
        )
    return request


def _claim_answer(rewrite: Rewrite) -> ClaimAnswer:
    result = claim_result(rewrite, "The instance was not moved")
    return ClaimAnswer(result, rewrite.n_writes, rewrite.answer)


def _unexpected(
    done: str, instance_uuid: str, migration_uuid: str, held: AllocationsByConsumer
) -> AllocationUpdateFailed:
    told = {
        uuid: ", ".join(sorted(h.resources)) or "nothing" for uuid, h in held.items()
    }
    return AllocationUpdateFailed(
        f"Allocations cannot be {done}: the migration {migration_uuid} holds "
        f"{told[migration_uuid]}, the instance {instance_uuid} holds "
        f"{told[instance_uuid]}."
    )


def _tree(
    client: ConductorClient, root_uuid: str, global_request_id: str | None
) -> frozenset[str]:
    url = f"/resource_providers?in_tree={root_uuid}"
    body: Any = client.read(url, global_request_id=global_request_id)
    try:
        return frozenset(provider["uuid"] for provider in body["resource_providers"])
    except (KeyError, TypeError) as e:
        raise PlacementUnavailable(f"GET {url} answered no providers: {body}") from e
