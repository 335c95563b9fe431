# SPDX-License-Identifier: Apache-2.0
"""Requests for 20 instances by the drivers solver and filter_scheduler, with claims."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

import numpy as np
from rich.console import Console

from moorage.objects import RequestSpec
from moorage.scheduler.conf import load
from moorage.scheduler.drivers.plugins import load_plugin_set
from moorage.scheduler.hosts import HostRecord
from moorage.testing import SchedulerFixture
from moorage.testing.builders import group, host, instance_uuid, spec

from .tables import make_table
from .timing import Percentiles, Plan, elapsed_ms, format_percentiles, repeated

_DRIVERS: Final = ("filter_scheduler", "solver")
_HOSTS_A_RACK: Final = 40
_N_INSTANCES: Final = 20
_GROUP: Final = instance_uuid("group")
_CONTEXT: Final = {"project_id": "project", "user_id": "user"}


@dataclass(frozen=True, slots=True)
class _Rule:
    """What the instances of a request conform to together."""

    policy: str = ""
    hints: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def spec(self, uuids: Sequence[str]) -> RequestSpec:
        members = group(self.policy, uuid=_GROUP, members=list(uuids))
        return spec(
            num_instances=len(uuids),
            instance_uuid=uuids[0],
            scheduler_hints=self.hints,
            instance_group=members if self.policy else None,
        )


_RULES: Final[Mapping[str, _Rule]] = {
    "none": _Rule(),
    "anti-affinity by rack": _Rule("anti-affinity", {"group_level": ["rack"]}),
    "anti-affinity by host": _Rule("anti-affinity"),
    "soft anti-affinity by host": _Rule("soft-anti-affinity"),
    "affinity": _Rule("affinity"),
    "spread over racks": _Rule(hints={"spread_level": ["rack"]}),
}


def print_solver(console: Console, n_hosts: int, plan: Plan) -> None:
    """Measure and print each rule with both drivers."""
    # At least a rack for each instance; a real Placement is filled before.
    n_racks = max(_N_INSTANCES, n_hosts // _HOSTS_A_RACK)
    title = f"Requests for {_N_INSTANCES} instances, {n_hosts:,} hosts, ms"
    shown = make_table(title, "rule", "|".join(_DRIVERS))
    options = {"locality": {"levels": ["rack"]}}
    with SchedulerFixture(*_hosts(n_hosts, n_racks), options=options) as running:
        for name, *times in _rows(running, plan):
            shown.add_row(name, *map(format_percentiles, times))
    console.print(shown)


def _hosts(n_hosts: int, n_racks: int) -> Iterator[HostRecord]:
    rng = np.random.default_rng(n_hosts)
    for i in range(n_hosts):
        vcpus = int(rng.choice((64, 96, 128)))
        ram_mb = vcpus * 4096
        yield host(
            host=f"h{i}",
            places=(("rack", f"rack{i % n_racks}"),),
            vcpus_total=vcpus,
            vcpus_used=int(rng.integers(0, vcpus - _N_INSTANCES)),
            total_usable_ram_mb=ram_mb,
            free_ram_mb=ram_mb - int(rng.integers(0, ram_mb // 2)),
            total_usable_disk_gb=4000,
            free_disk_mb=4000 * 1024,
            disk_mb_used=0,
        )


def _rows(
    running: SchedulerFixture, plan: Plan
) -> Iterator[tuple[str, Percentiles, Percentiles]]:
    for name, rule in _RULES.items():
        first, second = (_times(running, driver, rule, plan) for driver in _DRIVERS)
        yield name, first, second


def _times(
    running: SchedulerFixture, driver: str, rule: _Rule, plan: Plan
) -> Percentiles:
    conf = load([], config_files=[])
    conf.set_override("driver", driver, group="moorage")
    conf.set_override("levels", ["rack"], group="locality")
    scheduler = running.scheduler
    scheduler.use(load_plugin_set(conf, time.time))

    def measured() -> float:
        uuids = [str(uuid4()) for _ in range(_N_INSTANCES)]
        asked = rule.spec(uuids)
        elapsed = elapsed_ms(
            lambda: scheduler.select_destinations(_CONTEXT, asked, uuids, True, True)
        )
        for uuid in uuids:
            [here] = scheduler.table.instances.hosts_of(uuid)
            running.placement.delete_allocations(uuid)
            scheduler.table.claims.release(here, uuid)
        return elapsed

    return Percentiles.of(repeated(plan, measured))
