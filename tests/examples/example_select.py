# SPDX-License-Identifier: Apache-2.0
"""Select once with an example package, and print the decision record as JSON.

Run in the environment that has the package: python example_select.py INVENTORY CONFIG.
"""

import json
import sys
import uuid

from moorage.objects import Flavor, RequestSpec
from moorage.scheduler import service
from moorage.scheduler.conf import load


def main() -> None:
    conf = load(config_files=[sys.argv[2]])
    conf.set_override("inventory_file", sys.argv[1], group="moorage")
    scheduler = service.build(conf)
    scheduler.start()
    try:
        scheduler.select_destinations({}, _spec(), [_UUID], return_objects=True)
        [record] = scheduler.decisions.newest(1)
        print(json.dumps(record.to_dict()))
    finally:
        scheduler.stop()


_UUID = str(uuid.uuid4())


def _spec() -> RequestSpec:
    flavor = Flavor(vcpus=1, memory_mb=1024, root_gb=1, ephemeral_gb=0, swap=0)
    flavor.extra_specs = {}
    return RequestSpec(
        flavor=flavor, instance_uuid=_UUID, project_id="project", user_id="user"
    )


if __name__ == "__main__":
    main()
