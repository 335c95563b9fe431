# SPDX-License-Identifier: Apache-2.0
"""One compute node as a source reports it; its fields declare the host columns."""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

from . import columns as of
from .columns import Column, ColumnType
from .launches import Launches
from .numa import HostTopology
from .pci import NO_POOLS, HostPools

NO_STATS: Mapping[str, str] = MappingProxyType({})
_NO_VALUES: Mapping[str, Any] = MappingProxyType({})

#: One [architecture, hypervisor type, VM mode] triple.
SupportedInstance = tuple[str, ...]


def _column(
    kind: ColumnType,
    description: str,
    unit: str = "",
    *,
    is_novas: bool = True,
    is_reported: bool = True,
    is_in_file: bool = True,
    is_supply: bool = False,
) -> functools.partial[Column]:
    """Declare the column of a field; `_declared` adds the field's name and default."""
    return functools.partial(
        Column,
        dtype=kind,
        description=description,
        unit=unit,
        is_novas=is_novas,
        is_reported=is_reported,
        is_in_file=is_in_file,
        is_supply=is_supply,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HostRecord:
    """The state of one compute node, under the names of nova's HostState.

    A field is a column of the host table, of a report and, unless the declaration says
    otherwise, a key of a host in an inventory file.
    """

    host: Annotated[str, _column(of.NAME, "host of the compute service")]
    nodename: Annotated[str, _column(of.NAME, "hypervisor_hostname of the node")]
    uuid: Annotated[
        str, _column(of.UUID, "compute node, which is its root resource provider")
    ]
    cell_uuid: Annotated[str, _column(of.UUID, "cell of the host")]

    total_usable_ram_mb: Annotated[
        int, _column(of.AMOUNT, "memory", "MiB", is_supply=True)
    ]
    free_ram_mb: Annotated[
        int, _column(of.INTEGER, "free memory; may be negative", "MiB")
    ]
    total_usable_disk_gb: Annotated[
        int, _column(of.AMOUNT, "local disk", "GiB", is_supply=True)
    ]
    free_disk_mb: Annotated[
        int, _column(of.INTEGER, "free local disk; may be negative", "MiB")
    ]
    disk_mb_used: Annotated[int, _column(of.AMOUNT, "used local disk", "MiB")]
    vcpus_total: Annotated[int, _column(of.AMOUNT, "CPUs", is_supply=True)]
    vcpus_used: Annotated[int, _column(of.AMOUNT, "CPUs of its instances")]
    cpu_allocation_ratio: Annotated[
        float,
        _column(of.RATIO, "instances' CPUs for each CPU of the host", is_supply=True),
    ] = 1.0
    ram_allocation_ratio: Annotated[
        float, _column(of.RATIO, "overcommitment of memory", is_supply=True)
    ] = 1.0
    disk_allocation_ratio: Annotated[
        float, _column(of.RATIO, "overcommitment of disk", is_supply=True)
    ] = 1.0

    num_instances: Annotated[int, _column(of.AMOUNT, "instances on the host")] = 0
    num_io_ops: Annotated[
        int,
        _column(of.AMOUNT, "builds, resizes and the like; ``io_workload`` in stats"),
    ] = 0
    failed_builds: Annotated[
        int, _column(of.AMOUNT, "builds that failed since one succeeded")
    ] = 0
    stats: Annotated[
        Mapping[str, str],
        _column(of.TEXTS, "the virt driver's stats; extra specs can require them"),
    ] = dataclasses.field(default_factory=lambda: NO_STATS)

    hypervisor_type: Annotated[
        str | None, _column(of.OPTIONAL_NAME, "for example ``QEMU``")
    ] = None
    hypervisor_version: Annotated[
        int,
        _column(of.AMOUNT, "libvirt's form: 6002001 is 6.2.1; 0: unknown"),
    ] = 0
    hypervisor_hostname: Annotated[
        str | None, _column(of.TEXT, "as ``nodename``", is_in_file=False)
    ] = None
    supported_instances: Annotated[
        tuple[SupportedInstance, ...],
        _column(of.TRIPLES, "the kinds of guests that it runs"),
    ] = ()
    cpu_info: Annotated[
        str | None,
        _column(of.CPU_INFO, "the virt driver's JSON; a mapping in a file"),
    ] = None
    metrics: Annotated[
        Mapping[str, float] | None,
        _column(
            of.NUMBERS,
            "as monitors on the host report them, for ``MetricsFilter`` and "
            "``MetricsWeigher``; null: there are no monitors",
        ),
    ] = None
    host_ip: Annotated[str | None, _column(of.OPTIONAL_NAME, "its address")] = None
    numa_topology: Annotated[
        HostTopology | None,
        _column(
            of.TOPOLOGY,
            "the NUMA cells and their usage, as nova-compute writes them to "
            "``compute_nodes``: JSON text, or the same as a mapping",
        ),
    ] = None
    pci_stats: Annotated[
        HostPools,
        _column(
            of.POOLS,
            "the pools of free PCI devices, as nova-compute writes them to "
            "``compute_nodes``: JSON text, or the same as a mapping or a list",
        ),
    ] = NO_POOLS
    launches: Annotated[
        Launches | None,
        _column(
            of.LAUNCHES,
            "for ``LifetimeWeigher``: when each instance was launched, seconds since "
            "the epoch, and its project, CPUs, memory in MiB, and image, empty if "
            "volume-backed; null: unknown",
            is_novas=False,
        ),
    ] = None
    places: Annotated[
        tuple[tuple[str, str], ...],
        _column(
            of.PLACES,
            "where it is, by level of ``[locality] levels``: ``{rack: r7, row: b}``",
            is_novas=False,
        ),
    ] = ()

    disabled: Annotated[
        bool,
        _column(of.BOOLEAN, "the service is disabled", is_novas=False, is_supply=True),
    ] = False
    disabled_reason: Annotated[
        str | None,
        _column(of.TEXT, "why it is disabled, for operators", is_novas=False),
    ] = None
    forced_down: Annotated[
        bool, _column(of.BOOLEAN, "the service was forced down", is_novas=False)
    ] = False
    last_seen_up: Annotated[
        float,
        _column(
            of.TIME,
            "the service's newest heartbeat, or the receipt of its newest report; "
            "infinite: the service counts as up; NaN: never seen",
            "s since the epoch",
            is_novas=False,
            is_reported=False,
            is_in_file=False,
        ),
    ] = math.inf
    service_version: Annotated[
        int,
        _column(
            of.AMOUNT,
            "nova's version number of the service; 0: unknown",
            is_novas=False,
            is_in_file=False,
        ),
    ] = 0

    #: Values of the columns that plugins declare, by name.
    extra: Mapping[str, Any] = dataclasses.field(default_factory=lambda: _NO_VALUES)


def _declared() -> Mapping[str, Column]:
    """Return the columns that the fields of HostRecord declare, by name."""
    hints = typing.get_type_hints(HostRecord, include_extras=True)
    columns = {}
    for field in dataclasses.fields(HostRecord):
        for make_column in getattr(hints[field.name], "__metadata__", ()):
            default = field.default
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            columns[field.name] = make_column(name=field.name, default=default)
    return MappingProxyType(columns)


#: Declarations of columns, by name.
Columns = Mapping[str, Column]

#: The columns of every host table, in the order of HostRecord's fields.
COLUMNS: Columns = _declared()

#: Attributes of hosts that nova's HostState has: extra specs can refer to these only.
NOVA_ATTRIBUTES = frozenset(
    {"aggregates", *(name for name, column in COLUMNS.items() if column.is_novas)}
)
