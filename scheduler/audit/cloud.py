# SPDX-License-Identifier: Apache-2.0
"""What a host source knows of the cloud, to be compared with Placement."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

import os_resource_classes as orc
from oslo_config import cfg

from ..clock import now_s
from ..entry_points import load_plugin
from ..errors import ConfigurationError
from ..hosts import HostAggregate, HostTable
from ..sources.base import BaseHostSource
from ..sources.report_columns import load_columns

_MIB_PER_GIB: Final = 1024
#: The type of hypervisor of bare metal.
_IRONIC: Final = "ironic"
_NO_SPECS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclasses.dataclass(frozen=True, slots=True)
class KnownHost:
    """A compute node.

    Attributes
    ----------
    totals : mapping
        What it reports by resource class; empty for bare metal, whose inventory in
        Placement is of classes that the report does not have.
    """

    uuid: str
    host: str
    node: str
    totals: Mapping[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class KnownFlavor:
    """What an instance's flavor requests.

    Attributes
    ----------
    swap_mb : int or None
        None: it was not read.
    """

    vcpus: int
    memory_mb: int
    root_gb: int
    ephemeral_gb: int
    swap_mb: int | None = None
    extra_specs: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: _NO_SPECS
    )

    def differences(self, held: Mapping[str, int]) -> Sequence[str]:
        """Return how held amounts differ from the flavor's, as texts.

        Amounts that an extra spec such as ``resources:VCPU`` sets are not compared. A
        pinned guest may hold a CPU more, for its emulator threads. An instance that
        boots from a volume holds no root disk.
        """
        overridden = {
            match[1]
            for key in self.extra_specs
            if (match := re.fullmatch(r"resources\w*:(\w+)", key))
        }
        cpus = held.get(orc.VCPU, 0) + held.get(orc.PCPU, 0)
        disk_gb = self.ephemeral_gb + -(-(self.swap_mb or 0) // _MIB_PER_GIB)
        differing = []
        if not overridden & {orc.VCPU, orc.PCPU} and not (
            cpus == self.vcpus or (held.get(orc.PCPU) and cpus == self.vcpus + 1)
        ):
            differing.append(f"{cpus} CPUs instead of {self.vcpus}")
        memory_mb = held.get(orc.MEMORY_MB, 0)
        if orc.MEMORY_MB not in overridden and memory_mb != self.memory_mb:
            differing.append(f"MEMORY_MB {memory_mb} instead of {self.memory_mb}")
        held_gb = held.get(orc.DISK_GB, 0)
        possible_gb = (disk_gb + self.root_gb, disk_gb)
        if orc.DISK_GB not in overridden and held_gb not in possible_gb:
            differing.append(f"DISK_GB {held_gb} instead of {possible_gb[0]}")
        return differing


@dataclasses.dataclass(frozen=True, slots=True)
class KnownInstance:
    """An instance on a host.

    Attributes
    ----------
    hosts : frozenset of str
        The service hosts: one, or two while a source of reports sees it move.
    node_uuid : str or None
        The compute node on which it must hold its allocation; None: that is unknown.
    evacuated_from : frozenset of str
        Compute nodes on which it may hold an allocation until their service restarts.
    flavor : KnownFlavor or None
        None: it is unknown.
    """

    hosts: frozenset[str]
    node_uuid: str | None = None
    evacuated_from: frozenset[str] = frozenset()
    flavor: KnownFlavor | None = None


class FateState(enum.Enum):
    """Whether a consumer that is on no host needs its allocation."""

    GONE = "gone"
    IN_USE = "in use"


@dataclasses.dataclass(frozen=True, slots=True)
class Fate:
    """What the source knows of a consumer that is on no host.

    Attributes
    ----------
    text : str
        The evidence.
    since : float or None
        When it became so, seconds since the epoch.
    """

    state: FateState
    text: str
    since: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Cloud:
    """What a source knew when it was read.

    Attributes
    ----------
    hosts : mapping
        By the UUID of the compute node.
    aggregates : sequence of HostAggregate or None
        None: the source does not know them.
    instances : mapping
        The instances on hosts that can be judged, by UUID: no move or task is under
        way.
    in_use : frozenset of str
        Other consumers that may hold any allocation: instances with a move or a task,
        and unfinished migrations.
    reporter : str
        The service that writes the hosts' providers to Placement.
    notes : sequence of str
        What the source cannot know, and what was not judged.
    """

    hosts: Mapping[str, KnownHost]
    aggregates: Sequence[HostAggregate] | None
    instances: Mapping[str, KnownInstance]
    in_use: frozenset[str]
    reporter: str
    notes: Sequence[str]


class CloudReader(Protocol):
    """Reads a source anew with each call of `read`."""

    def read(self) -> Cloud:
        """Return what the source knows now.

        Raises
        ------
        ConfigurationError
            It cannot be read.
        """

    def fates(self, consumer_uuids: Collection[str]) -> Mapping[str, Fate] | None:
        """Return the fate of each of these consumers; None: the source knows none."""

    def flavors(self, instance_uuids: Collection[str]) -> Mapping[str, KnownFlavor]:
        """Return the whole flavors of those of these instances that have one."""

    def close(self) -> None:
        """Close connections."""


class TableReader:
    """Reads a source that fills a host table: reports over RPC or Kafka, or a file."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf

    def read(self) -> Cloud:
        """Start the source as a scheduler does, and stop it."""
        name = self._conf.moorage.source
        source: BaseHostSource = load_plugin("moorage.sources", name)(self._conf)
        source.adopt(self._conf)
        table = HostTable(now_s, load_columns())
        try:
            source.start(table)
            if troubles := " ".join(filter(None, source.troubles())):
                raise ConfigurationError(f"The source {name!r}: {troubles}")
        finally:
            source.stop()
        hosts = {}
        batch = table.batch()
        for uuid, host, node, kind, vcpus, memory_mb, disk_gb in zip(
            batch.uuid.tolist(),
            batch.host.tolist(),
            batch.nodename.tolist(),
            batch.hypervisor_type.tolist(),
            batch.vcpus_total.tolist(),
            batch.total_usable_ram_mb.tolist(),
            batch.total_usable_disk_gb.tolist(),
            strict=True,
        ):
            totals = reported_totals(kind, vcpus, memory_mb, disk_gb)
            hosts[uuid] = KnownHost(uuid, host, node, totals)
        aggregates = None
        if source.has_aggregates or tuple(table.aggregates):
            aggregates = tuple(table.aggregates)
        notes = [
            f"The source {name!r} does not know migrations, builds and flavors: "
            "allocations that nobody uses, that are doubled, or that differ from the "
            "instance's are not searched"
        ]
        instances: dict[str, KnownInstance] = {}
        if source.is_reporting:
            on_hosts, _ = table.instances.contents()
            instances = {
                uuid: KnownInstance(frozenset(of)) for uuid, of in on_hosts.items()
            }
        else:
            notes.append(
                f"The source {name!r} does not know instances: instances without an "
                "allocation are not searched"
            )
        if aggregates is None:
            notes.append(f"The source {name!r} does not know host aggregates")
        reporter = "moorage-agent" if source.is_reporting else "moorage-scheduler"
        return Cloud(hosts, aggregates, instances, frozenset(), reporter, notes)

    def fates(self, consumer_uuids: Collection[str]) -> None:  # noqa: ARG002 - unknown
        """Return None: a consumer that no host reports may be a build or a move."""
        return

    def flavors(self, instance_uuids: Collection[str]) -> Mapping[str, KnownFlavor]:  # noqa: ARG002 - unknown
        """Return none: hosts do not report flavors."""
        return {}

    def close(self) -> None:
        """Do nothing: `read` has stopped the source."""


def reported_totals(
    hypervisor_type: str | None, vcpus: int, memory_mb: int, disk_gb: int
) -> Mapping[str, int]:
    """Return what a compute node reports by class; nothing for bare metal."""
    if (hypervisor_type or "").lower() == _IRONIC:
        return {}
    return {orc.VCPU: vcpus, orc.MEMORY_MB: memory_mb, orc.DISK_GB: disk_gb}
