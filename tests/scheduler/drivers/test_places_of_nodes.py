# SPDX-License-Identifier: Apache-2.0
"""Rules about places count the nodes of one service host, where each of them is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from moorage.objects import InstanceGroup
from moorage.scheduler.service import Scheduler

from ...fixtures.clouds import CONTEXT, host, started_scheduler
from ...fixtures.placed_clouds import ROW_OF, placing, uuid_of

GROUP = uuid_of("group")
METAL = "CUSTOM_BAREMETAL_GOLD"
_NODES = [(f"{rack}-{n}", rack) for rack in ROW_OF for n in range(3)]


@pytest.fixture(scope="module", params=["filter_scheduler", "solver"])
def metal(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scheduler]:
    nodes = [
        host(
            "ironic1",
            node=name,
            uuid=uuid_of(name),
            vcpus=0,
            memory_mb=0,
            local_gb=0,
            resources={METAL: {"total": 1}},
            places={"rack": rack, "row": ROW_OF[rack]},
        )
        for name, rack in _NODES
    ]
    options = {
        "moorage": {"driver": request.param, "random_seed": 1},
        "locality": {"levels": ["rack", "row"]},
    }
    folder = tmp_path_factory.mktemp("metal")
    with started_scheduler(folder, *nodes, options=options) as scheduler:
        yield scheduler


@pytest.mark.parametrize(
    ("hints", "racks"),
    [
        ({"spread_level": ["rack"]}, {"r1": 1, "r2": 1, "r3": 1}),
        ({"spread_level": ["rack"], "not_in_row": ["A"]}, {"r2": 2, "r3": 1}),
        ({"max_server_per_rack": ["1"]}, {"r1": 1, "r2": 1, "r3": 1}),
        ({"same_rack": [GROUP]}, {"r1": 3}),
    ],
    ids=["spread", "spread in a row", "limit", "same"],
)
def test_nodes_of_one_service_host_count_where_each_is(
    metal: Scheduler, hints: dict[str, list[str]], racks: dict[str, int]
) -> None:
    group = InstanceGroup(
        uuid=GROUP,
        policy="soft-affinity",
        policies=["soft-affinity"],
        members=[],
        hosts=[],
    )
    zero = dict.fromkeys(("VCPU", "MEMORY_MB", "DISK_GB"), "0")
    specs = {f"resources:{name}": n for name, n in {**zero, METAL: "1"}.items()}
    spec, _ = placing(3, group, scheduler_hints=hints, extra_specs=specs)
    record = metal.explainer.dry_run(CONTEXT, spec, 3)
    rack_of = dict(_NODES)
    found = Counter(rack_of[each.node] for each in record.instances)
    assert sorted(found.values()) == sorted(racks.values())
    assert found.keys() <= racks.keys() or "same_rack" in hints
