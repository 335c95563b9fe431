# SPDX-License-Identifier: Apache-2.0
"""What a conductor does around a scheduler: who holds what in Placement, and when.

    create    the scheduler claims ─▶ build ─▶ runs
                                        └─ fails ─▶ an alternate's claim instead, again
    migrate   the migration holds the source ─▶ the scheduler claims the destination
              ─▶ build as above ─▶ confirm or revert; any failure reverts
    delete    nothing is held any more

An alternate is claimed without asking the scheduler: in nova, a cell cannot call it.
"""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from moorage.conductor import (
    ConductorClient,
    claim_alternate,
    confirm,
    fill_provider_mapping,
    replace_with_migration,
    revert,
)
from moorage.objects import (
    CellMapping,
    Destination,
    Flavor,
    Instance,
    InstanceList,
    RequestSpec,
    Selection,
)
from moorage.scheduler.errors import PlacementError
from moorage.scheduler.rpc import SchedulerAPI

from .computes import Computes

Context = dict[str, str]


class BuildFailed(Exception):
    """Say which instances could be built on none of their hosts."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One host that an instance was to be built on, and how that went."""

    host: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Server:
    """One instance that runs; `alternates` are those that were not tried."""

    uuid: str
    spec: RequestSpec
    selection: Selection
    alternates: tuple[Selection, ...]
    attempts: tuple[Attempt, ...]

    @property
    def host(self) -> str:
        """Where it runs."""
        host: str = self.selection.service_host
        return host

    @property
    def allocations(self) -> dict[str, dict[str, int]]:
        """What it holds: {provider UUID: {resource class: amount}}."""
        request = json.loads(self.selection.allocation_request) or {"allocations": {}}
        return {u: a["resources"] for u, a in request["allocations"].items()}


@dataclass(frozen=True, slots=True)
class Move:
    """An instance that is on two hosts until somebody confirms or reverts.

    `uuid` is the migration's, which holds the source; `held` is what that is.
    """

    uuid: str
    source: Server
    destination: Server
    held: Mapping[str, Mapping[str, int]]


class Conductor:
    """Build, move and delete instances with a scheduler's answers.

    Attributes
    ----------
    servers : dict
        {UUID: Server}, those that run; during a move as they were before it.
    moves : dict
        {instance UUID: Move}, those to be confirmed or reverted.
    failed : dict
        {UUID: reason}, those that were not built; `delete` is all that can be done.
    """

    def __init__(
        self, api: SchedulerAPI, placement: ConductorClient, computes: Computes
    ) -> None:
        self.servers: dict[str, Server] = {}
        self.moves: dict[str, Move] = {}
        self.failed: dict[str, str] = {}
        self._api = api
        self._placement = placement
        self._computes = computes

    def create(
        self, context: Context, spec: RequestSpec, instance_uuids: Sequence[str]
    ) -> list[Server]:
        """Ask for hosts, and build each instance on its own or on an alternate.

        Raises
        ------
        moorage.scheduler.errors.NoValidHost
            Some instance fits nowhere, and nothing is claimed.
        BuildFailed
            Some of them run nowhere: they are in `failed`, the others in `servers`.
        """
        answer = self._api.select_destinations(
            context, spec, instance_uuids, return_alternates=True
        )
        built: list[Server] = []
        reasons: list[str] = []
        for instance_uuid, hosts in zip(instance_uuids, answer, strict=True):
            try:
                server = self._build(context, spec, instance_uuid, hosts)
            except (BuildFailed, PlacementError) as e:  # the others go on
                self.failed[instance_uuid] = str(e)
                reasons.append(str(e))
                continue
            self.servers[instance_uuid] = server
            built.append(server)
        if reasons:
            raise BuildFailed("; ".join(reasons))
        return built

    def delete(self, context: Context, instance_uuid: str) -> None:
        """End an instance wherever it is, and whatever it holds."""
        if instance_uuid in self.moves:
            self.revert(context, instance_uuid)
        server = self.servers.pop(instance_uuid, None)
        self.failed.pop(instance_uuid, None)
        if server is not None:
            self._leave(context, instance_uuid, server.host)
        self._placement.delete_allocations(
            instance_uuid, global_request_id=context.get("request_id")
        )

    def migrate(
        self, context: Context, instance_uuid: str, flavor: Flavor | None = None
    ) -> Move:
        """Take an instance to another host of its cell; another flavor resizes it.

        Whatever fails, the instance runs and holds what it did before.

        Raises
        ------
        moorage.scheduler.errors.NoValidHost
            There is no other host for it.
        BuildFailed
            None of the selected hosts took it in.
        """
        server, migration_uuid = self.servers[instance_uuid], str(uuid.uuid4())
        request_id = context.get("request_id")
        held = replace_with_migration(
            self._placement, instance_uuid, migration_uuid, global_request_id=request_id
        )
        try:
            spec = _elsewhere(server, flavor)
            [hosts] = self._api.select_destinations(
                context, spec, [instance_uuid], return_alternates=True
            )
            destination = self._build(context, spec, instance_uuid, hosts)
        except BaseException:  # whatever it was, and it goes on after this
            revert(
                self._placement,
                instance_uuid,
                migration_uuid,
                source=held,
                global_request_id=request_id,
            )
            raise
        move = Move(migration_uuid, server, destination, held)
        self.moves[instance_uuid] = move
        return move

    def confirm(self, context: Context, instance_uuid: str) -> Server:
        """Let a moved instance stay where it is now; its source is given back."""
        move = self.moves[instance_uuid]
        self._leave(context, instance_uuid, move.source.host)
        confirm(self._placement, move.uuid, global_request_id=context.get("request_id"))
        self.servers[instance_uuid] = move.destination
        del self.moves[instance_uuid]
        return move.destination

    def revert(self, context: Context, instance_uuid: str) -> Server:
        """Take a moved instance back; its destination is given back."""
        move = self.moves[instance_uuid]
        self._leave(context, instance_uuid, move.destination.host)
        revert(
            self._placement,
            instance_uuid,
            move.uuid,
            source=move.held,
            global_request_id=context.get("request_id"),
        )
        del self.moves[instance_uuid]
        return move.source

    def _build(
        self,
        context: Context,
        spec: RequestSpec,
        instance_uuid: str,
        hosts: Sequence[Selection],
    ) -> Server:
        """Build on the first host, which is claimed, or on one that can be claimed."""
        attempts: list[Attempt] = []
        selection, alternates = hosts[0], tuple(hosts[1:])
        while True:
            host = selection.service_host
            fill_provider_mapping(spec, selection)  # for ports and devices
            if self._computes.build(instance_uuid, host):
                attempts.append(Attempt(host, "built"))
                self._arrive(context, spec, instance_uuid, host)
                done = tuple(attempts)
                return Server(instance_uuid, spec, selection, alternates, done)
            # All schedulers forget it there: no phantom member of a server group.
            self._api.delete_instance_info(context, host, instance_uuid)
            granted = claim_alternate(
                self._placement,
                instance_uuid,
                alternates,
                failed=selection,
                project_id=spec.project_id,
                user_id=spec.user_id,
                global_request_id=context.get("request_id"),
            )
            attempts.append(Attempt(host, "build failed, claim given up"))
            n_tried = len(alternates) if granted is None else alternates.index(granted)
            attempts += [
                Attempt(refused.service_host, "claim refused")
                for refused in alternates[:n_tried]
            ]
            if granted is None:
                tried = ", ".join(attempt.host for attempt in attempts)
                raise BuildFailed(f"{instance_uuid} runs on none of {tried}")
            selection, alternates = granted, alternates[n_tried + 1 :]

    def _arrive(
        self, context: Context, spec: RequestSpec, instance_uuid: str, host: str
    ) -> None:
        """Tell all schedulers what a host has, as its nova-compute does."""
        instance = Instance(uuid=instance_uuid, host=host, flavor=spec.flavor)
        self._api.update_instance_info(context, host, InstanceList(objects=[instance]))

    def _leave(self, context: Context, instance_uuid: str, host: str) -> None:
        """End it on a host, and tell all schedulers, as its nova-compute does."""
        self._computes.destroy(instance_uuid, host)
        self._api.delete_instance_info(context, host, instance_uuid)


def _elsewhere(server: Server, flavor: Flavor | None) -> RequestSpec:
    """Return what to ask for an instance that has to leave its host.

    One instance, as large as before unless told, in the cell where it is, and not
    bound to the hosts that it was once forced to.
    """
    spec = copy.deepcopy(server.spec)
    spec.instance_uuid, spec.num_instances = server.uuid, 1
    spec.flavor = flavor or spec.flavor
    spec.ignore_hosts = [server.host]
    spec.force_hosts = spec.force_nodes = None
    cell = CellMapping(uuid=server.selection.cell_uuid)
    spec.requested_destination = Destination(cell=cell)
    return spec
