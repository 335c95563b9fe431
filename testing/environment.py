# SPDX-License-Identifier: Apache-2.0
"""Fixtures to test plugins and conductors: a Placement, a scheduler."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import fixtures
import oslo_messaging

from ..scheduler.conf import load
from ..scheduler.hosts import HostAggregate, HostRecord, HostTable
from ..scheduler.placement.client import PlacementClient
from ..scheduler.placement.embedded import EmbeddedPlacement
from ..scheduler.placement.seed import seed
from ..scheduler.rpc import SchedulerAPI, get_server, get_transport
from ..scheduler.seeding import providers
from ..scheduler.service import Scheduler, build
from ..scheduler.sources.base import BaseHostSource
from ..scheduler.sources.inventory import Inventory, InventoryHost

Options = Mapping[str, Mapping[str, object]]

_TIMEOUT_S = 60


class PlacementFixture(fixtures.Fixture):
    """A real Placement in this process, in memory; one at a time.

    Attributes
    ----------
    embedded : EmbeddedPlacement
        The running Placement.
    client : PlacementClient
        A client of this Placement.
    """

    embedded: EmbeddedPlacement
    client: PlacementClient

    def _setUp(self) -> None:
        self.embedded = EmbeddedPlacement()
        self.addCleanup(self.embedded.close)
        self.client = PlacementClient(self.embedded.adapter)


class SchedulerFixture(fixtures.Fixture):
    """A scheduler with given hosts, a real Placement that has them, and a bus.

    Parameters
    ----------
    *hosts : HostRecord
        The hosts, created with `moorage.testing.host`, for example.
    aggregates : iterable of HostAggregate
        The aggregates, created with `moorage.testing.aggregate`, for example.
    instances : mapping, optional
        Instance UUIDs by service host.
    options : mapping, optional
        Values by option by group: ``{"filter_scheduler": {"host_subset_size": 2}}``.

    Attributes
    ----------
    scheduler : Scheduler
        The scheduler, for direct calls; its `decisions` explain the results.
    api : SchedulerAPI
        A conductor's client, over a transport in memory.
    transport : oslo_messaging.Transport
        The transport in memory, for other clients than `api`.
    placement : PlacementClient
        A client of the scheduler's Placement.
    """

    scheduler: Scheduler
    api: SchedulerAPI
    transport: oslo_messaging.Transport
    placement: PlacementClient

    def __init__(
        self,
        *hosts: HostRecord,
        aggregates: Iterable[HostAggregate] = (),
        instances: Mapping[str, Iterable[str]] | None = None,
        options: Options | None = None,
    ) -> None:
        super().__init__()
        self._hosts = hosts
        self._aggregates = tuple(aggregates)
        self._instances = {
            host: tuple(uuids) for host, uuids in (instances or {}).items()
        }
        self._options = options or {}

    def _setUp(self) -> None:
        conf = load([], config_files=[])
        for group, values in self._options.items():
            for name, value in values.items():
                conf.set_override(name, value, None if group == "DEFAULT" else group)
        placement = self.useFixture(PlacementFixture())
        self.placement = placement.client
        seed(self.placement, providers(self._inventory()))
        self.scheduler = build(
            conf,
            placement=placement.embedded.adapter,
            source=_GivenHosts(self._hosts, self._aggregates, self._instances),
        )
        self.scheduler.start()
        self.addCleanup(self.scheduler.stop)
        self._serve()

    def _inventory(self) -> Inventory:
        cells = {host.cell_uuid: host.cell_uuid for host in self._hosts}
        hosts = tuple(
            InventoryHost(
                record=record,
                traits=frozenset(),
                reserved=_in_use(record),
                resources={},
                instances=frozenset(self._instances.get(record.host, ())),
            )
            for record in self._hosts
        )
        return Inventory(cells, self._aggregates, hosts)

    def _serve(self) -> None:
        conf = self.scheduler.conf
        self.transport = get_transport(conf, "fake://")
        # The bus in memory is that of the whole process: an earlier caller may have
        # left a request there that no server took.
        self.transport.cleanup()
        self.addCleanup(self.transport.cleanup)
        server = get_server(conf, self.transport, self.scheduler.endpoints)
        server.start()
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        self.api = SchedulerAPI(self.transport, timeout_s=_TIMEOUT_S)


def _in_use(record: HostRecord) -> dict[str, int]:
    """Return the reserved amounts with which Placement agrees with the table."""
    used_by_class = {
        "VCPU": (record.vcpus_used, record.cpu_allocation_ratio),
        "MEMORY_MB": (
            record.total_usable_ram_mb - record.free_ram_mb,
            record.ram_allocation_ratio,
        ),
        "DISK_GB": (record.disk_mb_used / 1024, record.disk_allocation_ratio),
    }
    return {
        name: max(math.ceil(amount / ratio), 0)
        for name, (amount, ratio) in used_by_class.items()
    }


class _GivenHosts(BaseHostSource):
    """Puts given hosts into the table."""

    def __init__(
        self,
        hosts: Iterable[HostRecord],
        aggregates: Iterable[HostAggregate],
        instances: Mapping[str, Iterable[str]],
    ) -> None:
        self._hosts = hosts
        self._aggregates = aggregates
        self._instances = instances

    def start(self, table: HostTable) -> None:
        for aggregate in self._aggregates:
            table.put_aggregate(aggregate)
        for record in self._hosts:
            table.put(record, tuple(self._instances.get(record.host, ())))
