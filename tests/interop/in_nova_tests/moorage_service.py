# SPDX-License-Identifier: Apache-2.0
"""Moorage in nova-scheduler's place inside a process of nova's functional tests."""

from __future__ import annotations

import os
import sys
from typing import Any

import nova.conf.paths
import nova.context
import nova.db.api.api
import nova.db.main.api
import nova.rpc
import nova.scheduler.host_manager  # some tests expect the scheduler to have done so
import nova.service
import numpy as np
import oslo_messaging
import sqlalchemy as sa
from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions import EndpointNotFound
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token
from nova.conf import CONF
from nova.network import neutron
from nova.objects import Service
from nova.scheduler.filters import (
    affinity_filter,
    numa_topology_filter,
    pci_passthrough_filter,
)
from nova.tests.functional.fixtures import PlacementFixture
from nova.tests.functional.integrated_helpers import InstanceHelperMixin

from moorage.filters import BaseHostFilter
from moorage.filters.numa_topology import NUMATopologyFilter
from moorage.filters.pci_passthrough import PciPassthroughFilter
from moorage.filters.server_group import (
    ServerGroupAffinityFilter,
    ServerGroupAntiAffinityFilter,
)
from moorage.objects import Serializer
from moorage.scheduler.conf import register_opts
from moorage.scheduler.placement.database.schema import KNOWN_VERSIONS, alembic_version
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.nova_db import NovaDBSource
from moorage.scheduler.waiting import Spawner, Waiter

BINARY = "nova-scheduler"
TOPIC = "scheduler"

#: Filters whose ``host_passes`` some tests replace: ours, and nova's.
WATCHED = {
    NUMATopologyFilter: numa_topology_filter.NUMATopologyFilter,
    PciPassthroughFilter: pci_passthrough_filter.PciPassthroughFilter,
    ServerGroupAffinityFilter: affinity_filter.ServerGroupAffinityFilter,
    ServerGroupAntiAffinityFilter: affinity_filter.ServerGroupAntiAffinityFilter,
}

_N_LOOKS = 60

#: Whether candidates come from providers in memory, which follow a test's Placement.
FOLLOW_PLACEMENT = "MOORAGE_FOLLOW_PLACEMENT"

#: The fixtures that are set up, the newest one last.
_placements: list[PlacementFixture] = []


def install() -> None:
    """Have tests that start the service ``scheduler`` start Moorage."""
    create, set_up = nova.service.Service.create, PlacementFixture.setUp

    def create_ours(*args: Any, binary: str | None = None, **kwargs: Any) -> Any:
        if binary == BINARY:
            return MoorageService(kwargs["host"])
        return create(*args, binary=binary, **kwargs)

    def set_up_and_remember(fixture: PlacementFixture) -> None:
        set_up(fixture)
        _placements.append(fixture)
        fixture.addCleanup(_placements.remove, fixture)

    nova.service.Service.create = create_ours
    PlacementFixture.setUp = set_up_and_remember
    for ours, theirs in WATCHED.items():
        _watch(ours, theirs)


def settle_in() -> None:
    """Have nova's tests find the files of nova's wheel, and wait where it is slow.

    They give a server five seconds to become what it should, half a second a look.
    """
    nova.conf.paths.state_path_def = lambda *parts: os.path.join(sys.prefix, *parts)
    for name in ("server_parameter", "state_change", "assert"):
        wait = getattr(InstanceHelperMixin, f"_wait_for_{name}")
        wait.__defaults__ = tuple(
            _N_LOOKS if default == 10 else default for default in wait.__defaults__
        )


class MoorageService:
    """The parts of nova.service.Service and its manager that nova's tests use.

    Attributes
    ----------
    scheduler : Scheduler or None
        None: it is not started.
    """

    #: A test may replace them.
    spawner: Spawner | None = None
    waiter: Waiter | None = None

    def __init__(self, host: str) -> None:
        self.host = host
        self.manager = self.host_manager = self
        self.filter_cls_map = {
            theirs.__name__: _WatchedFilter for theirs in WATCHED.values()
        }
        self.scheduler: Scheduler | None = None
        self._server: Any = None

    def start(self) -> None:
        nova.context.CELL_CACHE = {}
        self.service_ref = _record(self.host)
        register_opts(CONF)
        CONF.set_override("user_reasons", "nova", group="moorage")
        CONF.set_override("decision_store_connection", "", group="moorage")
        if os.environ.get(FOLLOW_PLACEMENT) and _placements:
            url = database_of(_placements[-1])
            CONF.set_override("connection", url, group="placement_database")
        self.scheduler = build(
            CONF,
            placement=_Placement(),
            source=NovaDBSource(nova.db.api.api.get_engine(), _cell_engine),
            notifier=(nova.rpc.LEGACY_NOTIFIER, nova.rpc.NOTIFIER),
            network=_Network(),
            waiter=self.waiter,
            spawner=self.spawner,
        )
        self.scheduler.start()
        self._server = oslo_messaging.get_rpc_server(
            nova.rpc.TRANSPORT,
            oslo_messaging.Target(topic=TOPIC, server=self.host),
            self.scheduler.endpoints,
            executor="threading",
            serializer=Serializer(),
        )
        self._server.start()

    def stop(self) -> None:
        if self.scheduler is not None:
            self._server.stop()
            self._server.wait()
            self.scheduler.stop()
            self.scheduler = None

    kill = stop

    def reset(self) -> None:
        """Do what SIGHUP does."""
        assert self.scheduler is not None
        nova.context.CELL_CACHE = {}
        self.scheduler.reset()


def database_of(placement: PlacementFixture) -> str:
    """Return the URL of a fixture's database, which has the schema's version then."""
    url = str(placement.conf_fixture.conf.placement_database.connection)
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        # The fixture creates the tables without Alembic.
        alembic_version.create(connection, checkfirst=True)
        connection.execute(sa.delete(alembic_version))
        connection.execute(
            sa.insert(alembic_version).values(version_num=KNOWN_VERSIONS[0])
        )
    engine.dispose()
    return url


class _Placement:
    """The Placement that a test has set up last; some set it up after the scheduler."""

    def __getattr__(self, name: str) -> Any:
        if not _placements:
            raise EndpointNotFound("No Placement is set up.")
        there = _placements[-1]
        session = Session(auth=Token(there.endpoint, there.token))
        return getattr(Adapter(session, endpoint_override=there.endpoint), name)


class _Network:
    """nova's Neutron client, which tests replace while the scheduler runs."""

    def __getattr__(self, name: str) -> Any:
        context = nova.context.get_admin_context()
        return getattr(neutron.get_client(context, admin=True), name)


class _WatchedFilter:
    """A filter that a test wraps to observe calls of nova's filter of that name."""

    def host_passes(self, host_state: object, spec_obj: object) -> bool:
        return True


def _watch(ours: type[BaseHostFilter], theirs: Any) -> None:
    """Call nova's filter, too, where a test has put a mock there.

    A mock that only records gets the call; one that has an answer of its own
    answers for ours.
    """
    passing = ours.passing

    def watched(self: BaseHostFilter, hosts: Any, spec_obj: Any) -> Any:
        if hasattr(theirs.host_passes, "side_effect"):  # a mock, or a function of one
            answer = theirs().host_passes(hosts, spec_obj)
            if theirs.host_passes.side_effect is None:
                return np.full(len(hosts), answer)
        return passing(self, hosts, spec_obj)

    ours.passing = watched


def _cell_engine(connection: str) -> Any:
    return nova.db.main.api.create_context_manager(connection).writer.get_engine()


def _record(host: str) -> Service:
    """Return the row by which nova's API knows of the scheduler."""
    context = nova.context.get_admin_context()
    found = Service.get_by_host_and_binary(context, host, BINARY)
    if found is None:
        found = Service(
            context, host=host, binary=BINARY, topic=TOPIC, report_count=0
        )  # fmt: skip
        found.create()
    return found
