# SPDX-License-Identifier: Apache-2.0
"""Rows of nova's tables, read as nova's host manager reads them."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from ....objects import HVSpec
from ...hosts import HostPools, HostRecord, HostTopology
from .settings import Ratios

#: What a row of the database is here: columns as attributes.
Row = Any

_MIB_PER_GIB: Final = 1024
_US_PER_S: Final = 1e6
#: Amounts are columns of int64 that are added to.
_MAX_AMOUNT: Final = 2**53
#: Texts that are remembered: many hosts report the same.
_MAX_TEXTS: Final = 1024
#: Values of stats up to this length are counts and names that hosts have in common.
_SHORT: Final = 40

#: Written as shares, read as percentages (nova's MonitorMetricList.from_json).
_PERCENTAGES: Final = frozenset(
    f"cpu.{which}percent" for which in ("user.", "kernel.", "idle.", "iowait.", "")
)


@dataclasses.dataclass(frozen=True, slots=True)
class Service:
    """A compute service of a cell.

    Attributes
    ----------
    last_seen_up : float
        Its last heartbeat, else when it was made, seconds since the epoch (the rule of
        nova's servicegroup driver "db"); NaN: neither is known.
    version : int
        0: unknown.
    """

    host: str
    disabled: bool
    forced_down: bool
    last_seen_up: float
    version: int

    def columns(self) -> dict[str, bool | float | int]:
        """Return its part of a row of the host table."""
        return {
            "disabled": self.disabled,
            "forced_down": self.forced_down,
            "last_seen_up": self.last_seen_up,
            "service_version": self.version,
        }


def read_service(row: Row) -> Service | None:
    """Read a row of ``services``; None: it has no host.

    Its ``seen_us`` is when it was seen last, or made, microseconds since the epoch.
    """
    if row.host is None:
        return None
    return Service(
        host=sys.intern(row.host),
        disabled=bool(row.disabled),
        forced_down=bool(row.forced_down),
        last_seen_up=math.nan if row.seen_us is None else row.seen_us / _US_PER_S,
        version=row.version or 0,
    )


def read_node(row: Row, cell_uuid: str, ratios: Ratios) -> HostRecord | None:
    """Read a row of ``compute_nodes``; what its service tells is left at defaults.

    Returns
    -------
    HostRecord or None
        None: its usage was never reported, and nova ignores it.

    Raises
    ------
    ValueError
        It cannot be understood; the message says what of it.
    """
    if row.free_disk_gb is None:
        return None
    if not row.uuid or row.host is None or row.hypervisor_hostname is None:
        raise ValueError("It has no uuid, no host or no hypervisor_hostname")
    try:
        return _record(row, cell_uuid, ratios)
    except (TypeError, KeyError, AttributeError, OverflowError, RecursionError) as e:
        raise ValueError(f"{type(e).__name__}: {e}") from e


def _record(row: Row, cell_uuid: str, ratios: Ratios) -> HostRecord:
    stats = _stats(row.stats) if row.stats else _NO_STATS
    free_gb = row.free_disk_gb
    if row.disk_available_least is not None:
        free_gb = min(free_gb, row.disk_available_least)
    topology = row.numa_topology
    specs = row.supported_instances
    # One object for equal names: services and most nodes are named by their host.
    host, nodename = sys.intern(row.host), sys.intern(row.hypervisor_hostname)
    return HostRecord(
        host=host,
        nodename=nodename,
        hypervisor_hostname=nodename,
        uuid=row.uuid,
        cell_uuid=cell_uuid,
        total_usable_ram_mb=_amount(row.memory_mb),
        free_ram_mb=_amount(row.free_ram_mb or 0),
        total_usable_disk_gb=_amount(row.local_gb),
        free_disk_mb=_amount(free_gb) * _MIB_PER_GIB,
        disk_mb_used=_amount(row.local_gb_used) * _MIB_PER_GIB,
        vcpus_total=_amount(row.vcpus),
        vcpus_used=_amount(row.vcpus_used),
        cpu_allocation_ratio=float(row.cpu_allocation_ratio or ratios.cpu),
        ram_allocation_ratio=float(row.ram_allocation_ratio or ratios.ram),
        disk_allocation_ratio=float(row.disk_allocation_ratio or ratios.disk),
        num_instances=_amount(stats.get("num_instances", 0)),
        num_io_ops=_amount(stats.get("io_workload", 0)),
        failed_builds=_amount(stats.get("failed_builds", 0)),
        stats=stats,
        hypervisor_type=_shared(row.hypervisor_type),
        hypervisor_version=_amount(row.hypervisor_version or 0),
        supported_instances=_specs(specs) if specs else (),
        cpu_info=_shared(row.cpu_info),
        metrics=_metrics(row.metrics) if row.metrics else None,
        host_ip=row.host_ip,
        numa_topology=HostTopology.read(topology) if topology else None,
        pci_stats=HostPools.read(row.pci_stats),
    )


def _amount(value: Any) -> int:
    number = int(value)
    if not -_MAX_AMOUNT < number < _MAX_AMOUNT:
        raise ValueError(f"{number} is no amount of anything")
    return number


@functools.lru_cache(_MAX_TEXTS)
def _shared(text: str | None) -> str | None:
    """Return one object for equal texts."""
    return text


_NO_STATS: Mapping[str, str] = MappingProxyType({})


@functools.lru_cache(_MAX_TEXTS)
def _stats(text: str) -> Mapping[str, str]:
    read = _loaded("stats", text, dict)
    told = {sys.intern(k): _stat(k, v) for k, v in read.items() if v is not None}
    return Stats(_shared_keys(tuple(told)), tuple(told.values()))


@functools.lru_cache(_MAX_TEXTS)
def _shared_keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return one object for equal keys."""
    return keys


class Stats(Mapping[str, str]):
    """What a compute tells of itself, in less than half of a dict's memory.

    Most hosts tell the same few keys.
    """

    __slots__ = ("_keys", "_values")

    def __init__(self, keys: tuple[str, ...], values: tuple[str, ...]) -> None:
        self._keys = keys
        self._values = values

    def __getitem__(self, key: str) -> str:
        try:
            return self._values[self._keys.index(key)]
        except ValueError:
            raise KeyError(key) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"Stats({dict(self)!r})"


def _stat(key: str, value: object) -> str:
    """Return a value as the field of nova's ComputeNode coerces it."""
    if not isinstance(value, str | int | float):
        raise ValueError(f"stats: {key} is {type(value).__name__}, not a text")
    text = str(value)
    return sys.intern(text) if len(text) <= _SHORT else text


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


def _metrics(text: str) -> Mapping[str, float]:
    found = {}
    for metric in _loaded("metrics", text, list):
        if "value" in metric:  # bandwidths by NUMA node are no number
            factor = 100 if metric["name"] in _PERCENTAGES else 1
            found[sys.intern(metric["name"])] = int(metric["value"] * factor)
    return MappingProxyType(found)


def _loaded(column: str, text: str, kind: type[Any]) -> Any:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as e:
        raise ValueError(f"{column} is no JSON: {e}") from e
    if not isinstance(value, kind):
        raise ValueError(f"{column} is {type(value).__name__}, not {kind.__name__}")
    return value
