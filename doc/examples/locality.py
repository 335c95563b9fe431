# SPDX-License-Identifier: Apache-2.0
"""Select hosts by rules about racks and rows, with the inventory beside this file."""

from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from moorage.objects import Flavor, InstanceGroup, RequestSpec
from moorage.scheduler.conf import load
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.service import Scheduler, build

CONTEXT = {"request_id": "req-1", "project_id": "demo", "user_id": "demo"}
RACKS = {f"node{i}": f"r{(i + 1) // 2}" for i in range(1, 9)}


def select(
    scheduler: Scheduler,
    uuids: list[str],
    hints: Mapping[str, list[str]],
    group: InstanceGroup | None = None,
    vcpus: int = 2,
) -> list[str]:
    """Return the racks of the chosen hosts."""
    flavor = Flavor(vcpus=vcpus, memory_mb=4096, root_gb=20, ephemeral_gb=0, swap=0)
    spec = RequestSpec(
        flavor=flavor,
        num_instances=len(uuids),
        instance_uuid=uuids[0],
        scheduler_hints=hints,
        instance_group=group,
    )
    answer = scheduler.select_destinations(
        CONTEXT, spec, uuids, return_objects=True, return_alternates=True
    )
    return [RACKS[selection.service_host] for selection, *_ in answer]


def new(number: int = 1) -> list[str]:
    """Return the UUIDs of new instances."""
    return [str(uuid4()) for _ in range(number)]


def main() -> None:
    """Select hosts for instances that depend on each other."""
    conf = load(config_files=[])
    beside = Path(__file__).with_name
    conf.set_override("inventory_file", str(beside("racks.yaml")), group="moorage")
    conf.set_override("levels", ["rack", "row"], group="locality")
    conf.set_override("distances", {"rack": 1, "row": 5}, group="locality")
    conf.set_override("distance_file", str(beside("rows.csv")), group="locality")
    scheduler = build(conf)
    scheduler.start()
    try:
        spread = select(scheduler, new(8), {"spread_level": ["rack"]})
        print("eight, spread over the racks:", sorted(spread))
        near = select(scheduler, new(3), {"near": ["row=row-b"]}, vcpus=20)
        print("three large ones near row-b, in racks", near)
        database = new()
        print("database in", select(scheduler, database, {"in_rack": ["r2"]}))
        print("cache in", select(scheduler, new(), {"same_rack": database}))
        replica = {"same_row": database, "different_rack": database}
        print("replica in", select(scheduler, new(), replica))
        members = new(5)
        group = InstanceGroup(policy="anti-affinity", members=members)
        level = {"group_level": ["rack"]}
        print("group in", sorted(select(scheduler, members[:4], level, group)))
        try:
            select(scheduler, members[4:], level, group)
        except NoValidHost as error:
            print(error)
    finally:
        scheduler.stop()


if __name__ == "__main__":
    main()
