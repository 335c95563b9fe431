# SPDX-License-Identifier: Apache-2.0
"""Conversion of rows of ``compute_nodes``, equal to that of nova's host manager."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from sys import intern
from typing import Any, Final, SupportsInt, TypeVar, cast

import sqlalchemy as sa
from oslo_config import cfg

from ....objects import HVSpec
from ...decoding import loads
from ...hosts import HostPools, HostTopology
from ...hosts.pci import NO_POOLS
from ...hosts.record import NO_STATS

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


@dataclasses.dataclass(frozen=True, slots=True)
class Ratios:
    """The allocation ratios for a compute node whose row has none, or 0."""

    cpu: float
    ram: float
    disk: float

    @classmethod
    def of(cls, conf: cfg.ConfigOpts) -> Ratios:
        """Return the fallbacks of nova's ``ComputeNode._from_db_object``."""
        return cls(
            *(
                conf[f"{name}_allocation_ratio"]
                or conf[f"initial_{name}_allocation_ratio"]
                for name in ("cpu", "ram", "disk")
            )
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

    def read(self, row: sa.Row[Any]) -> dict[str, Any] | None:
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

    def _read(self, row: sa.Row[Any], free_gb: int) -> dict[str, Any]:
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
            "places": (),  # nova's tables have them as aggregates only
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
    metrics: _HashableDict[float] = _HashableDict()
    for metric in _loaded("metrics", text, list):
        if "value" in metric:  # bandwidths by NUMA node have no single value
            factor = 100 if metric["name"] in _PERCENTAGES else 1
            metrics[metric["name"]] = int(metric["value"] * factor)
    return metrics


def _loaded(column: str, text: str, kind: type[V]) -> V:
    try:
        value = loads(text)
    except json.JSONDecodeError as e:
        raise ValueError(f"{column} is not JSON: {e}") from e
    if not isinstance(value, kind):
        raise ValueError(f"{column} is {type(value).__name__}, not {kind.__name__}")
    return value
