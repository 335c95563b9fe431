# SPDX-License-Identifier: Apache-2.0
"""Conversion of rows of ``compute_nodes``, with the results of nova's host manager."""

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
#: Amounts from this one on are rejected, so that sums of amounts fit an int64.
_MAX_AMOUNT: Final = 2**53
#: Maximum texts in each cache: many hosts report equal texts.
_MAX_TEXTS: Final = 1024

V = TypeVar("V")
#: By row id: a hash of the text that was parsed, and its value.
_Parsed = dict[int, tuple[int, V]]

#: Metrics that are stored as fractions and read as percentages
#: (nova's MonitorMetricList.from_json).
_PERCENTAGES: Final = frozenset(
    f"cpu.{mode}percent" for mode in ("user.", "kernel.", "idle.", "iowait.", "")
)


@dataclasses.dataclass(frozen=True, slots=True)
class Ratios:
    """The allocation ratios of compute nodes whose row has NULL or 0 for them."""

    cpu: float
    ram: float
    disk: float

    @classmethod
    def of(cls, conf: cfg.ConfigOpts) -> Ratios:
        """Return the fallback ratios of nova's ``ComputeNode._from_db_object``."""
        return cls(
            *(
                conf[f"{name}_allocation_ratio"]
                or conf[f"initial_{name}_allocation_ratio"]
                for name in ("cpu", "ram", "disk")
            )
        )


class NodeReader:
    """Read rows of a cell's ``compute_nodes``.

    NUMA topologies and PCI pools, which take longest to parse, are parsed again only if
    their text has changed.
    """

    def __init__(self, cell_uuid: str, ratios: Ratios) -> None:
        self._cell_uuid = cell_uuid
        self._ratios = ratios
        self._topologies: _Parsed[HostTopology] = {}
        self._pools: _Parsed[HostPools] = {}

    def forget(self, row_id: int) -> None:
        """Drop the parsed values of a deleted row."""
        self._topologies.pop(row_id, None)
        self._pools.pop(row_id, None)

    def read(self, row: sa.Row[Any]) -> dict[str, Any] | None:
        """Read a row.

        Returns
        -------
        dict or None
            Values by field of `HostRecord`, except the fields that a service has. None:
            the node's usage was never reported, and nova ignores the row.

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
        ratios, triples = self._ratios, row.supported_instances
        topology = pools = None
        if row.numa_topology:
            topology = _parse(
                self._topologies, row.id, row.numa_topology, HostTopology.read
            )
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
            "hypervisor_type": _interned(row.hypervisor_type),
            "hypervisor_version": version,
            "supported_instances": _supported_instances(triples) if triples else (),
            "cpu_info": _interned(row.cpu_info),
            "metrics": _metrics(row.metrics) if row.metrics else None,
            "host_ip": row.host_ip,
            "numa_topology": topology,
            "pci_stats": pools or NO_POOLS,
            "places": (),  # nova has racks, rows and rooms only as aggregates
        }


def _parse(known: _Parsed[V], row_id: int, text: str, parse: Callable[[str], V]) -> V:
    """Return the parsed text of a row; the known value if the text is unchanged."""
    text_hash = hash(text)
    known_entry = known.get(row_id)
    if known_entry is not None and known_entry[0] == text_hash:
        return known_entry[1]
    value = parse(text)
    known[row_id] = (text_hash, value)
    return value


def _amounts(*values: SupportsInt | str) -> list[int]:
    """Return the values as integers; raise ValueError if one is out of range."""
    numbers = list(map(int, values))
    if not -_MAX_AMOUNT < min(numbers) <= max(numbers) < _MAX_AMOUNT:
        largest = max(numbers, key=abs)
        raise ValueError(f"{largest} is out of range")
    return numbers


@functools.lru_cache(_MAX_TEXTS)
def _interned(text: str | None) -> str | None:
    """Return the same object for equal texts, to save memory."""
    return text


#: Numbers of instances, of I/O operations in progress, and of failed builds.
_Counts = tuple[int, int, int]
_NO_STATS: Final = (NO_STATS, (0, 0, 0))
#: The stats that `_Counts` has.
_COUNT_NAMES: Final = ("num_instances", "io_workload", "failed_builds")


class _HashableDict(dict[str, V]):
    """A dict that is never changed, so that the host table can intern it."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


@functools.lru_cache(_MAX_TEXTS)
def _stats(text: str) -> tuple[_HashableDict[str], _Counts]:
    """Return the stats of a node, and the counts among them."""
    reported = _load_json("stats", text, dict)
    stats = _HashableDict(
        {intern(k): _stat(k, v) for k, v in reported.items() if v is not None}
    )
    counts = _amounts(*(stats.get(name, 0) for name in _COUNT_NAMES))
    return stats, cast(_Counts, tuple(counts))


def _stat(key: str, value: object) -> str:
    """Return a value of ``stats`` as text, as nova's ComputeNode does."""
    if not isinstance(value, str | int | float):
        raise ValueError(f"stats: {key} is {type(value).__name__}, not a text")
    return intern(str(value))


@functools.lru_cache(_MAX_TEXTS)
def _supported_instances(text: str) -> tuple[tuple[str, ...], ...]:
    """Return canonical triples of architecture, hypervisor type and VM mode."""
    triples = _load_json("supported_instances", text, list)
    try:
        return tuple(_canonical_triple(*triple) for triple in triples)
    except (TypeError, ValueError) as e:
        raise ValueError(f"supported_instances: {e}") from e


def _canonical_triple(arch: str, hv_type: str, vm_mode: str) -> tuple[str, ...]:
    spec = HVSpec(arch=arch, hv_type=hv_type, vm_mode=vm_mode)
    return (spec.arch, spec.hv_type, spec.vm_mode)


def _metrics(text: str) -> _HashableDict[float]:
    metrics: _HashableDict[float] = _HashableDict()
    for metric in _load_json("metrics", text, list):
        if "value" in metric:  # bandwidths by NUMA node have no single value
            factor = 100 if metric["name"] in _PERCENTAGES else 1
            metrics[metric["name"]] = int(metric["value"] * factor)
    return metrics


def _load_json(column: str, text: str, kind: type[V]) -> V:
    """Return the value of a JSON column; raise ValueError if it is not a `kind`."""
    try:
        value = loads(text)
    except json.JSONDecodeError as e:
        raise ValueError(f"{column} is not JSON: {e}") from e
    if not isinstance(value, kind):
        raise ValueError(f"{column} is {type(value).__name__}, not {kind.__name__}")
    return value
