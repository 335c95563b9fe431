# SPDX-License-Identifier: Apache-2.0
"""Select bare-metal nodes by resource class, trait and rack."""

from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from moorage.objects import Flavor, RequestSpec
from moorage.scheduler.conf import load
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.service import Scheduler, build

CONTEXT = {"request_id": "req-1", "project_id": "demo", "user_id": "demo"}
NOTHING = {f"resources:{name}": "0" for name in ("VCPU", "MEMORY_MB", "DISK_GB")}


def select(
    scheduler: Scheduler,
    extra_specs: Mapping[str, str],
    count: int = 1,
    hints: Mapping[str, list[str]] | None = None,
) -> list[str]:
    """Return the service hosts and nodes that were chosen."""
    uuids = [str(uuid4()) for _ in range(count)]
    flavor = Flavor(
        vcpus=32,
        memory_mb=262144,
        root_gb=900,
        ephemeral_gb=0,
        swap=0,
        extra_specs={**NOTHING, **extra_specs},
    )
    spec = RequestSpec(
        flavor=flavor,
        num_instances=count,
        instance_uuid=uuids[0],
        scheduler_hints=hints or {},
    )
    answer = scheduler.select_destinations(CONTEXT, spec, uuids, return_objects=True)
    return sorted(f"{mine.service_host}/{mine.nodename}" for [mine] in answer)


def main() -> None:
    """Use up the nodes of a resource class."""
    conf = load(config_files=[])
    inventory_file = Path(__file__).with_name("bare-metal.yaml")
    conf.set_override("inventory_file", str(inventory_file), group="moorage")
    conf.set_override("levels", ["rack"], group="locality")
    scheduler = build(conf)
    scheduler.start()
    gold = {"resources:CUSTOM_BAREMETAL_GOLD": "1"}
    silver = {"resources:CUSTOM_BAREMETAL_SILVER": "1"}
    try:
        with_gpu = {**gold, "trait:CUSTOM_GPU": "required"}
        print("with a GPU:", select(scheduler, with_gpu))
        in_rack = {"in_rack": ["r1"]}
        print("two in rack r1:", select(scheduler, gold, 2, in_rack))
        print("silver:", select(scheduler, silver))
        select(scheduler, gold)
    except NoValidHost as error:
        print(error)
    finally:
        scheduler.stop()


if __name__ == "__main__":
    main()
