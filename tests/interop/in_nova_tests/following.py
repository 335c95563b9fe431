# SPDX-License-Identifier: Apache-2.0
"""Providers in memory follow what nova's own code writes to Placement.

Run by run.py, as nova's tests are. Two hosts have room for one instance each.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from typing import Any

import moorage_service
from fixtures import EnvironmentVariable, MonkeyPatch
from nova.cmd import manage
from nova.conf import CONF
from nova.tests.functional.integrated_helpers import ProviderUsageBaseTestCase

from moorage.scheduler.placement.database import ProviderFollower, placement_engine
from moorage.scheduler.placement.memory import ProviderCandidatesSource
from moorage.scheduler.placement.providers import ProviderRecord
from moorage.scheduler.waiting import SystemWaiter, Task, ThreadSpawner

#: Seconds in which every freed host is seen without any evidence.
PROMISED_S = 60

HOST, OTHER = "host1", "host2"
_MEMORY_MB = 5000  # of 8192


class StandingTime(SystemWaiter):
    """Elapsed time that only a test advances."""

    elapsed_s = 0.0

    def monotonic(self) -> float:
        return self.elapsed_s


class IdleTask:
    """A thread that has ended."""

    def is_alive(self) -> bool:
        """Return that it has ended."""
        return False

    def join(self, timeout: float | None = None) -> None:
        """Return at once."""


class WithoutPolls(ThreadSpawner):
    """Threads, but for the one that polls Placement's database."""

    def spawn(self, run: Callable[[], object], *, name: str) -> Task:
        if name == "moorage providers":
            return IdleTask()
        return super().spawn(run, name=name)


class FollowingTest(ProviderUsageBaseTestCase):  # type: ignore[misc]  # untyped
    """Instances fill a cloud, and hosts are freed in all ways that nova has."""

    compute_driver = "fake.MediumFakeDriver"

    def setUp(self) -> None:
        self.useFixture(EnvironmentVariable(moorage_service.FOLLOW_PLACEMENT, "yes"))
        # No time passes in which the scheduler could read more than a request causes.
        for name, value in (("spawner", WithoutPolls()), ("waiter", StandingTime())):
            patch = MonkeyPatch(f"moorage_service.MoorageService.{name}", value)
            self.useFixture(patch)
        super().setUp()
        for host in (HOST, OTHER):
            self._start_compute(host)
        self.flavor, self.other_flavor = (
            self._create_flavor(vcpu=vcpus, memory_mb=_MEMORY_MB, disk=10)
            for vcpus in (1, 2)
        )
        self.engine = placement_engine(CONF)
        self.addCleanup(self.engine.dispose)
        self.time = StandingTime()
        self.follower = self._loaded()

    # -- what follows ------------------------------------------------------------------

    @property
    def candidates(self) -> ProviderCandidatesSource:
        """Of the scheduler, which reads only what its requests cause it to read."""
        found = self.scheduler_service.scheduler.candidates
        assert isinstance(found, ProviderCandidatesSource)
        return found

    def _loaded(self) -> ProviderFollower:
        follower = ProviderFollower(self.engine, waiter=self.time)
        follower.load()
        return follower

    def assert_followed(self) -> None:
        """Assert that polls alone see what nova wrote, in the time promised."""
        for _ in range(PROMISED_S):
            self.time.elapsed_s += 1.0
            assert self.follower.poll()
            # Loaded after each poll: nova's periodic tasks may write at any time.
            found, expected = _records(self.follower), _records(self._loaded())
            if found == expected:
                return
        assert found == expected

    def assert_seen_full(self, *hosts: str) -> None:
        """Let the scheduler read what nova wrote: these hosts have no room."""
        follower = self.candidates.follower
        assert follower.poll()
        for host in hosts:
            state = follower.table.view().state
            record = state.record(self._get_provider_uuid_by_host(host))
            assert record is not None
            assert record.used["MEMORY_MB"] >= _MEMORY_MB

    def assert_placed(self, host: str, **arguments: Any) -> dict[str, Any]:
        """Boot an instance that fits only on a host, which the scheduler finds."""
        before = self.candidates.query_counts()
        server = self._boot(**arguments)
        assert server["OS-EXT-SRV-ATTR:host"] == host
        after = self.candidates.query_counts()
        # Nothing but the providers in memory has answered.
        assert {name for name, n in after.items() if n > before[name]} == {"memory"}
        return server

    # -- what users do -----------------------------------------------------------------

    def _boot(self, **arguments: Any) -> dict[str, Any]:
        server: dict[str, Any] = self._create_server(
            flavor_id=self.flavor, networks="none", **arguments
        )
        return server

    def _fill(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Boot an instance on each host, so that none has room for another."""
        filled = self._boot(host=HOST), self._boot(host=OTHER)
        self._boot(expected_state="ERROR")
        self.assert_followed()
        self.assert_seen_full(HOST, OTHER)
        return filled

    def _used(self, host: str) -> int:
        provider = self._get_provider_uuid_by_host(host)
        return int(self._get_provider_usages(provider)["MEMORY_MB"])

    def _wait_until_free(self, host: str) -> None:
        def assert_free() -> None:
            assert self._used(host) == 0

        self._wait_for_assert(assert_free)

    @contextmanager
    def _down(self, host: str) -> Any:
        compute = self.computes[host]
        [service] = self.admin_api.get_services(host=host, binary="nova-compute")
        compute.stop()
        self.admin_api.put_service(service["id"], {"forced_down": True})
        yield
        # nova refuses to call it up before it has cleaned up what was evacuated.
        self.computes[host] = self.restart_compute_service(compute)
        self.admin_api.put_service(service["id"], {"forced_down": False})

    # -- tests -------------------------------------------------------------------------

    def test_resize_confirmed_and_reverted(self) -> None:
        server, other = self._fill()
        self._delete_server(other)
        self._wait_until_free(OTHER)
        self._resize_server(server, self.other_flavor)
        self.assert_followed()
        self.assert_seen_full(HOST, OTHER)
        self._confirm_resize(server)
        self._wait_until_free(HOST)
        self.assert_followed()
        third = self.assert_placed(HOST)
        self._delete_server(third)
        self._wait_until_free(HOST)
        self._resize_server(server, self.flavor)
        self.assert_followed()
        self.assert_seen_full(HOST, OTHER)
        self._revert_resize(server)
        self._wait_until_free(HOST)
        self.assert_followed()
        self.assert_placed(HOST)

    def test_shelve_offload(self) -> None:
        server, other = self._fill()
        self.flags(shelved_offload_time=-1)
        self._shelve_server(server, expected_state="SHELVED")
        self.assert_followed()
        self.assert_seen_full(HOST, OTHER)
        self._shelve_offload_server(server)
        self._wait_until_free(HOST)
        self.assert_followed()
        self.assert_placed(HOST)
        self._delete_server(other)
        self._wait_until_free(OTHER)
        self._unshelve_server(server)
        self.assert_followed()

    def test_evacuation(self) -> None:
        server, other = self._fill()
        self._delete_server(other)
        self._wait_until_free(OTHER)
        with self._down(HOST):
            self._evacuate_server(server, expected_host=OTHER)
            self.assert_followed()
            self.assert_seen_full(HOST, OTHER)
        self._wait_until_free(HOST)
        self.assert_followed()
        self.assert_placed(HOST)

    def test_aggregates(self) -> None:
        aggregate = self._create_aggregate("aggregate", availability_zone="zone")
        change = partial(self.api.post_aggregate_action, aggregate)
        change({"add_host": {"host": HOST}})
        self.assert_followed()
        self._boot(az="zone")
        self._boot(az="zone", expected_state="ERROR")
        change({"add_host": {"host": OTHER}})
        server = self.assert_placed(OTHER, az="zone")
        self.assert_followed()
        self._delete_server(server)
        change({"remove_host": {"host": OTHER}})
        self.assert_followed()
        self._boot(az="zone", expected_state="ERROR")

    def test_healed_and_deleted(self) -> None:
        server, _ = self._fill()
        self._delete_server_allocations(server["id"])
        self.assert_followed()
        assert manage.PlacementCommands().heal_allocations() == 0
        self.assert_followed()
        self.assert_seen_full(HOST, OTHER)
        self._delete_server(server)
        self._wait_until_free(HOST)
        self.assert_followed()
        self.assert_placed(HOST)


def _records(follower: ProviderFollower) -> dict[str, ProviderRecord]:
    state = follower.table.view().state
    found = {uuid: state.record(uuid) for uuid in state.trees.uuids if uuid}
    return {uuid: record for uuid, record in found.items() if record is not None}
