# SPDX-License-Identifier: Apache-2.0
"""What rules about racks and rows add to a decision: reading, and one filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from rich.console import Console

from moorage.filters import BaseHostFilter
from moorage.filters.locality import LocalityFilter
from moorage.objects import RequestSpec
from moorage.scheduler.conf import load
from moorage.scheduler.hosts import HostBatch, HostTable
from moorage.scheduler.request import Request
from moorage.testing.builders import aggregate, group, host, instance_uuid, spec, table
from moorage.weighers import BaseHostWeigher
from moorage.weighers.locality import LocalityWeigher

from .tables import make_table
from .timing import Percentiles, Plan, elapsed_ms, format_percentiles, repeated

_HOSTS_A_RACK: Final = 40
_RACKS_A_ROW: Final = 10
_N_MEMBERS: Final = 10
_LEVELS: Final = ("rack", "row")
_UUIDS: Final = tuple(map(instance_uuid, range(_N_MEMBERS)))

#: Hints by the text in the table.
_HARD: Final[Mapping[str, dict[str, list[str]]]] = {
    "no rule": {},
    "in_rack": {"in_rack": ["rack1"]},
    "different_rack": {"different_rack": [_UUIDS[0]]},
    "same_row and different_rack": {
        "same_row": [_UUIDS[0]],
        "different_rack": [_UUIDS[0]],
    },
    "group_level of 10 members": {"group_level": ["rack"]},
    "spread_level of 10 members": {"spread_level": ["rack"]},
}
_SOFT: Final[Mapping[str, dict[str, list[str]]]] = {
    "near an instance": {"near": [_UUIDS[0]]},
    "near a row": {"near": ["row=row1"]},
    "far from 10 instances": {"far": list(_UUIDS)},
}


def print_locality(console: Console, n_hosts: int, plan: Plan) -> None:
    """Measure and print each kind of rule."""
    hosts = _cloud(n_hosts)
    shown = make_table(f"Rules about places, {n_hosts:,} hosts, ms", "rule", "time")
    for name, times in _rows(hosts, plan):
        shown.add_row(name, format_percentiles(times))
    console.print(shown)


def _cloud(n_hosts: int) -> HostTable:
    """Return hosts in racks and rows; ten have a member of the group."""
    names = [f"h{i}" for i in range(n_hosts)]
    n_racks = max(1, n_hosts // _HOSTS_A_RACK)
    racks = {f"rack{i}": names[i::n_racks] for i in range(n_racks)}
    rows: dict[str, list[str]] = {}
    for i, inside in enumerate(racks.values()):
        rows.setdefault(f"row{i // _RACKS_A_ROW}", []).extend(inside)
    places = [("rack", racks), ("row", rows)]
    aggregates = [
        aggregate(number, *inside, **{"moorage:level": level, "moorage:place": name})
        for number, (level, name, inside) in enumerate(
            (level, *item) for level, some in places for item in some.items()
        )
    ]
    records = [host(host=name) for name in names]
    on = {name: [uuid] for name, uuid in zip(names, _UUIDS, strict=False)}
    return table(*records, aggregates=aggregates, instances=on)


def _rows(hosts: HostTable, plan: Plan) -> Iterator[tuple[str, Percentiles]]:
    conf = load([], config_files=[])
    conf.set_override("levels", list(_LEVELS), group="locality")
    filter_, weigher = LocalityFilter(conf), LocalityWeigher(conf)
    for name, hints in _HARD.items():
        yield name, _times(hosts, _passing(filter_), hints, plan)
    for name, hints in _SOFT.items():
        yield name, _times(hosts, _weighing(weigher), hints, plan)


def _passing(filter_: BaseHostFilter) -> Callable[[HostBatch, RequestSpec], object]:
    def run(hosts: HostBatch, spec_obj: RequestSpec) -> object:
        prepared = filter_.prepare(spec_obj)
        return prepared.is_idle or prepared.passing(hosts, spec_obj)

    return run


def _weighing(weigher: BaseHostWeigher) -> Callable[[HostBatch, RequestSpec], object]:
    def run(hosts: HostBatch, spec_obj: RequestSpec) -> object:
        prepared = weigher.prepare(spec_obj)
        return prepared.is_idle or prepared.weigh_all(hosts, spec_obj)

    return run


def _times(
    hosts: HostTable,
    run: Callable[[HostBatch, RequestSpec], object],
    hints: dict[str, list[str]],
    plan: Plan,
) -> Percentiles:
    members = group("anti-affinity", members=list(_UUIDS))

    def measured() -> float:
        spec_obj = spec(scheduler_hints=hints, instance_group=members)
        request = Request.validated(spec_obj)  # kept: the plugins refer to it
        some = hosts.batch()
        duration = elapsed_ms(lambda: run(some, spec_obj))
        assert request.spec_obj is spec_obj
        return duration

    return Percentiles.of(repeated(plan, measured))
