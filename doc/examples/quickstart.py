# SPDX-License-Identifier: Apache-2.0
"""Place one instance on the hosts of a file, with a Placement inside this process."""

from pathlib import Path
from uuid import uuid4

from moorage.objects import Flavor, RequestSpec
from moorage.scheduler.conf import load
from moorage.scheduler.service import build

context = {"project_id": "demo", "user_id": "demo"}
conf = load(config_files=[])
hosts = Path(__file__).with_name("hosts.yaml")
conf.set_override("inventory_file", str(hosts), group="moorage")
scheduler = build(conf)
scheduler.start()
flavor = Flavor(vcpus=2, memory_mb=4096, root_gb=20, ephemeral_gb=0, swap=0)
uuid = str(uuid4())
request = RequestSpec(flavor=flavor, num_instances=1, instance_uuid=uuid)
[[chosen, *alternates]] = scheduler.select_destinations(
    context, request, [uuid], return_objects=True, return_alternates=True
)
print("chosen:", chosen.service_host)
print("alternates:", [alternate.service_host for alternate in alternates])
for step in scheduler.decisions.newest(1)[0].steps:
    print(f"{step.name}: {step.n_in} hosts in, {step.n_out} out")
scheduler.stop()
