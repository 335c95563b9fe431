# SPDX-License-Identifier: Apache-2.0
"""Host states of nova 34's own HostManager and of our table, from real databases."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

from oslo_config import cfg

from moorage.scheduler.conf import load
from moorage.scheduler.hosts import HostTable
from moorage.scheduler.sources.nova_db import NovaDBSource

from ..fixtures.nova_databases import NovaDatabases
from ..fixtures.nova_peer import Peer

#: Differences that one comparison prints at most.
_MAX_PRINTED = 12

_DATA = "nova_object.data"

Dumped = dict[str, dict[str, Any]]
Options = Mapping[str, Mapping[str, Any]]


class Both:
    """nova's HostManager and our source over the same databases, for a `with`."""

    def __init__(
        self,
        peer: Peer,
        databases: NovaDatabases,
        options: Options | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._peer = peer
        self._options = options or {}
        self.table = HostTable()
        self.source = NovaDBSource(
            databases.api,
            databases.engine,
            conf=conf_of(databases, self._options),
            clock=clock,
        )
        peer.ask(
            "open_databases",
            api_database=databases.api_url,
            database=databases.main_url,
        )
        self.source.start(self.table)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.source.stop()
        self._peer.ask("close_databases")

    def poll(self) -> None:
        """Look as a decision does."""
        self.source.refresh_if_stale(self.table)

    def novas(self, **how: Any) -> dict[str, Any]:
        """Return what a new HostManager reads; see nova_host_manager.py."""
        options = {g: v for g, v in self._options.items() if g != "moorage"}
        message = {"instances": "reported", "options": options, **how}
        answer: dict[str, Any] = self._peer.ask("host_states", **message)
        return answer

    def differences(self, **how: Any) -> list[str]:
        """Return where the table and nova differ, in words."""
        novas = self.novas(**how)
        return [
            *_differences(dumped(self.table), _plain_hosts(novas["hosts"])),
            *_differences(_our_aggregates(self.table), _by_id(novas["aggregates"])),
        ]


def conf_of(databases: NovaDatabases, options: Options) -> cfg.ConfigOpts:
    """Return our options with these values, and where the databases are.

    Nothing is compared in full unless an option says so: a poll has to find it.
    """
    conf = load([], config_files=[])
    conf.set_override("full_comparison_interval", 1e9, group="moorage")
    conf.set_override("connection", databases.api_url, group="api_database")
    conf.set_override("connection", databases.main_url, group="database")
    for group, values in options.items():
        for name, value in values.items():
            where = () if group == "DEFAULT" else (group,)
            conf.set_override(name, value, *where)
    return conf


# -- the same, attribute by attribute ------------------------------------------------


def dumped(table: HostTable) -> Dumped:
    """Return every attribute of every row as plain data, by the node's UUID."""
    batch = table.batch()

    def as_data(index: int) -> dict[str, Any]:
        def value(name: str) -> Any:
            return batch.value(name, index)

        topology = value("numa_topology")
        return {
            **{name: value(name) for name in _SAME},
            "supported_instances": [
                list(each) for each in value("supported_instances")
            ],
            "stats": dict(value("stats")),
            "metrics": dict(value("metrics") or {}),
            "numa_topology": topology
            and _cells(topology.to_object().obj_to_primitive()),
            "pci_stats": _plain(value("pci_stats").to_dicts()),
            "aggregates": [aggregate.id for aggregate in value("aggregates")],
            "instances": sorted(table.instances.of_host(value("host"))),
            "last_seen_up": round(value("last_seen_up"), 3),
        }

    return {batch.value("uuid", i): as_data(i) for i in range(len(batch))}


_SAME = (
    "host", "nodename", "uuid", "cell_uuid", "total_usable_ram_mb", "free_ram_mb",
    "total_usable_disk_gb", "disk_mb_used", "free_disk_mb", "vcpus_total",
    "vcpus_used", "cpu_allocation_ratio", "ram_allocation_ratio",
    "disk_allocation_ratio", "num_instances", "num_io_ops", "failed_builds",
    "hypervisor_type", "hypervisor_version", "hypervisor_hostname", "cpu_info",
    "host_ip", "disabled", "forced_down", "service_version",
)  # fmt: skip


def _plain_hosts(hosts: Dumped) -> Dumped:
    """Return nova's host states in the form of `dumped`."""
    for state in hosts.values():
        del state["updated"]  # the table has no update time of the row
        state["numa_topology"] = state["numa_topology"] and _cells(
            state["numa_topology"]
        )
        state["pci_stats"] = _plain(state["pci_stats"])
        state["last_seen_up"] = round(state["last_seen_up"], 3)
        # No filter of nova's distinguishes a key without a value from a missing one.
        stats = state["stats"].items()
        state["stats"] = {k: v for k, v in stats if v is not None}
    return hosts


def _cells(topology: dict[str, Any]) -> list[Any]:
    """Return the cells of a topology's primitive.

    nova reads a cell that names no networks as one without network metadata, and
    leaves the CPUs for pinning unset in reports older than that field.
    """
    cells = [cell[_DATA] for cell in _plain(topology)[_DATA]["cells"]]
    for cell in cells:
        if not any(cell.get("network_metadata", {_DATA: {}})[_DATA].values()):
            cell.pop("network_metadata", None)
        cell.setdefault("pcpuset", [])
    return cells


def _plain(value: Any) -> Any:
    """Return a primitive without what was changed, all that is a list sorted."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if k != "nova_object.changes"}
    if isinstance(value, (list, tuple, set, frozenset)):
        return sorted(map(_plain, value), key=_written)
    return value


def _our_aggregates(table: HostTable) -> Dumped:
    return {
        str(a.id): {
            "id": a.id,
            "uuid": a.uuid,
            "name": a.name,
            "hosts": sorted(a.hosts),
            "metadata": dict(a.metadata),
        }
        for a in table.aggregates
    }


def _by_id(aggregates: Sequence[dict[str, Any]]) -> Dumped:
    return {str(aggregate["id"]): aggregate for aggregate in aggregates}


def _written(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _differences(ours: Dumped, novas: Dumped) -> list[str]:
    differences = [
        f"{key}: only nova has it" for key in sorted(novas.keys() - ours.keys())
    ]
    differences += [
        f"{key}: only we have it" for key in sorted(ours.keys() - novas.keys())
    ]
    for key in sorted(ours.keys() & novas.keys()):
        differences += _unlike(ours[key], novas[key], key)
    return differences[:_MAX_PRINTED]


def _unlike(mine: Any, its: Any, where: str) -> Iterator[str]:
    """Yield the innermost places at which two values differ."""
    if mine == its:
        return
    if isinstance(mine, dict) and isinstance(its, dict):
        for key in sorted(mine.keys() | its.keys()):
            yield from _unlike(mine.get(key), its.get(key), f"{where}.{key}")
    elif isinstance(mine, list) and isinstance(its, list) and len(mine) == len(its):
        for index, (one, other) in enumerate(zip(mine, its, strict=True)):
            yield from _unlike(one, other, f"{where}[{index}]")
    else:
        yield f"{where}: ours {mine!r}, nova's {its!r}"
