# SPDX-License-Identifier: Apache-2.0
"""Queries to the table of resource providers: trees that match, and candidates."""

from __future__ import annotations

import gc
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from moorage.scheduler.placement.providers import (
    INVENTORY,
    InventoryRecord,
    InventoryRows,
    ProviderColumns,
    ProviderQuery,
    ProviderRecord,
    ProviderTable,
)

from .tables import make_table
from .timing import (
    Percentiles,
    Plan,
    elapsed_ms,
    format_number,
    format_percentiles,
    repeated,
)

Rows = npt.NDArray[np.int32]
Params = tuple[tuple[str, str], ...]

_N_TRAITS: Final = 50
_TRAITS: Final = tuple(f"CUSTOM_TRAIT_{i}" for i in range(_N_TRAITS))
_PHYSNETS: Final = ("CUSTOM_PHYSNET_0", "CUSTOM_PHYSNET_1")
_HOSTS_PER_AGGREGATE: Final = 100
_N_PF: Final = 8

_PLAIN: Final[Params] = (
    ("resources", "DISK_GB:20,MEMORY_MB:2048,VCPU:2"),
    ("required", _TRAITS[7]),
)
_PORTS: Final[Params] = (
    ("resources", "MEMORY_MB:2048,VCPU:2"),
    ("resources_P1", "SRIOV_NET_VF:1"),
    ("required_P1", _PHYSNETS[0]),
    ("resources_P2", "SRIOV_NET_VF:1"),
    ("required_P2", _PHYSNETS[0]),
)
_BESIDE: Final[Params] = (
    ("resources", "DISK_GB:20"),
    ("resources_CELL", "MEMORY_MB:2048,VCPU:2"),
    ("resources_P", "SRIOV_NET_VF:1"),
    ("same_subtree", "_CELL,_P"),
    ("group_policy", "none"),
)


@dataclass(frozen=True, slots=True)
class ProvidersRow:
    """One query of one cloud.

    Attributes
    ----------
    match : Percentiles
        Milliseconds until it is known which trees match.
    expand : Percentiles or None
        Milliseconds until all candidates of one tree are known.
    n_matching : int
        Trees.
    n_candidates : int
        Candidates of one tree.
    """

    cloud: str
    query: str
    match: Percentiles
    expand: Percentiles
    n_matching: int
    n_candidates: int


@dataclass(frozen=True, slots=True)
class TableRow:
    """One cloud's table: milliseconds to load and to change it, bytes a provider."""

    cloud: str
    n_providers: int
    load: float
    usage: Percentiles
    put: Percentiles
    n_bytes: float


def _uuids(n: int) -> list[str]:
    return [str(uuid.UUID(int=(i * 0x9E3779B97F4A7C15) << 32 | i)) for i in range(n)]


def _inventories(rows: Rows, of: tuple[Any, ...], n_used: int) -> InventoryRows:
    values = np.full(len(rows), np.array(of, INVENTORY))
    return InventoryRows(rows, values, np.arange(len(rows), dtype=np.int64) % n_used)


def flat_cloud(n_hosts: int) -> ProviderColumns:
    """Return hosts with three classes and about 50 traits, a hundred an aggregate."""
    rows = np.arange(n_hosts, dtype=np.int32)
    traits = [frozenset(_TRAITS) - {_TRAITS[i]} for i in range(_N_TRAITS)]
    aggregates = [
        frozenset([str(uuid.UUID(int=i))])
        for i in range(-(-n_hosts // _HOSTS_PER_AGGREGATE))
    ]
    memory = _inventories(rows, (262_144, 512, 1, 262_144, 1, 1.5), 250_000)
    memory.values["total"] += rows % 1_000  # hosts of one make differ a little
    return ProviderColumns(
        _uuids(n_hosts), np.full(n_hosts, -1, np.int32), np.ones(n_hosts, np.int64),
        traits, rows % _N_TRAITS, aggregates, rows // _HOSTS_PER_AGGREGATE,
        {
            "VCPU": _inventories(rows, (64, 0, 1, 64, 1, 4.0), 256),
            "MEMORY_MB": memory,
            "DISK_GB": _inventories(rows, (2_000, 100, 1, 2_000, 1, 1.0), 1_900),
        },
    )  # fmt: skip


def device_cloud(n_hosts: int, *, n_vfs: int = 16) -> ProviderColumns:
    """Return trees: a compute node, two NUMA cells below it, and PFs below these."""
    size = 3 + _N_PF
    n_rows = n_hosts * size
    rows = np.arange(n_rows, dtype=np.int32)
    at = rows % size
    parents = np.select([at == 0, at < 3], [-1, rows - at], rows - at + 1 + at % 2)
    cells, pfs = rows[(at == 1) | (at == 2)], rows[at >= 3]
    traits = [frozenset(_TRAITS[1:]), *(frozenset([each]) for each in _PHYSNETS)]
    trait_sets = np.where(at < 3, 0, 1 + (at >= 3 + _N_PF // 2))
    return ProviderColumns(
        _uuids(n_rows), parents.astype(np.int32), np.ones(n_rows, np.int64),
        traits, trait_sets, [frozenset()], np.zeros(n_rows, np.int32),
        {
            "VCPU": _inventories(cells, (32, 0, 1, 32, 1, 4.0), 128),
            "MEMORY_MB": _inventories(cells, (131_072, 0, 1, 131_072, 1, 1.0), 130_000),
            "DISK_GB": _inventories(rows[at == 0], (2_000, 0, 1, 2_000, 1, 1.0), 1_900),
            "SRIOV_NET_VF": _inventories(pfs, (n_vfs, 0, 1, n_vfs, 1, 1.0), 1 + n_vfs),
        },
    )  # fmt: skip


def _wide_query(n_groups: int) -> Params:
    groups = [(f"resources_{i}", "SRIOV_NET_VF:1") for i in range(n_groups)]
    return (("resources", "DISK_GB:20"), *groups)


def provider_rows(sizes: tuple[int, ...], plan: Plan) -> Iterator[ProvidersRow]:
    """Yield the times of queries in clouds of these sizes, and in one wide tree."""
    for n_hosts in sizes:
        table = ProviderTable(flat_cloud(n_hosts))
        aggregate = str(uuid.UUID(int=n_hosts // _HOSTS_PER_AGGREGATE // 2))
        every = "in:" + ",".join(
            str(uuid.UUID(int=i)) for i in range(0, n_hosts // _HOSTS_PER_AGGREGATE, 2)
        )
        cloud = f"{n_hosts:,} hosts"
        for query, value in (("an aggregate", aggregate), ("half of all", every)):
            plain: Params = (*_PLAIN, ("member_of", value))
            yield _measured(plan, table, cloud, f"plain, {query}", plain)
        yield _measured(plan, table, cloud, "plain", _PLAIN)
    for n_hosts in (n for n in sizes if n <= 10_000):
        table = ProviderTable(device_cloud(n_hosts))
        cloud = f"{n_hosts:,} trees, 1 + 2 + 8"
        for policy in ("none", "isolate"):
            ports: Params = (*_PORTS, ("group_policy", policy))
            yield _measured(plan, table, cloud, f"two ports, {policy}", ports)
        yield _measured(plan, table, cloud, "port beside its cell", _BESIDE)
    wide = ProviderTable(device_cloud(1, n_vfs=1))
    uuids = wide.view().state.trees.uuids
    wide.update(used={"SRIOV_NET_VF": dict.fromkeys(uuids[3:], 0)})
    for policy in ("none", "isolate"):
        groups: Params = (*_wide_query(8), ("group_policy", policy))
        yield _measured(plan, wide, "8 PFs with 1 VF", f"8 groups, {policy}", groups)


def _measured(
    plan: Plan,
    table: ProviderTable,
    cloud: str,
    name: str,
    params: Params,
) -> ProvidersRow:
    table.add_names(traits=_TRAITS)
    view = table.view()

    def match() -> float:
        return elapsed_ms(lambda: view.match(ProviderQuery.parse(params)))

    matches = view.match(ProviderQuery.parse(params))
    root = str(matches.uuids[len(matches.uuids) // 2])
    return ProvidersRow(
        cloud, name,
        Percentiles.of(repeated(plan, match)),
        Percentiles.of(
            repeated(plan, lambda: elapsed_ms(lambda: matches.expand(root)))
        ),
        len(matches.roots),
        len(matches.expand(root)),
    )  # fmt: skip


def table_rows(sizes: tuple[int, ...], plan: Plan) -> Iterator[TableRow]:
    """Yield what tables cost; each cloud is made twice, for time and for memory."""
    for n_hosts in sizes:
        yield _table_row(f"{n_hosts:,} hosts", flat_cloud, n_hosts, plan)
    for n_hosts in (n for n in sizes if n <= 10_000):
        yield _table_row(f"{n_hosts:,} trees, 1 + 2 + 8", device_cloud, n_hosts, plan)


def _table_row(
    cloud: str, make: Callable[[int], ProviderColumns], n_hosts: int, plan: Plan
) -> TableRow:
    load = _load_ms(make(n_hosts))
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    table = ProviderTable(make(n_hosts))
    gc.collect()
    n_bytes = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    trees = table.view().state.trees
    used = {name: {trees.uuids[0]: 1} for name in ("VCPU", "MEMORY_MB", "DISK_GB")}
    record = ProviderRecord(trees.uuids[0], None, 2, {"VCPU": InventoryRecord(64)})
    return TableRow(
        cloud, trees.n_rows, load,
        Percentiles.of(
            repeated(plan, lambda: elapsed_ms(lambda: table.update(used=used)))
        ),
        Percentiles.of(repeated(plan, lambda: elapsed_ms(lambda: table.put([record])))),
        n_bytes / trees.n_rows,
    )  # fmt: skip


def _load_ms(columns: ProviderColumns) -> float:
    return elapsed_ms(lambda: ProviderTable(columns))


def print_providers(console: Console, sizes: tuple[int, ...], plan: Plan) -> None:
    """Print the times of queries, and what the tables cost."""
    queries = make_table(
        "Candidates from resource providers in memory, ms",
        "cloud|query",
        "match|expand|trees|candidates of one",
        "match: until it is known which trees match, the query's parsing "
        "included. expand: all candidates of one tree, without their bodies.",
    )
    for row in provider_rows(sizes, plan):
        queries.add_row(
            row.cloud, row.query, format_percentiles(row.match),
            format_percentiles(row.expand), f"{row.n_matching:,}",
            f"{row.n_candidates:,}",
        )  # fmt: skip
    console.print(queries)
    console.print(_costs(sizes, plan))


def _costs(sizes: tuple[int, ...], plan: Plan) -> Table:
    costs = make_table(
        "The table of resource providers, ms",
        "cloud",
        "providers|load|usage|put|bytes a provider",
        "load: from columns. usage: three classes of one provider change. put: "
        "one provider changes.",
    )
    for row in table_rows(sizes, plan):
        costs.add_row(
            row.cloud, f"{row.n_providers:,}", format_number(row.load),
            format_percentiles(row.usage), format_percentiles(row.put),
            format_number(row.n_bytes),
        )  # fmt: skip
    return costs
