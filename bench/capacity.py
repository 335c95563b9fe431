# SPDX-License-Identifier: Apache-2.0
"""What-if questions: the closest hosts of a request, and the capacity of flavors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from moorage.objects import Flavor, RequestSpec
from moorage.scheduler.explain import Explainer, FlavorRequest, request_of_flavor
from moorage.scheduler.placement.providers import (
    InventoryRecord,
    ProviderColumns,
    ProviderRecord,
    ProviderTable,
    ProviderView,
)
from moorage.scheduler.service import build

from .canned import CannedPlacement
from .clouds import Cloud, CloudSource, make_cloud, make_numa_cloud, options
from .guests import pinned
from .timing import Percentiles, Plan, elapsed_ms, format_percentiles, repeated

_N_FLAVORS = 100
#: As many as the list of hosts counts at most.
_N_RECENT = 20
_CAPABILITIES = ("hypervisor_version", "vcpus_total")
_FILTERS = [
    "ComputeFilter",
    "ComputeCapabilitiesFilter",
    "ImagePropertiesFilter",
    "NUMATopologyFilter",
    "PciPassthroughFilter",
]


@dataclass(frozen=True, slots=True)
class WhatIfRow:
    """The times of one question in one cloud, milliseconds."""

    n_hosts: int
    question: str
    times: Percentiles


def what_if_rows(sizes: Sequence[int], plan: Plan) -> Iterator[WhatIfRow]:
    """Yield the rows of all questions in clouds of these sizes."""
    for n_hosts in sizes:
        plain = _explainer(make_cloud(n_hosts))
        small = [_flavor(number, {}) for number in range(_N_FLAVORS)]
        yield _row(n_hosts, f"capacity, {_N_FLAVORS} flavors", plain, small, plan)
        yield WhatIfRow(
            n_hosts,
            f"hosts with their room for {_N_RECENT} flavors",
            _hosts_ms(plain, small[:_N_RECENT], plan),
        )
        lacking = request_of_flavor(_sized(256, 2**21)).spec_obj

        yield WhatIfRow(n_hosts, "closest", _closest_ms(plain, lacking, plan))
        specs = {f"capabilities:{name}": ">= 99000000" for name in _CAPABILITIES}
        lacking = _flavor(1, specs).spec_obj
        question = "closest, two extra specs"
        yield WhatIfRow(n_hosts, question, _closest_ms(plain, lacking, plan))
        yield WhatIfRow(n_hosts, "why-not", _why_not_ms(plain, lacking, plan))
        cells = _explainer(make_numa_cloud(n_hosts, has_pools=True))
        specs = {"hw:numa_nodes": "1", "hw:cpu_policy": "dedicated"}
        specs["hw:mem_page_size"] = "2048"
        guests = [_flavor(number, specs) for number in range(_N_FLAVORS)]
        question = f"capacity, {_N_FLAVORS} pinned flavors"
        yield _row(n_hosts, question, cells, guests, plan)


def _hosts_ms(
    explainer: Explainer, flavors: Sequence[FlavorRequest], plan: Plan
) -> Percentiles:
    def ask() -> float:
        return elapsed_ms(lambda: explainer.hosts(flavors=flavors))

    return Percentiles.of(repeated(plan, ask))


def _closest_ms(explainer: Explainer, spec: RequestSpec, plan: Plan) -> Percentiles:
    def ask() -> float:
        return elapsed_ms(lambda: explainer.closest({}, spec))

    return Percentiles.of(repeated(plan, ask))


def _why_not_ms(explainer: Explainer, spec: RequestSpec, plan: Plan) -> Percentiles:
    host = explainer.hosts(limit=1).hosts[0].host

    def ask() -> float:
        return elapsed_ms(lambda: explainer.why_not({}, spec, host))

    return Percentiles.of(repeated(plan, ask))


def print_what_if(console: Console, sizes: Sequence[int], plan: Plan) -> None:
    """Measure and print."""
    table = Table(title="What-if questions, milliseconds", title_justify="left")
    for name in ("hosts", "question", "time"):
        table.add_column(name, justify="left" if name == "question" else "right")
    for row in what_if_rows(sizes, plan):
        table.add_row(f"{row.n_hosts:,}", row.question, format_percentiles(row.times))
    console.print(table)


def _row(
    n_hosts: int,
    question: str,
    explainer: Explainer,
    flavors: Sequence[FlavorRequest],
    plan: Plan,
) -> WhatIfRow:
    def ask() -> float:
        return elapsed_ms(lambda: explainer.capacity(flavors))

    return WhatIfRow(n_hosts, question, Percentiles.of(repeated(plan, ask)))


def _flavor(number: int, extra_specs: dict[str, str]) -> FlavorRequest:
    flavor = _sized(1 + number % 8, 1024 * (1 + number))
    flavor.extra_specs = extra_specs
    return request_of_flavor(flavor)


def _sized(vcpus: int, memory_mb: int) -> Flavor:
    return Flavor(
        name=f"{vcpus}-{memory_mb}",
        flavorid="1",
        vcpus=vcpus,
        memory_mb=memory_mb,
        root_gb=10,
        ephemeral_gb=0,
        swap=0,
        extra_specs={},
    )


def _explainer(cloud: Cloud) -> Explainer:
    conf = options(len(cloud), enabled_filters=_FILTERS)
    scheduler = build(
        conf,
        placement=CannedPlacement(cloud, pinned(cloud)),
        source=CloudSource(conf, cloud),
    )
    scheduler.start()
    view = _providers(cloud)
    return Explainer(lambda: scheduler.parts, lambda: view)


def _providers(cloud: Cloud) -> ProviderView:
    """Return the providers that computes of these hosts would report."""
    rng = np.random.default_rng(len(cloud))
    records = [
        ProviderRecord(
            record.uuid,
            inventories={
                "VCPU": InventoryRecord(record.vcpus_total, allocation_ratio=4.0),
                "PCPU": InventoryRecord(record.vcpus_total),
                "MEMORY_MB": InventoryRecord(record.total_usable_ram_mb),
                "DISK_GB": InventoryRecord(record.total_usable_disk_gb),
            },
            used={
                "VCPU": record.vcpus_used,
                "PCPU": int(rng.integers(record.vcpus_total)),
                "MEMORY_MB": record.total_usable_ram_mb - record.free_ram_mb,
            },
        )
        for record in cloud.records
    ]
    return ProviderTable(ProviderColumns.of(records)).view()
