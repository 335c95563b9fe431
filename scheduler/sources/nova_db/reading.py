# SPDX-License-Identifier: Apache-2.0
"""Conversion of rows of nova's tables, equal to that of nova's host manager."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from sys import intern
from typing import Any, Final, NamedTuple, SupportsInt, TypeVar, cast

from ....objects import HVSpec
from ...decoding import loads
from ...hosts import HostPools, HostTopology
from ...hosts.pci import NO_POOLS
from ...hosts.record import NO_STATS
from .settings import Ratios

_MIB_PER_GIB: Final = 1024
_US_PER_S: Final = 1e6
#: Limit of amounts, which are summed as int64.
_MAX_AMOUNT: Final = 2**53
#: Texts in each cache: many hosts report the same.
_MAX_TEXTS: Final = 1024

V = TypeVar("V")
_Parsed = dict[int, tuple[int, V]]

#: Stored as fractions, read as percentages (nova's MonitorMetricList.from_json).
_PERCENTAGES: Final = frozenset(
    f"cpu.{which}percent" for which in ("user.", "kernel.", "idle.", "iowait.", "")
)


class NodeRow(NamedTuple):
    """The columns read of a row of ``compute_nodes``."""

    id: int
    checksum: int
    version_us: int | None
    uuid: str | None
    host: str | None
    hypervisor_hostname: str | None
    vcpus: int
    vcpus_used: int
    memory_mb: int
    free_ram_mb: int | None
    local_gb: int
    local_gb_used: int
    free_disk_gb: int | None
    disk_available_least: int | None
    hypervisor_type: str | None
    hypervisor_version: int | None
    host_ip: str | None
    ram_allocation_ratio: float | None
    cpu_allocation_ratio: float | None
    disk_allocation_ratio: float | None
    cpu_info: str | None
    supported_instances: str | None
    metrics: str | None
    stats: str | None
    numa_topology: str | None
    pci_stats: str | None


class ComputeService(NamedTuple):
    """A compute service of a cell.

    Attributes
    ----------
    last_seen_up : float
        Its last heartbeat, else its creation, seconds since the epoch (the rule of
        nova's servicegroup driver "db"); NaN: neither is known.
    service_version : int
        0: unknown.
    """

    host: str
    disabled: bool
    forced_down: bool
    last_seen_up: float
    service_version: int


#: The columns of the host table that come from a service.
SERVICE_COLUMNS: Final = ComputeService._fields[1:]


class ServiceRow(NamedTuple):
    """The columns read of a row of ``services``.

    Attributes
    ----------
    seen_us : int or None
        When it was last seen, or created, microseconds since the epoch.
    state : int
        Its version times four, plus 2 if it is forced down, plus 1 if it is disabled.
    """

    id: int
    checksum: int
    version_us: int | None
    host: str | None
    seen_us: int | None
    state: int


def read_service(row: ServiceRow) -> ComputeService | None:
    """Read a row of ``services``; None: it has no host."""
    if row.host is None:
        return None
    return ComputeService(
        host=intern(row.host),
        disabled=bool(row.state & 1),
        forced_down=bool(row.state & 2),
        last_seen_up=math.nan if row.seen_us is None else row.seen_us / _US_PER_S,
        service_version=row.state >> 2,
    )


class NodeReader:
    """Read rows of a cell's ``compute_nodes``.

    NUMA topologies and PCI pools, which take longest, are parsed only if a row's text
    has changed.
    """

    def __init__(self, cell_uuid: str, ratios: Ratios) -> None:
        self._cell_uuid = cell_uuid
        self._ratios = ratios
        #: By row id: a hash of the text, and its value.
        self._topologies: _Parsed[HostTopology] = {}
        self._pools: _Parsed[HostPools] = {}

    def forget(self, row_id: int) -> None:
        """Forget a row that was deleted."""
        self._topologies.pop(row_id, None)
        self._pools.pop(row_id, None)

    def read(self, row: NodeRow) -> dict[str, Any] | None:
        """Read a row.

        Returns
        -------
        dict or None
            Values by the names of `HostRecord`, except those of its service. None: its
            usage was never reported, and nova ignores it.

        Raises
        ------
        ValueError
            A value is invalid; the message says which.
        """
        if row.free_disk_gb is None:
            return None
        try:
            return self._read(row, row.free_disk_gb)
        except (
            TypeError,
            KeyError,
            AttributeError,
            OverflowError,
            RecursionError,
        ) as e:
            raise ValueError(f"{type(e).__name__}: {e}") from e

    def _read(self, row: NodeRow, free_gb: int) -> dict[str, Any]:
        if not row.uuid or row.host is None or row.hypervisor_hostname is None:
            raise ValueError("It has no uuid, no host or no hypervisor_hostname")
        # Interned: services and most nodes have the name of their host.
        host, nodename = intern(row.host), intern(row.hypervisor_hostname)
        stats, counts = _stats(row.stats) if row.stats else _NO_STATS
        if row.disk_available_least is not None:
            free_gb = min(free_gb, row.disk_available_least)
        memory_mb, free_mb, local_gb, free_gb, used_gb, vcpus, vcpus_used, version = (
            _amounts(
                row.memory_mb,
                row.free_ram_mb or 0,
                row.local_gb,
                free_gb,
                row.local_gb_used,
                row.vcpus,
                row.vcpus_used,
                row.hypervisor_version or 0,
            )
        )
        ratios, specs = self._ratios, row.supported_instances
        topology = pools = None
        if row.numa_topology:
            read = HostTopology.read
            topology = _parse(self._topologies, row.id, row.numa_topology, read)
        if row.pci_stats:
            pools = _parse(self._pools, row.id, row.pci_stats, HostPools.read)
        return {
            "host": host,
            "nodename": nodename,
            "hypervisor_hostname": nodename,
            "uuid": row.uuid,
            "cell_uuid": self._cell_uuid,
            "total_usable_ram_mb": memory_mb,
            "free_ram_mb": free_mb,
            "total_usable_disk_gb": local_gb,
            "free_disk_mb": free_gb * _MIB_PER_GIB,
            "disk_mb_used": used_gb * _MIB_PER_GIB,
            "vcpus_total": vcpus,
            "vcpus_used": vcpus_used,
            "cpu_allocation_ratio": row.cpu_allocation_ratio or ratios.cpu,
            "ram_allocation_ratio": row.ram_allocation_ratio or ratios.ram,
            "disk_allocation_ratio": row.disk_allocation_ratio or ratios.disk,
            "num_instances": counts[0],
            "num_io_ops": counts[1],
            "failed_builds": counts[2],
            "stats": stats,
            "hypervisor_type": _shared(row.hypervisor_type),
            "hypervisor_version": version,
            "supported_instances": _specs(specs) if specs else (),
            "cpu_info": _shared(row.cpu_info),
            "metrics": _metrics(row.metrics) if row.metrics else None,
            "host_ip": row.host_ip,
            "numa_topology": topology,
            "pci_stats": pools or NO_POOLS,
        }


def _parse(known: _Parsed[V], row_id: int, text: str, parse: Callable[[str], V]) -> V:
    """Return the value of a text; the known one if the row's text is unchanged."""
    content = hash(text)
    before = known.get(row_id)
    if before is not None and before[0] == content:
        return before[1]
    value = parse(text)
    known[row_id] = (content, value)
    return value


def _amounts(*values: SupportsInt | str) -> list[int]:
    """Return the values as integers; raise ValueError if one is out of range."""
    numbers = list(map(int, values))
    if not -_MAX_AMOUNT < min(numbers) <= max(numbers) < _MAX_AMOUNT:
        largest = max(numbers, key=abs)
        raise ValueError(f"{largest} is out of range")
    return numbers


@functools.lru_cache(_MAX_TEXTS)
def _shared(text: str | None) -> str | None:
    """Return one object for equal texts."""
    return text


#: Numbers of instances, of I/O operations in progress, and of failed builds.
_Counts = tuple[int, int, int]
_NO_STATS: Final = (NO_STATS, (0, 0, 0))
_COUNTED: Final = ("num_instances", "io_workload", "failed_builds")


class _HashableDict(dict[str, V]):
    """A dict that the host table can intern: it is never changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


@functools.lru_cache(_MAX_TEXTS)
def _stats(text: str) -> tuple[_HashableDict[str], _Counts]:
    reported = _loaded("stats", text, dict)
    stats = _HashableDict(
        {intern(k): _stat(k, v) for k, v in reported.items() if v is not None}
    )
    counts = _amounts(*(stats.get(name, 0) for name in _COUNTED))
    return stats, cast(_Counts, tuple(counts))


def _stat(key: str, value: object) -> str:
    """Return a value as the field of nova's ComputeNode coerces it."""
    if not isinstance(value, str | int | float):
        raise ValueError(f"stats: {key} is {type(value).__name__}, not a text")
    return intern(str(value))


@functools.lru_cache(_MAX_TEXTS)
def _specs(text: str) -> tuple[tuple[str, ...], ...]:
    triples = _loaded("supported_instances", text, list)
    try:
        return tuple(_canonical(*triple) for triple in triples)
    except (TypeError, ValueError) as e:
        raise ValueError(f"supported_instances: {e}") from e


def _canonical(arch: str, hv_type: str, vm_mode: str) -> tuple[str, ...]:
    spec = HVSpec(arch=arch, hv_type=hv_type, vm_mode=vm_mode)
    return (spec.arch, spec.hv_type, spec.vm_mode)


def _metrics(text: str) -> _HashableDict[float]:
    found: _HashableDict[float] = _HashableDict()
    for metric in _loaded("metrics", text, list):
        if "value" in metric:  # bandwidths by NUMA node have no single value
            factor = 100 if metric["name"] in _PERCENTAGES else 1
            found[metric["name"]] = int(metric["value"] * factor)
    return found


def _loaded(column: str, text: str, kind: type[V]) -> V:
    try:
        value = loads(text)
    except json.JSONDecodeError as e:
        raise ValueError(f"{column} is not JSON: {e}") from e
    if not isinstance(value, kind):
        raise ValueError(f"{column} is {type(value).__name__}, not {kind.__name__}")
    return value
