# SPDX-License-Identifier: Apache-2.0
"""What nova's conductor does around a scheduler, and no more: build, retry, delete."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from moorage.objects import Instance, InstanceList, RequestSpec, Selection
from moorage.scheduler.placement.claims import ClaimResult, claim, release
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.rpc import SchedulerAPI

Context = dict[str, Any]

#: Stands for the compute hosts: says whether an instance can be built on a host.
Builds = Callable[[str, str], bool]


class BuildFailed(Exception):
    """Say that an instance could be built on none of its hosts."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One host that an instance was to be built on, and how that went."""

    host: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Server:
    """One instance that runs; `alternates` are those that were not tried."""

    uuid: str
    selection: Selection
    alternates: tuple[Selection, ...]
    attempts: tuple[Attempt, ...]

    @property
    def allocations(self) -> dict[str, dict[str, int]]:
        """What it holds: {provider UUID: {resource class: amount}}."""
        request = json.loads(self.selection.allocation_request) or {"allocations": {}}
        return {u: a["resources"] for u, a in request["allocations"].items()}


class Conductor:
    """Build and delete instances with a scheduler's answers.

    Attributes
    ----------
    servers : dict
        {UUID: Server}, those that run.
    """

    def __init__(
        self, api: SchedulerAPI, placement: PlacementClient, builds: Builds
    ) -> None:
        self.servers: dict[str, Server] = {}
        self._api = api
        self._placement = placement
        self._builds = builds
        self._rng = random.Random(0)

    def create(
        self, context: Context, spec_obj: RequestSpec, instance_uuids: Sequence[str]
    ) -> list[Server]:
        """Ask for hosts and build on them.

        Raises
        ------
        moorage.scheduler.errors.NoValidHost
            Some instance fits nowhere, and nothing is claimed.
        BuildFailed
            The selected host and its alternates all failed.
        """
        answer = self._api.select_destinations(
            context, spec_obj, instance_uuids, return_alternates=True
        )
        return [
            self._build(context, spec_obj, uuid, selections)
            for uuid, selections in zip(instance_uuids, answer, strict=True)
        ]

    def _build(
        self, context: Context, spec: RequestSpec, uuid: str, hosts: list[Selection]
    ) -> Server:
        attempts: list[Attempt] = []
        for selection in hosts:
            host = selection.service_host
            # The scheduler claimed the first host. An alternate is ours to claim.
            if attempts and not self._claim(context, spec, uuid, selection):
                attempts.append(Attempt(host, "claim refused"))
                continue
            if self._builds(uuid, host):
                attempts.append(Attempt(host, "built"))
                others = tuple(hosts[len(attempts) :])
                server = Server(uuid, selection, others, tuple(attempts))
                self._started(context, spec, server)
                return server
            self._release(context, uuid, host)
            attempts.append(Attempt(host, "build failed, allocation released"))
        raise BuildFailed(f"{uuid} could not be built on {len(attempts)} hosts")

    def _claim(
        self, context: Context, spec: RequestSpec, uuid: str, selection: Selection
    ) -> bool:
        answer = claim(
            self._placement,
            uuid,
            json.loads(selection.allocation_request),
            project_id=spec.project_id,
            user_id=spec.user_id,
            global_request_id=context.get("request_id"),
            rng=self._rng,
        )
        return answer.result is ClaimResult.CLAIMED

    def _started(self, context: Context, spec: RequestSpec, server: Server) -> None:
        """Tell all schedulers, as the compute host does."""
        self.servers[server.uuid] = server
        host = server.selection.service_host
        instance = Instance(uuid=server.uuid, host=host, flavor=spec.flavor)
        self._api.update_instance_info(context, host, InstanceList(objects=[instance]))

    def delete(self, context: Context, uuid: str) -> None:
        """End an instance: its allocation goes, and all schedulers are told."""
        server = self.servers.pop(uuid)
        self._release(context, uuid, server.selection.service_host)

    def _release(self, context: Context, uuid: str, host: str) -> None:
        release(self._placement, [uuid], global_request_id=context.get("request_id"))
        self._api.delete_instance_info(context, host, uuid)
