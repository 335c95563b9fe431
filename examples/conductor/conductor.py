# SPDX-License-Identifier: Apache-2.0
"""A conductor: what instances and migrations hold in Placement after each step.

    create    the scheduler claims ─▶ build ─▶ runs
                                        └─ fails ─▶ an alternate's claim instead, again
    migrate   the migration holds the source ─▶ the scheduler claims the destination
              ─▶ build as above ─▶ confirm or revert; any failure reverts
    delete    nothing is held

An alternate is claimed without the scheduler, which a cell's conductor cannot call.
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
    """Raised when instances could be built on none of their hosts; names them."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One host on which a build was attempted, and its outcome."""

    host: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Server:
    """A running instance; `alternates` are those that were not tried."""

    uuid: str
    spec: RequestSpec
    selection: Selection
    alternates: tuple[Selection, ...]
    attempts: tuple[Attempt, ...]

    @property
    def host(self) -> str:
        """The host on which it runs."""
        host: str = self.selection.service_host
        return host

    @property
    def allocations(self) -> dict[str, dict[str, int]]:
        """Its allocations: {provider UUID: {resource class: amount}}."""
        request = json.loads(self.selection.allocation_request) or {"allocations": {}}
        return {u: a["resources"] for u, a in request["allocations"].items()}


@dataclass(frozen=True, slots=True)
class Move:
    """An instance that is on two hosts until its move is confirmed or reverted.

    `uuid` is that of the migration; `held` are its allocations on the source.
    """

    uuid: str
    source: Server
    destination: Server
    held: Mapping[str, Mapping[str, int]]


class Conductor:
    """Build, move and delete instances on the hosts that a scheduler selects.

    Attributes
    ----------
    servers : dict
        {UUID: Server} of running instances; during a move, as before it.
    moves : dict
        {instance UUID: Move} of moves that are not confirmed or reverted yet.
    failed : dict
        {UUID: reason} of instances that were not built; they can only be deleted.
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
        """Request hosts, and build each instance on its host or on an alternate.

        Raises
        ------
        moorage.scheduler.errors.NoValidHost
            An instance fits no host, and nothing is claimed.
        BuildFailed
            Some builds failed: these are in `failed`, the others in `servers`.
        """
        answer = self._api.select_destinations(
            context, spec, instance_uuids, return_alternates=True
        )
        built: list[Server] = []
        reasons: list[str] = []
        for instance_uuid, hosts in zip(instance_uuids, answer, strict=True):
            try:
                server = self._build(context, spec, instance_uuid, hosts)
            except (BuildFailed, PlacementError) as e:  # continue with the others
                self.failed[instance_uuid] = str(e)
                reasons.append(str(e))
                continue
            self.servers[instance_uuid] = server
            built.append(server)
        if reasons:
            raise BuildFailed("; ".join(reasons))
        return built

    def delete(self, context: Context, instance_uuid: str) -> None:
        """Delete an instance on all hosts, with all of its allocations."""
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
        """Move an instance to another host of its cell; another flavor resizes it.

        After a failure it runs where it was, with the same allocations.

        Raises
        ------
        moorage.scheduler.errors.NoValidHost
            No other host fits it.
        BuildFailed
            None of the selected hosts accepted it.
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
        except BaseException:  # also a kill; it is raised again
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
        """Confirm a move: the instance stays, and its source is released."""
        move = self.moves[instance_uuid]
        self._leave(context, instance_uuid, move.source.host)
        confirm(self._placement, move.uuid, global_request_id=context.get("request_id"))
        self.servers[instance_uuid] = move.destination
        del self.moves[instance_uuid]
        return move.destination

    def revert(self, context: Context, instance_uuid: str) -> Server:
        """Revert a move: the instance goes back, and its destination is released."""
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
        """Build on the claimed host, or on the first alternate that can be used."""
        attempts: list[Attempt] = []
        selection, alternates = hosts[0], tuple(hosts[1:])
        while True:
            host = selection.service_host
            fill_provider_mapping(spec, selection)  # for ports and devices
            if self._computes.build(instance_uuid, host):
                attempts.append(Attempt(host, "built"))
                self._arrive(context, spec, instance_uuid, host)
                return Server(
                    instance_uuid, spec, selection, alternates, tuple(attempts)
                )
            # Otherwise schedulers would count it as a member of its server group there.
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
            attempts.append(Attempt(host, "build failed, claim released"))
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
        """Notify all schedulers of an instance on a host, as nova-compute does."""
        instance = Instance(uuid=instance_uuid, host=host, flavor=spec.flavor)
        self._api.update_instance_info(context, host, InstanceList(objects=[instance]))

    def _leave(self, context: Context, instance_uuid: str, host: str) -> None:
        """Delete it on a host, and notify all schedulers, as nova-compute does."""
        self._computes.destroy(instance_uuid, host)
        self._api.delete_instance_info(context, host, instance_uuid)


def _elsewhere(server: Server, flavor: Flavor | None) -> RequestSpec:
    """Return the request spec for an instance that must leave its host.

    It requests one instance with the same flavor, unless another is given, in the same
    cell, without the hosts that the first request forced.
    """
    spec = copy.deepcopy(server.spec)
    spec.instance_uuid, spec.num_instances = server.uuid, 1
    spec.flavor = flavor or spec.flavor
    spec.ignore_hosts = [server.host]
    spec.force_hosts = spec.force_nodes = None
    cell = CellMapping(uuid=server.selection.cell_uuid)
    spec.requested_destination = Destination(cell=cell)
    return spec
