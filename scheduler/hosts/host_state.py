# SPDX-License-Identifier: Apache-2.0
"""One host of a batch, as plugins written for nova read it."""

from __future__ import annotations

import datetime
import math
from typing import TYPE_CHECKING, Any

from ...objects import Instance, NUMATopology
from ..candidates import AllocationRequest
from .aggregates import HostAggregate
from .numa import HostTopology
from .pci import PciDeviceStats

if TYPE_CHECKING:  # a batch makes its host states
    from .batch import HostBatch


class HostState:
    """One host of a batch, under the attribute names of nova's HostState.

    A filter or weigher that was written for nova gets one of these for each host.
    Numbers are Python's own types. A filter of nova's protocol may shorten
    `allocation_candidates` and write to `limits`; both affect this object only.
    """

    __slots__ = ("_batch", "_candidates", "_index", "limits")

    def __init__(self, batch: HostBatch, index: int) -> None:
        self._batch = batch
        self._index = index
        self._candidates: list[AllocationRequest] | None = None
        self.limits: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._batch.value(name, self._index)

    def as_batch(self) -> HostBatch:
        """Return the batch of this host alone."""
        return self._batch.take([self._index])

    @property
    def allocation_candidates(self) -> list[AllocationRequest]:
        """The candidates as Placement returned them; none if it was not asked."""
        if self._candidates is None:
            self._candidates = self._batch.allocation_requests_of(self._index)
        return self._candidates

    @allocation_candidates.setter
    def allocation_candidates(self, candidates: list[AllocationRequest]) -> None:
        self._candidates = candidates

    @property
    def numa_topology(self) -> NUMATopology | None:
        """The NUMA cells, as the object that compute hosts report."""
        topology: HostTopology | None = self._batch.value("numa_topology", self._index)
        return None if topology is None else topology.to_object()

    @property
    def pci_stats(self) -> PciDeviceStats:
        """The pools of free PCI devices."""
        pools = self._batch.value("pci_stats", self._index)
        topology = self._batch.value("numa_topology", self._index)
        return PciDeviceStats(pools, topology)

    @property
    def aggregates(self) -> list[HostAggregate]:
        """The aggregates of the service host, by ascending id."""
        return list(self._batch.value("aggregates", self._index))

    @property
    def instances(self) -> dict[str, Instance]:
        """The instances of the service host by UUID; of each only `uuid` is set."""
        return self._batch.instances_of(self._index)

    @property
    def service(self) -> dict[str, Any]:
        """The fields of the compute service that a scheduler needs."""
        seen: float = self.last_seen_up
        return {
            "host": self.host,
            "disabled": self.disabled,
            "forced_down": self.forced_down,
            "last_seen_up": (
                datetime.datetime.fromtimestamp(seen, datetime.UTC)
                if math.isfinite(seen)
                else None
            ),
        }

    def __repr__(self) -> str:
        # nova's own form: operators search logs for it.
        return (
            f"({self.host}, {self.nodename}) ram: {self.free_ram_mb}MB "
            f"disk: {self.free_disk_mb}MB io_ops: {self.num_io_ops} "
            f"instances: {self.num_instances}"
        )
