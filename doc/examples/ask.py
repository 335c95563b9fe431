# SPDX-License-Identifier: Apache-2.0
"""Ask the scheduler for a host, as a conductor does."""

import sys
from uuid import uuid4

from moorage.objects import Flavor, RequestSpec
from moorage.scheduler.conf import load
from moorage.scheduler.rpc import SchedulerAPI, get_transport

context = {"project_id": "demo", "user_id": "demo"}
conf = load(["--config-file", sys.argv[1]])
api = SchedulerAPI(get_transport(conf), timeout_s=60)
uuid = str(uuid4())
flavor = Flavor(vcpus=1, memory_mb=16, root_gb=0, ephemeral_gb=0, swap=0)
request = RequestSpec(flavor=flavor, num_instances=1, instance_uuid=uuid)
[[chosen]] = api.select_destinations(context, request, [uuid])
print("chosen:", chosen.service_host)
