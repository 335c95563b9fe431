# SPDX-License-Identifier: Apache-2.0
"""A real Placement, its database, and followers of it."""

from __future__ import annotations

from typing import Any

import fixtures
import sqlalchemy as sa
from keystoneauth1.adapter import Adapter

from moorage.scheduler.conf import load
from moorage.scheduler.placement.database import ProviderFollower, placement_engine
from moorage.scheduler.placement.providers import ProviderRecord

from ....fixtures.database_servers import Database, database_server
from ....fixtures.hand_time import HandTime
from ....fixtures.placement_servers import EmbeddedPlacementFixture, PlacementServer

#: Seconds in which every provider is compared at least once.
ROUND_S = 60.0


def engine_of(url: str) -> sa.Engine:
    """An engine as the scheduler makes it."""
    conf = load([], config_files=[])
    conf.set_override("connection", url, group="placement_database")
    return placement_engine(conf)


class FollowedPlacement(fixtures.Fixture):
    """A Placement that is embedded, or on a database server.

    Attributes
    ----------
    adapter, engine
    time : HandTime
        The followers' elapsed time.
    """

    adapter: Adapter
    engine: sa.Engine

    def __init__(self, kind: Database | None = None) -> None:
        super().__init__()
        self._kind = kind

    def _setUp(self) -> None:
        self.time = HandTime()
        self._options: dict[str, Any] = {}
        if self._kind is None:
            embedded = self.useFixture(EmbeddedPlacementFixture()).placement
            self.adapter, self.engine = embedded.adapter, embedded.engine
            self._options["run_work"] = self.run_work = embedded.run
        else:
            server = self.useFixture(PlacementServer(database_server(self._kind)))
            self.adapter, self.url = server.adapter, server.database_url
            self.engine = engine_of(server.database_url)
            self.addCleanup(self.engine.dispose)

    def follower(self, **options: Any) -> ProviderFollower:
        """A follower that has loaded, whose threads do not run."""
        options = {**self._options, "waiter": self.time, **options}
        follower = ProviderFollower(self.engine, **options)
        follower.load()
        return follower

    def request(
        self, verb: str, path: str, body: object = None, version: str = "1.39"
    ) -> int:
        """Send a request; return the status."""
        headers = {"OpenStack-API-Version": f"placement {version}"}
        answer = self.adapter.request(
            path, verb, json=body, headers=headers, raise_exc=False
        )
        return int(answer.status_code)

    def must(
        self, verb: str, path: str, body: object = None, version: str = "1.39"
    ) -> None:
        """Send a request that must succeed."""
        status = self.request(verb, path, body, version)
        assert status < 300, (verb, path, status)

    def get(self, path: str) -> Any:
        headers = {"OpenStack-API-Version": "placement 1.39"}
        return self.adapter.get(path, headers=headers).json()

    # -- writes ------------------------------------------------------------------------

    def create(self, uuid: str, name: str, parent: str | None = None) -> None:
        body = {"uuid": uuid, "name": name, "parent_provider_uuid": parent}
        self.must("POST", "/resource_providers", body)

    def generation(self, uuid: str) -> int:
        return int(self.get(f"/resource_providers/{uuid}")["generation"])

    def set_inventories(self, uuid: str, **totals: int) -> None:
        body = {
            "resource_provider_generation": self.generation(uuid),
            "inventories": {name: {"total": total} for name, total in totals.items()},
        }
        self.must("PUT", f"/resource_providers/{uuid}/inventories", body)

    def claim(self, consumer: str, uuid: str, **amounts: int) -> None:
        self.must("PUT", f"/allocations/{consumer}", claim_body(uuid, **amounts))

    def free(self, consumer: str) -> None:
        self.must("DELETE", f"/allocations/{consumer}")


def claim_body(uuid: str, **amounts: int) -> dict[str, Any]:
    """The body of a new consumer's claim."""
    return {
        "allocations": {uuid: {"resources": amounts}},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }


def records(follower: ProviderFollower) -> dict[str, ProviderRecord]:
    """All providers of its table, by UUID."""
    state = follower.table.view().state
    found = {uuid: state.record(uuid) for uuid in state.trees.uuids if uuid}
    return {uuid: record for uuid, record in found.items() if record is not None}
