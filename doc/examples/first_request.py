# SPDX-License-Identifier: Apache-2.0
"""Ask a scheduler in this process for a host, and then why there is none."""

from pathlib import Path
from uuid import uuid4

from moorage.objects import Flavor, RequestSpec, Selection
from moorage.scheduler.conf import load
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.service import Scheduler, build

CONTEXT = {"request_id": "req-1", "project_id": "demo", "user_id": "demo"}


def select(scheduler: Scheduler, **extra_specs: str) -> list[Selection]:
    """Return the chosen host and its alternates for one instance."""
    uuid = str(uuid4())
    flavor = Flavor(
        name="m1.small",
        vcpus=2,
        memory_mb=4096,
        root_gb=20,
        ephemeral_gb=0,
        swap=0,
        extra_specs=extra_specs,
    )
    spec = RequestSpec(flavor=flavor, num_instances=1, instance_uuid=uuid)
    (selections,) = scheduler.select_destinations(
        CONTEXT, spec, [uuid], return_objects=True, return_alternates=True
    )
    return selections


def main() -> None:
    """Ask twice, with the embedded Placement and the inventory beside this file."""
    conf = load(config_files=[])
    inventory = Path(__file__).with_name("hosts.yaml")
    conf.set_override("inventory_file", str(inventory), group="moorage")
    scheduler = build(conf)
    scheduler.start()
    try:
        chosen, *alternates = select(scheduler)
        print("host", chosen.service_host, "in zone", chosen.availability_zone)
        print("alternates", [alternate.service_host for alternate in alternates])
        try:
            select(scheduler, **{"capabilities:hypervisor_type": "ironic"})
        except NoValidHost as error:
            print(error)
        (record,) = scheduler.decisions.newest(1)
        for step in record.steps:
            print(f"{step.n_in} > {step.name} > {step.n_out}: {step.reason}")
    finally:
        scheduler.stop()


if __name__ == "__main__":
    main()
