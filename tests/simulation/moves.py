# SPDX-License-Identifier: Apache-2.0
"""Instances that move: migrations, resizes, evacuations and rebuilds."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from moorage.conductor import (
    ConductorClient,
    confirm,
    remove_provider_tree,
    replace_with_migration,
    revert,
)
from moorage.objects import Destination
from moorage.scheduler.errors import AllocationUpdateFailed, SchedulerError

from ..fixtures.virtual_time import VirtualTime
from .cloud import REPORTED_S
from .events import EventLog, Kind
from .nova import Instance, Nova

#: Longest time until a migration is confirmed or reverted, seconds.
_DECIDED_S: Final = 30.0
#: The share of migrations whose first write arrives late.
_BEGINS_LATE: Final = 0.3
#: Numbers of attempts, and seconds that a conductor waits for an answer.
_ATTEMPTS: Final = (1, 2)
_TIMEOUTS_S: Final = (1.0, 4.0, 30.0)


class Moves:
    """A conductor that moves instances; each move runs in a thread of its own.

    Attributes
    ----------
    migrations : dict
        What each migration holds, by UUID.
    """

    def __init__(
        self,
        nova: Nova,
        virtual: VirtualTime,
        rng: random.Random,
        log: EventLog,
    ) -> None:
        self.migrations: dict[str, Mapping[str, Mapping[str, int]]] = {}
        self._nova = nova
        self._virtual = virtual
        self._rng = rng
        self._log = log

    def migrate(self) -> None:
        """Migrate or resize an instance, and confirm or revert that later."""
        if (instance := self._choose()) is None:
            return
        kind = self._rng.choice(["live migration", "migration", "resize"])
        self._log.add(f"begins the {kind} of {instance.name}")
        with self._nova.closed(instance.group):
            instance.is_moving = instance.has_moved = True
            self._migrate(instance, kind)
            instance.is_moving = False

    def _migrate(self, instance: Instance, kind: str) -> None:
        assert instance.held is not None
        source, source_host, n_vcpus = instance.held, instance.host, instance.n_vcpus
        built_at, computes = instance.built_at, self._nova.computes
        migration = str(UUID(int=self._rng.getrandbits(128), version=4))
        self._log.name(migration, f"migration-of-{instance.name}")
        if self._rng.random() < _BEGINS_LATE:
            self._nova.delay_write(migration)
        is_begun = True
        try:
            self._nova.insist(
                replace_with_migration,
                instance.uuid,
                migration,
                gives_up_on=AllocationUpdateFailed,
            )
        except AllocationUpdateFailed as e:
            self._log.add(f"{instance.name} is claimed for by a build request: {e}")
            is_begun = False
        self.migrations[migration], instance.held = source, None
        self._keep(source_host, instance.uuid, migration)
        changes: dict[str, Any] = {}
        if kind == "resize":
            sizes = [1, 2] if instance.n_cells else [1, 2, 3]
            instance.n_vcpus = changes["vcpus"] = self._rng.choice(sizes)
        # What a host reports of an instance says nothing of its size: nova-compute has
        # both while it is resized there, and a scheduler knows of one.
        is_elsewhere = not instance.guest.is_plain or kind == "live migration"
        if is_elsewhere or self._rng.random() < 0.5:
            changes["ignore_hosts"] = [source_host]
        is_placed = is_begun and self._place(instance, changes)
        if is_placed:
            self._count(instance)
            self._log.n_of[Kind.MIGRATED] += 1
            self._virtual.sleep(self._rng.uniform(0, _DECIDED_S))
        if is_placed and self._rng.random() < 0.6:
            computes.let_go(source_host, migration)
            self._nova.insist(confirm, migration)
            computes.free(source_host, migration)
            self._log.add(f"confirms that of {instance.name}", Kind.CONFIRMED)
        else:
            computes.let_go(instance.host, instance.uuid)
            self._log.add(f"reverts that of {instance.name}", Kind.REVERTED)
            self._nova.insist(self._revert, instance.uuid, migration, source)
            computes.free(instance.host, instance.uuid)
            self._keep(source_host, migration, instance.uuid)
            instance.held, instance.host, instance.n_vcpus, instance.built_at = (
                source,
                source_host,
                n_vcpus,
                built_at,
            )
        del self.migrations[migration]
        self._nova.cloud.report()

    def _keep(self, host: str, uuid: str, new_uuid: str) -> None:
        """Have a host keep for a migration what an instance has, or give it back."""
        known_at = self._virtual.monotonic() + REPORTED_S
        if self._nova.computes.rename(host, uuid, new_uuid, known_at):
            self._nova.cloud.report()

    def _count(self, instance: Instance) -> None:
        self._log.n_of[Kind.DEVICE_MOVED] += instance.has_device
        self._log.n_of[Kind.CELLS_MOVED] += instance.n_cells > 0

    def _revert(
        self,
        client: ConductorClient,
        uuid: str,
        migration: str,
        source: Mapping[str, Mapping[str, int]],
    ) -> None:
        """Revert a migration; it is done if a request that was given up adds to it.

        An audit removes that later (claims.rst lists it under "Not guaranteed").
        """
        try:
            revert(client, uuid, migration, source=source)
        except AllocationUpdateFailed:
            held = client.allocations(uuid).resources
            is_done = source.items() <= held.items()
            if not is_done or client.allocations(migration).resources:
                raise

    def evacuate(self) -> None:
        """Have a host be down, evacuate what is on it, and have it be up again."""
        if (host := self._nova.cloud.fail()) is None:
            return
        evacuated: list[Instance] = []
        for instance in self._nova.accepted:
            # The first one of a group closes it until the host is up again.
            is_waiting = instance.group is not None and any(
                each.group is instance.group for each in evacuated
            )
            is_there = instance.host == host.record.host
            if is_there and not is_waiting and self._may_move(instance):
                evacuated.append(instance)
                instance.is_moving = instance.has_moved = True
        tasks = [
            self._virtual.spawn(lambda i=each: self._evacuate(i), name="evacuation")  # type: ignore[misc]
            for each in evacuated
        ]
        for task in tasks:
            task.join()
        self._virtual.sleep(self._rng.uniform(0, _DECIDED_S))
        self._nova.cloud.recover(host)
        for instance in evacuated:
            uuid = host.record.uuid
            if instance.held is not None and len(instance.held) > 1:
                self._nova.insist(remove_provider_tree, instance.uuid, uuid)
                instance.held = {u: r for u, r in instance.held.items() if u != uuid}
                self._nova.computes.free(host.record.host, instance.uuid)
            instance.is_moving = False
            if instance.group is not None:
                instance.group.is_closed = False

    def _evacuate(self, instance: Instance) -> None:
        if instance.group is not None:
            while not self._nova.is_idle(instance.group):
                self._virtual.sleep(1)
            instance.group.is_closed = True
        source, host, built_at = instance.held, instance.host, instance.built_at
        self._log.add(f"evacuates {instance.name} from {host}")
        if self._place(instance, {"ignore_hosts": [host]}, beside=source):
            self._log.n_of[Kind.EVACUATED] += 1
            self._count(instance)
            self._keep(host, instance.uuid, instance.uuid)
            self._nova.cloud.report()
        else:
            self._nova.computes.let_go(instance.host, instance.uuid)
            instance.held, instance.host, instance.built_at = source, host, built_at
            self._nova.remove_others(instance)

    def rebuild(self) -> None:
        """Ask whether an instance can be rebuilt on its host: nothing is claimed."""
        if (instance := self._choose()) is None:
            return
        host = instance.host
        instance.is_moving = True
        reply = self._ask(
            instance,
            {
                "scheduler_hints": {"_nova_check_type": ["rebuild"]},
                "requested_destination": Destination(host=host, node=host),
            },
        )
        instance.is_open = instance.is_moving = False
        if reply is None or isinstance(reply, SchedulerError):
            return
        self._log.add(f"rebuilds {instance.name}", Kind.REBUILT)
        [[selection, *_]] = reply
        answered = selection.service_host, json.loads(selection.allocation_request)
        if answered != (host, None):
            text = f"{instance.name} was to be rebuilt on {host}: {answered}"
            self._nova.wrong.append(text)

    def _choose(self) -> Instance | None:
        found = [
            each
            for each in self._nova.accepted
            if self._may_move(each) and self._nova.is_idle(each.group)
        ]
        # Few instances have cells or devices, which a move has on two hosts.
        special = [each for each in found if not each.guest.is_plain]
        if special and self._rng.random() < 0.7:
            with_device = [each for each in special if each.has_device]
            found = with_device or special
        return self._rng.choice(found) if found else None

    def _may_move(self, instance: Instance) -> bool:
        return (
            self._nova.may_leave(instance)
            and not instance.is_open
            and instance.held is not None
            and len(instance.held) == 1
            and self._virtual.monotonic() >= instance.built_at
        )

    def _place(
        self,
        instance: Instance,
        changes: Mapping[str, Any],
        *,
        beside: Mapping[str, Mapping[str, int]] | None = None,
    ) -> bool:
        """Have an instance get a host; return whether it got one."""
        asked_at = self._virtual.monotonic()
        reply = self._ask(instance, changes)
        if reply is None or isinstance(reply, SchedulerError):
            self._log.add(f"has no host for {instance.name}")
            instance.is_open = False
            return False
        return self._nova.accept(instance, reply[0][0], asked_at, beside=beside)

    def _ask(self, instance: Instance, changes: Mapping[str, Any]) -> Any:
        make_spec: Callable[[], Any] = self._nova.spec_of(
            [instance],
            # An instance that was forced to a host can leave it.
            **{"force_hosts": None, "requested_destination": None, **changes},
        )
        return self._nova.ask(
            [instance],
            make_spec,
            n_attempts=self._rng.choice(_ATTEMPTS),
            timeout_s=self._rng.choice(_TIMEOUTS_S),
        )
